"""One probe application in three forms, bare WSGI, Flask and Falcon, each behind its own shell; and a strict server.

`POST /jobs` appends one row to a ledger and answers `201 {"n": rows}`; knobs choose what goes wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO
from typing import Any

import falcon
import flask
from werkzeug.exceptions import HTTPException

from tests.shells.blocking_rig import REPLAYED, Failing
from twicesafe import PUBLIC, Policy
from twicesafe.blocking.environ import UNDERWAY
from twicesafe.falcon import Idempotency as FalconIdempotency
from twicesafe.flask import Idempotency as FlaskIdempotency
from twicesafe.observe import Event
from twicesafe.stores.memory import MemoryStore
from twicesafe.wsgi import IdempotencyMiddleware, current

Lines = Sequence[tuple[str, str]]
KINDS = ("bare", "flask", "falcon")
ROUTES = ("/jobs", "/other", "/jobs/<name>")


class HttpError(Exception):
    """The framework's own error with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class MappedError(Exception):
    """Turned into 409 by a handler of the application's."""


@dataclass
class Probe:
    """Knobs. Effects are `len(ledger)`; `seen` are the bodies as the application read them."""

    status: int = 201
    headers: Lines = (("Content-Type", "application/json"),)
    body: bytes | None = None
    chunks: Sequence[bytes] | None = None
    between: Callable[[int], object] = lambda number: None
    effect: Callable[[Any], object] = lambda keyed: None
    raise_before: BaseException | None = None
    raise_after: BaseException | None = None
    closed: Callable[[], object] | None = None
    ledger: list[bytes] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)

    def run(self, body: bytes, keyed: Any) -> tuple[int, Lines, bytes | Iterator[bytes]]:
        self.seen.append(body)
        if self.raise_before is not None:
            raise self.raise_before
        self.ledger.append(body)
        self.effect(keyed)
        if self.raise_after is not None:
            raise self.raise_after
        if self.chunks is not None:
            return self.status, self.headers, self.stream(self.chunks)
        whole = json.dumps({"n": len(self.ledger)}).encode() if self.body is None else self.body
        return self.status, self.headers, whole

    def stream(self, chunks: Sequence[bytes]) -> Iterator[bytes]:
        for number, chunk in enumerate(chunks):
            self.between(number)
            yield chunk


class Closing:
    """A body with something to be closed."""

    def __init__(self, pieces: Iterable[bytes], close: Callable[[], object]) -> None:
        self.pieces = pieces
        self.close = close

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.pieces)


