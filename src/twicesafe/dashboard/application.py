"""The dashboard as an ASGI application: who may look, what is asked of it, and what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from twicesafe.dashboard import shown
from twicesafe.dashboard.asked import cookie_name, name_given, root_of
from twicesafe.dashboard.awaiting import waited_for
from twicesafe.dashboard.desk import Desk, Finder, RefusedError
from twicesafe.dashboard.live import Live
from twicesafe.dashboard.pages import ASSETS, asset, page
from twicesafe.dashboard.people import LASTS, Attempts, People, Visit, Visits
from twicesafe.dashboard.shown import Facts
from twicesafe.dashboard.tally import Tally
from twicesafe.errors import ConfigurationError, DefinitionChangedError, InvalidMessageError, ScopeError, StoreError
from twicesafe.incoming import ASGIScope, Message, Receive
from twicesafe.keyed import Send
from twicesafe.stores.contract import Store

Who = Callable[[Request], "str | Awaitable[str | None] | None"]
Handler = Callable[["Asked"], Awaitable[Response]]

TITLES: Final = {401: "Sign in first", 403: "Refused", 404: "Not found", 503: "Out of reach"}

LARGEST_FORM: Final = 1_048_576

HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-robots-tag": "noindex",
}
_LINES: Final = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Asked:
    """A request of somebody who may look."""

    def __init__(self, request: Request, visit: Visit, who: str, form: Mapping[str, str]) -> None:
        self.request = request
        self.visit = visit
        self.who = who
        self.form = form
        self.root = root_of(request.scope)
        self.query = request.query_params


class Dashboard:
    """Shows what is in a store, and lets people settle what nobody else can. Mount it, or serve it by itself.

    It is off until somebody may look. `people` are names and what hash_password() made of their passwords; `who` is a
    function of your application's, of a Starlette Request, that says who asks, or None for somebody who may not look.
    One of the two is needed, and both see all of the store.

    `store` is a blocking one, of SQLite, PostgreSQL or MySQL, and stays yours to close; give the dashboard one of its
    own (`open_store(URL)`), so that it never takes a connection from a request. `tally` is the observer of the same
    process's operations. `reconcilers` are the functions that know what became of an operation, by its name. `secret`,
    32 bytes or more, signs cookies: needed where several processes serve the dashboard. `secure` says that browsers
    come by HTTPS where the server does not know that itself.
    """

    def __init__(
        self,
        store: Store,
        *,
        people: Mapping[str, str] | None = None,
        who: Who | None = None,
        secret: str | bytes = b"",
        tally: Tally | None = None,
        reconcilers: Mapping[str, Finder] | None = None,
        secure: bool = False,
    ) -> None:
        if people and who is not None:
            raise ConfigurationError("give the dashboard people or who, not both")
        self._store = store
        self._who = who
        self._people = People(people or {})
        self._visits = Visits(self._people, secret)
        self._attempts = Attempts()
        self._door_keeper = asyncio.Lock()
        self._tally = tally
        self._secure = secure
        finders = {name: partial(self._found, finder) for name, finder in (reconcilers or {}).items()}
        self._desk = Desk(store, finders)
        self._live = Live(store, self._desk, tally)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._app = Starlette(routes=self._routes(), exception_handlers={HTTPException: self._refused})

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Any ASGI server may call it; several event loops at a time need a dashboard each."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None and self._loop.is_running():
                raise ConfigurationError("this dashboard is served by another event loop: make one for each")
            self._loop = loop
            self._door_keeper = asyncio.Lock()
            self._live.begin()

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_LINES]}
            await send(message)

        await self._app(scope, receive, guarded)

    def close(self) -> None:
        """End its streams of events, so that a server that stops need not wait for them. In the server's loop."""
        self._live.close()

    def _routes(self) -> list[Route]:
        shows = {
            "/": self._overview,
            "/records": self._records,
            "/records/{digest}": self._record,
            "/messages": self._messages,
            "/messages/{id:path}": self._message,
            "/events": self._events,
        }
        does = {
            "/find": self._find,
            "/sign-out": self._sign_out,
            "/records/{digest}/{act}": self._act,
            "/messages/{id:path}/{act}": self._act_on_message,
        }
        return [
            *[Route(f"/{name}", partial(_asset, name)) for name in ASSETS],
            Route("/sign-in", self._door),
            Route("/sign-in", self._sign_in, methods=["POST"]),
            *[Route(path, self._for_people(handler)) for path, handler in shows.items()],
            *[Route(path, self._for_people(handler), methods=["POST"]) for path, handler in does.items()],
        ]

    # --- who asks -----------------------------------------------------------------------------------------------------

    def _for_people(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visit, new = self._visit(request)
            who = visit.name
            if self._who is not None:
                found = self._who(request)
                who = name_given(await found if isawaitable(found) else found)
            if not who:
                return await self._unknown(request)
            form = await _form(request) if request.method == "POST" else {}
            if request.method == "POST":
                self._check_form(request, form, visit, who)
            try:
                response = await handler(Asked(request, visit, who, form))
            except StoreError as error:
                raise HTTPException(503, f"The store cannot be read: {error}") from None
            except InvalidMessageError:
                # Nothing has such an id.
                raise HTTPException(404) from None
            if new and self._who is not None:
                self._leave(response, request, visit)
            return response

        return answer

    async def _unknown(self, request: Request) -> Response:
        if self._who is not None:
            raise HTTPException(403, "The application does not know you, or you may not look at this.")
        if not self._people:
            return _notice(request, 403, "The dashboard is off", "Nobody may look yet.", off=True)
        if request.url.path.endswith("/events"):
            raise HTTPException(401, "Sign in first.")
        return RedirectResponse(f"{root_of(request.scope)}/sign-in", 303)

    def _visit(self, request: Request) -> tuple[Visit, bool]:
        found = self._visits.read(request.cookies.get(cookie_name(request.headers.get("host", "")), ""))
        return (self._visits.begin(), True) if found is None else (found, False)

    def _leave(self, response: Response, request: Request, visit: Visit) -> None:
        response.set_cookie(
            cookie_name(request.headers.get("host", "")),
            self._visits.cookie(visit),
            max_age=LASTS,
            path=root_of(request.scope) or "/",
            secure=self._secure or request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def _check_form(self, request: Request, form: Mapping[str, str], visit: Visit, who: str) -> None:
        """No other site's page may do anything in somebody's name."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        if site != "same-origin" or not self._visits.is_proof(form.get("proof", ""), visit, who):
            raise HTTPException(403, "This form is not of a page that was shown to you lately. Nothing was changed.")

    async def _door(self, request: Request) -> Response:
        if not self._people:
            return await self._unknown(request)
        visit, _ = self._visit(request)
        if visit.name:
            return RedirectResponse(f"{root_of(request.scope)}/", 303)
        return self._show_door(request, visit, None)

    def _show_door(self, request: Request, visit: Visit, said: Mapping[str, str] | None, status: int = 200) -> Response:
        html = page(
            "sign_in",
            root=root_of(request.scope),
            proof=self._visits.form_proof(visit, ""),
            who="",
            live=False,
            said=said,
        )
        response = Response(html, status, media_type="text/html")
        self._leave(response, request, visit)
        return response

    async def _sign_in(self, request: Request) -> Response:
        if not self._people:
            return await self._unknown(request)
        visit, _ = self._visit(request)
        form = await _form(request)
        self._check_form(request, form, visit, "")
        # By a Unix socket nobody has an address: all are one.
        address = request.client.host if request.client else "nowhere"
        wait = self._attempts.wait(address)
        if wait:
            text = f"Too many wrong passwords. The next one is looked at in {wait} s."
            response = self._show_door(request, visit, {"look": "bad", "text": text}, 429)
            response.headers["retry-after"] = str(wait)
            return response
        # Counted before it is looked at, so that many at once are no way around.
        self._attempts.wrong(address)
        name = form.get("name", "").strip()
        async with self._door_keeper:
            # Who waits here holds none of the threads that the application has, however many try.
            is_right = await run_in_threadpool(self._people.is_right, name, form.get("password", ""))
        if not is_right:
            return self._show_door(request, visit, {"look": "bad", "text": "Name and password do not match."}, 403)
        self._attempts.right(address)
        response = RedirectResponse(f"{root_of(request.scope)}/", 303)
        self._leave(response, request, self._visits.begin(name))
        return response

    async def _sign_out(self, asked: Asked) -> Response:
        self._visits.end(asked.visit)
        response = RedirectResponse(f"{asked.root}/sign-in", 303)
        response.delete_cookie(
            cookie_name(asked.request.headers.get("host", "")), path=asked.root or "/", httponly=True, samesite="strict"
        )
        return response

    # --- what is shown ------------------------------------------------------------------------------------------------

    async def _overview(self, asked: Asked) -> Response:
        sight = await self._live.sight()
        return await self._page(asked, "overview", partial(shown.overview, sight, self._tally, asked.query))

    async def _records(self, asked: Asked) -> Response:
        sight = await self._live.sight()
        return await self._page(asked, "records", partial(shown.records, sight, asked.query))

    async def _record(self, asked: Asked) -> Response:
        digest = _digest(asked.request)
        return await self._page(asked, "record", partial(shown.record, self._desk, digest, self._tally))

    async def _messages(self, asked: Asked) -> Response:
        return await self._page(asked, "messages", partial(shown.messages, self._store, asked.query))

    async def _message(self, asked: Asked) -> Response:
        return await self._page(asked, "message", partial(shown.message, self._desk, asked.request.path_params["id"]))

    async def _page(
        self, asked: Asked, name: str, facts: Callable[[], Facts], said: Mapping[str, str] | None = None
    ) -> Response:
        def made() -> str:
            return page(
                name,
                root=asked.root,
                proof=self._visits.form_proof(asked.visit, asked.who),
                who=asked.who,
                may_leave=self._who is None,
                live=True,
                said=said or shown.DONE.get(asked.query.get("done", "")),
                outbox=self._desk.waiting(),
                **{"now": self._store.now(), **facts()},
            )

        try:
            html = await run_in_threadpool(made)
        except RefusedError as error:
            raise HTTPException(404, str(error)) from None
        return Response(html, 409 if said else 200, media_type="text/html")

    async def _events(self, _: Asked) -> Response:
        if self._live.full:
            raise HTTPException(503, "Too many pages are open.")
        return StreamingResponse(
            self._live.stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    # --- what is done -------------------------------------------------------------------------------------------------

    async def _find(self, asked: Asked) -> Response:
        try:
            digest = shown.digest_of(asked.form)
        except (ScopeError, ValueError):
            # What they say may repeat it.
            raise HTTPException(
                400, "That is no key: keys are ASCII, and a scope has 255 characters at most."
            ) from None
        return RedirectResponse(f"{asked.root}/records/{digest.hex()}", 303)

    async def _act(self, asked: Asked) -> Response:
        digest, act = _digest(asked.request), asked.request.path_params["act"]
        does = partial(shown.act, self._desk, digest, act, asked.who, asked.form)
        facts = partial(shown.record, self._desk, digest, self._tally)
        response = await self._do(asked, act, does, f"/records/{digest.hex()}", "record", facts)
        await self._live.changed(digest)
        return response

    async def _act_on_message(self, asked: Asked) -> Response:
        message, act = asked.request.path_params["id"], asked.request.path_params["act"]
        does = partial(shown.act_on_message, self._desk, message, act, asked.who, asked.form)
        facts = partial(shown.message, self._desk, message)
        return await self._do(asked, act, does, f"/messages/{quote(message)}", "message", facts)

    async def _do(
        self, asked: Asked, act: str, does: Callable[[], str], address: str, name: str, facts: Callable[[], Facts]
    ) -> Response:
        """Do it, and lead to where it is seen. Where it is refused, say why on the page it came from."""
        if act not in shown.ACTS:
            raise HTTPException(404)
        try:
            came = await run_in_threadpool(does)
        except (ConfigurationError, DefinitionChangedError) as error:
            return await self._page(asked, name, facts, {"look": "bad", "text": str(error)})
        return RedirectResponse(f"{asked.root}{address}?done={came}", 303)

    def _found(self, finder: Finder, unknown: Any) -> Any:
        """What a reconciler says; called in a thread, so that one that blocks holds up nobody."""
        answer = finder(unknown)
        if not isawaitable(answer):
            return answer
        assert self._loop is not None
        return waited_for(answer, self._loop)

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = TITLES.get(error.status_code, "That did not work")
        text = "There is nothing at this address." if error.detail == "Not Found" else error.detail
        return _notice(request, error.status_code, title, text, f"{root_of(request.scope)}/")


def _notice(request: Request, status: int, title: str, text: str, back: str = "", *, off: bool = False) -> Response:
    shows = {"title": title, "text": text, "back": back, "off": off}
    html = page("notice", root=root_of(request.scope), who="", live=False, said=None, **shows)
    return Response(html, status, media_type="text/html")


async def _asset(name: str, _: Request) -> Response:
    return Response(asset(name), media_type=ASSETS[name])


def _digest(request: Request) -> bytes:
    text = request.path_params["digest"]
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 32 or found.hex() != text:
        raise HTTPException(404)
    return found


async def _form(request: Request) -> dict[str, str]:
    came = bytearray()
    async for piece in request.stream():
        came += piece
        if len(came) > LARGEST_FORM:
            raise HTTPException(413, "The form is too large.")
    try:
        return dict(parse_qsl(came.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        raise HTTPException(400, "The form has too many fields.") from None
