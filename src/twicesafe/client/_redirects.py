"""Redirects within one attempt, followed as the client would, except that a key never leaves its origin."""

from __future__ import annotations

from typing import Any

from twicesafe.client._library import library_of
from twicesafe.client._underway import origin_of


class Way:
    """The way of one attempt. `header` carries the key; `follow` None leaves it to the client."""

    def __init__(self, client: Any, request: Any, header: str, *, follow: bool | None) -> None:
        self._client = client
        self._origin = origin_of(request.url)
        self._method = request.method
        self._header = header
        self._follow = client.follow_redirects if follow is None else follow
        self._history: list[Any] = []

    def onward(self, response: Any) -> Any:
        """The next request, or None where the response is the answer, which then knows the way it came."""
        following = response.next_request
        if (
            following is None
            or not self._follow
            or self._would_lose_the_question(response, following)
            or self._would_carry_it_off(following)
        ):
            response.history = [*self._history, *response.history]
            return None
        if len(self._history) >= self._client.max_redirects:
            library = library_of(self._client)
            raise library.TooManyRedirects("Exceeded maximum allowed redirects.", request=response.request)
        self._history.append(response)
        return following

    def _would_lose_the_question(self, response: Any, following: Any) -> bool:
        """Whether a page would be fetched instead of the effect: a 302 to a login, answered 200, is nothing done.

        303 alone says that the effect was had and where to look at it.
        """
        return bool(following.method != self._method and response.status_code != 303)

    def _would_carry_it_off(self, following: Any) -> bool:
        """Whether the effect itself would go to another origin, where its key names nothing. It is not sent there."""
        if origin_of(following.url) == self._origin or self._header not in following.headers:
            return False
        if following.method not in ("GET", "HEAD"):
            return True
        del following.headers[self._header]
        return False
