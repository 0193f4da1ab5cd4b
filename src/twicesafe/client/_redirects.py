"""Redirects within one attempt, followed as the client would, except that a key never leaves its origin."""

from __future__ import annotations

from typing import Any

from twicesafe.client._elsewhere import Onward, onward
from twicesafe.client._library import Library, library_of
from twicesafe.client._sending import origin_of


class Way:
    """The way of one attempt. `header` carries the key, or the body does; `follow` None leaves it to the client."""

    def __init__(self, client: Any, request: Any, header: str, *, in_body: bool, follow: bool | None) -> None:
        self._client = client
        self._origin = origin_of(request.url)
        self._method = request.method
        self._header = header
        self._in_body = in_body
        self._follow = client.follow_redirects if follow is None else follow
        self._history: list[Any] = []

    def told(self, request: Any) -> dict[str, Any]:
        """What the client is told of a request: elsewhere it does not say who it is, as if it followed by itself."""
        return {} if origin_of(request.url) == self._origin else {"auth": None}

    def onward(self, response: Any) -> Any:
        """The next request, or None where the response is the answer, which then knows the way it came."""
        following = response.next_request if self._follow else None
        if following is not None:
            then = onward(
                response.status_code,
                self._method,
                self._origin,
                following.method,
                origin_of(following.url),
                keyed=self._in_body or self._header in following.headers,
            )
            if then is Onward.GO_WITHOUT_KEY:
                following.headers.pop(self._header, None)
            elif then is Onward.STAY:
                following = None
        if following is None:
            response.history = [*self._history, *response.history]
            return None
        if len(self._history) >= self._client.max_redirects:
            library = library_of(self._client)
            raise library.TooManyRedirects("Exceeded maximum allowed redirects.", request=response.request)
        self._history.append(response)
        return following


def leads_nowhere(library: Library, error: Exception) -> Exception:
    """What the library says of most addresses that are none, for those of which it says something else."""
    said: Exception = library.RemoteProtocolError("Invalid URL in location header.")
    said.__cause__ = error
    return said
