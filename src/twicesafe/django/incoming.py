"""What a request of Django's says on the wire, and its body: kept for the fingerprint, handed on as it was sent."""

from __future__ import annotations

from io import BytesIO
from urllib.parse import quote

from django.conf import settings  # type: ignore[import-untyped]
from django.core.exceptions import RequestDataTooBig  # type: ignore[import-untyped]
from django.http import HttpRequest  # type: ignore[import-untyped]

from twicesafe.blocking.environ import Environ, take_body
from twicesafe.core.fingerprint import UNQUOTED
from twicesafe.errors import BodyTooLargeError, ConfigurationError, RequestError

ALREADY_READ = (
    "the request's stream was read before twicesafe could see it, so the body is gone: no middleware around it may "
    "read uploads, from request.POST or from the stream, without reading request.body first"
)


def seen(request: HttpRequest) -> Environ:
    """The request as a WSGI environ, whatever server it came by; path and query as they were sent."""
    environ: Environ = dict(request.META)
    scope = getattr(request, "scope", None)
    if scope is not None:
        raw = scope.get("raw_path")
        environ["RAW_URI"] = quote(request.path, safe=UNQUOTED) if raw is None else raw.decode("latin-1")
        query = scope.get("query_string", b"")
        environ["QUERY_STRING"] = query.decode("latin-1") if isinstance(query, bytes) else query
    elif not (environ.get("RAW_URI") or environ.get("REQUEST_URI")):
        environ["RAW_URI"] = quote(request.path, safe=UNQUOTED)
    return environ


def body_of(request: HttpRequest, limit: int) -> bytes | RequestError:
    """The whole body, or why it cannot be had. The view reads it, and what is in it, as if nobody had.

    Django's own limit holds where it does without us: for everything but uploads, by an exception of its own.
    """
    if not hasattr(request, "_body"):
        if getattr(request, "_read_started", False):
            raise ConfigurationError(ALREADY_READ)
        body = take_body(request.META, limit) if "wsgi.input" in request.META else request.read(limit + 1)
        if isinstance(body, RequestError):
            return body
        upload = request.content_type == "multipart/form-data"
        memory = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if memory is not None and memory < len(body) <= limit and not upload:
            raise RequestDataTooBig("Request body exceeded settings.DATA_UPLOAD_MAX_MEMORY_SIZE.")
        # Where Django keeps what was read, and parses forms from.
        request._body = body  # noqa: SLF001 - where Django itself keeps a body that it has read
        request._stream = BytesIO(body)  # noqa: SLF001 - likewise
        # Of a body in chunks Django would see nothing.
        request.META["CONTENT_LENGTH"] = str(len(body))
    kept: bytes = request.body
    if len(kept) > limit:
        return BodyTooLargeError(f"the body of this operation may have at most {limit} bytes")
    return kept
