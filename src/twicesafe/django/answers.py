"""Responses of Django's as header lines, and header lines as responses."""

from __future__ import annotations

from collections.abc import Iterable
from http.cookies import Morsel
from typing import Any, Final

from django.http import HttpResponse, StreamingHttpResponse  # type: ignore[import-untyped]

from twicesafe.core.record import HeaderLines

SET_COOKIE: Final = b"set-cookie"


def lines_of(response: Any) -> HeaderLines:
    """The header lines that Django's handlers would send."""
    return (
        *[(name.encode("ascii"), value.encode("latin-1")) for name, value in response.items()],
        *[(b"Set-Cookie", cookie.OutputString().encode("latin-1")) for cookie in response.cookies.values()],
    )


def answer(status: int, headers: HeaderLines, body: bytes) -> Any:
    """A response that is sent with exactly these lines, as far as no layer around adds to them."""
    response = HttpResponse(body, status=status)
    del response.headers["Content-Type"]
    add(response, headers)
    return response


def flowing(response: Any, headers: HeaderLines, pieces: Iterable[bytes]) -> Any:
    """A response of these lines and pieces, with the status and the cookies of the one that they are of.

    Another object: the pieces of the old one hold on to it, and whoever loses the new one has to be found out.
    """
    made = StreamingHttpResponse(pieces, status=response.status_code, reason=response.reason_phrase)
    made.cookies = response.cookies
    rewrite(made, headers)
    return made


def rewrite(response: Any, headers: HeaderLines) -> None:
    """Give a response these lines, those of cookies apart, which it has: what every answer says besides is among them,
    and stands where it stands in a replay."""
    for name in list(response.headers):
        del response.headers[name]
    add(response, tuple([line for line in headers if line[0].lower() != SET_COOKIE]))


def add(response: Any, headers: HeaderLines) -> None:
    """Lines of one name become one, which means the same (RFC 9110, 5.3); those of cookies stay apart."""
    for name, line in headers:
        text = line.decode("latin-1")
        if name.lower() == SET_COOKIE:
            cookie = _Sent(text)
            dict.__setitem__(response.cookies, f"{len(response.cookies)} {cookie.key}", cookie)
            continue
        title = name.decode("ascii")
        before = response.headers.get(title)
        response.headers[title] = text if before is None else f"{before}, {text}"


class _Sent(Morsel[str]):
    """A cookie's line as it was sent, which no parsing and writing anew would keep byte for byte."""

    def __init__(self, line: str) -> None:
        super().__init__()
        name, _, value = line.partition(";")[0].partition("=")
        # Past the checks of Morsel.set: it was sent like this before.
        self._key, self._value, self._coded_value = name.strip(), value.strip(), value.strip()
        self._line = line

    def OutputString(self, attrs: Any = None) -> str:  # noqa: ARG002, N802 - of Morsel
        return self._line


def joined(pieces: Iterable[bytes]) -> bytes:
    """A body in one piece."""
    whole = list(pieces)
    return whole[0] if len(whole) == 1 else b"".join(whole)