class Subject:
    """`app` is what a server would be given. `user` is who calls; the probe's own authentication refuses ""."""

    def __init__(
        self,
        kind: str,
        policy: Policy | None = None,
        probe: Probe | None = None,
        *,
        store: Any = None,
        scope: Any = None,
    ) -> None:
        self.kind = kind
        self.policy = policy or Policy()
        self.probe = probe or Probe()
        self.now = 1_000_000_000_000_000
        self.store = Failing(MemoryStore(clock=lambda: self.now)) if store is None else store
        self.events: list[Event] = []
        self.scope = scope
        self.app: Any = getattr(self, kind)()

    @property
    def effects(self) -> int:
        return len(self.probe.ledger)

    @property
    def told(self) -> list[str]:
        return [event.name for event in self.events]

    def pass_time(self, how_long: timedelta) -> None:
        self.now += how_long // timedelta(microseconds=1)

    def post(self, **how: Any) -> Reply:
        """One request from start to end. Raises what reached the server, unless `raises` says that it is expected."""
        raises = how.pop("raises", ())
        reply = Reply(self.app, request(**how))
        if reply.raised is not None and not isinstance(reply.raised, raises):
            raise reply.raised
        return reply

    # --- the three ----------------------------------------------------------------------------------------------------

    def bare(self) -> Any:
        probe = self.probe

        def work(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            length = environ.get("CONTENT_LENGTH")
            body = environ["wsgi.input"].read(*([int(length)] if length else []))
            try:
                status, lines, pieces = probe.run(body, current(environ) if UNDERWAY in environ else None)
            except MappedError:
                status, lines, pieces = 409, (), b"mapped"
            except HttpError as error:
                status, lines, pieces = error.status, (), b"http"
            if isinstance(pieces, bytes):
                lines = [*lines, ("Content-Length", str(len(pieces)))]
                pieces = [pieces]
            start_response(f"{status} Whatever", list(lines))
            return pieces if probe.closed is None else Closing(pieces, probe.closed)

        def routed(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
            if path not in ("/jobs", "/other") and not path.startswith("/jobs/"):
                return answer(start_response, "404 Not Found")
            return work(environ, start_response) if method != "GET" else answer(start_response, "405 Not Allowed")

        safe = IdempotencyMiddleware(
            routed,
            self.store,
            scope=self.scope or (lambda environ: environ["HTTP_X_USER"]),
            policy=self.policy,
            observer=self.events.append,
            entered=lambda environ, status: False if status == 404 else None,
        )

        def authenticated(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if not environ.get("HTTP_X_USER"):
                return answer(start_response, "401 Unauthorized")
            return safe(environ, start_response)

        self.safe: Any = safe
        return authenticated

    def flask(self) -> Any:
        probe, app = self.probe, flask.Flask("probe")
        safe = self.safe = FlaskIdempotency(
            store=self.store,
            scope=self.scope or (lambda: flask.request.headers["X-User"]),
            policy=self.policy,
            observer=self.events.append,
        )

        @app.before_request
        def authenticated() -> Any:
            return None if flask.request.headers.get("X-User") else ("", 401)

        def work(name: str = "") -> Any:
            body = flask.request.get_data()
            try:
                status, lines, pieces = probe.run(body, safe.current)
            except HttpError as error:
                refusal = HTTPException("refused")
                refusal.code = error.status
                raise refusal from None
            response = flask.Response(pieces, status, list(lines))
            if probe.closed is not None:
                response.call_on_close(probe.closed)
            return response

        methods = sorted(self.policy.methods)
        for number, path in enumerate(ROUTES):
            app.add_url_rule(path, str(number), safe.operation(name=path)(work), methods=methods)
        app.register_error_handler(MappedError, lambda error: ("mapped", 409))
        safe.init_app(app)
        return app

    def falcon(self) -> Any:
        probe = self.probe
        safe = self.safe = FalconIdempotency(
            self.store,
            scope=self.scope or (lambda req: req.context.user),
            policy=self.policy,
            observer=self.events.append,
        )

        class Authentication:
            def process_request(self, req: Any, resp: Any) -> None:
                req.context.user = req.get_header("X-User")
                if not req.context.user:
                    raise falcon.HTTPUnauthorized

        def work(resource: Any, req: Any, resp: Any, name: str = "") -> None:
            length = req.env.get("CONTENT_LENGTH")
            body = req.bounded_stream.read() if length else req.stream.read()
            try:
                status, lines, pieces = probe.run(body, safe.current(req))
            except HttpError as error:
                raise falcon.HTTPError(error.status) from None
            resp.status = status
            for header, line in lines:
                if header.lower() == "content-type":
                    resp.content_type = line
                else:
                    resp.append_header(header, line)
            if isinstance(pieces, bytes):
                resp.data = pieces
            else:
                resp.stream = pieces
            if probe.closed is not None:
                resp.stream = Closing([resp.data] if isinstance(pieces, bytes) else pieces, probe.closed)
                resp.data = None

        def mapped(req: Any, resp: Any, error: Exception, params: Any) -> None:
            resp.status, resp.text = 409, "mapped"

        app = falcon.App(middleware=[Authentication()])
        app.add_error_handler(MappedError, mapped)
        for path in ROUTES:
            responder = safe.operation(name=path)(work)
            resource = type("Work", (), {f"on_{method.lower()}": responder for method in self.policy.methods})()
            app.add_route(path.replace("<", "{").replace(">", "}"), resource)
        return safe.protect(app)


def answer(start_response: Any, status: str) -> Iterable[bytes]:
    start_response(status, [("Content-Length", "0")])
    return [b""]


# --- the server ------------------------------------------------------------------------------------------------------


def request(
    *,
    method: str = "POST",
    path: str = "/jobs",
    raw: str | None = None,
    query: str = "",
    key: str | None = "k-0001-0001-0001",
    user: str = "ada",
    headers: Lines = (),
    content_type: str = "application/json",
    body: bytes = b'{"amount": 1}',
    stream: Any = None,
    length: str | None = "",
    terminated: bool = False,
) -> dict[str, Any]:
    """An environ. `length` None is a chunked request; "" is the body's own."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "SERVER_NAME": "test",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": content_type,
        "HTTP_HOST": "test",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(body) if stream is None else stream,
        "wsgi.errors": Errors(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    if length is None:
        environ["HTTP_TRANSFER_ENCODING"] = "chunked"
    else:
        environ["CONTENT_LENGTH"] = length or str(len(body))
    if terminated:
        environ["wsgi.input_terminated"] = True
    if raw is not None:
        environ["RAW_URI"] = raw
    if key is not None:
        environ["HTTP_IDEMPOTENCY_KEY"] = key
    if user:
        environ["HTTP_X_USER"] = user
    for name, line in headers:
        variable = "HTTP_" + name.upper().replace("-", "_")
        environ[variable] = f"{environ[variable]},{line}" if variable in environ else line
    return environ


class Errors:
    """Where applications complain."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def writelines(self, lines: Iterable[str]) -> None:
        self.text += "".join(lines)

    def flush(self) -> None:
        """Nothing is kept back."""


class Reply:
    """What a server does with a request, and what its client gets. `after` may stop reading after so many pieces."""

    def __init__(self, app: Any, environ: dict[str, Any], *, after: int | None = None) -> None:
        self.status: int | None = None
        self.line = ""
        self.lines: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.raised: BaseException | None = None
        self.environ = environ
        result = None
        try:
            result = app(environ, self.start)
            for piece in result:
                assert self.status is not None, "a piece before start_response"
                assert type(piece) is bytes
                self.pieces.append(piece)
                if after is not None and len(self.pieces) >= after:
                    break
            assert self.status is not None, "start_response was never called"
        except BaseException as error:
            self.raised = error
        finally:
            if hasattr(result, "close"):
                try:
                    result.close()
                except Exception as error:
                    self.raised = self.raised or error

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        if exc_info is not None and self.pieces:
            raise exc_info[1]
        assert exc_info is not None or self.status is None, "start_response was called twice"
        self.status, self.line = int(status[:3]), status
        assert type(headers) is list
        self.lines = [(name.encode("latin-1"), line.encode("latin-1")) for name, line in headers]
        return self.pieces.append

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def header(self, name: str) -> str | None:
        found = [line for key, line in self.lines if key.lower() == name.encode()]
        assert len(found) <= 1, found
        return found[0].decode("latin-1") if found else None

    @property
    def replayed(self) -> bool:
        return REPLAYED in self.lines

    @property
    def own(self) -> list[tuple[bytes, bytes]]:
        """The application's own lines: without what twicesafe says on every answer, and on replays."""
        return [line for line in self.lines if line[0] not in (REPLAYED[0], b"idempotency-key-retention")]

    @property
    def kind(self) -> str:
        """The last part of the problem type."""
        assert self.header("content-type") == "application/problem+json", self.lines
        return str(json.loads(self.body)["type"]).rsplit(":", 1)[1]


__all__ = ["KINDS", "PUBLIC", "HttpError", "MappedError", "Probe", "Reply", "Subject", "request"]
