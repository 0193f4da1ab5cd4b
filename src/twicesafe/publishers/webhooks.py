"""Messages to whoever waits for them behind a URL, by httpx2: signed as Standard Webhooks has it, once per try.

Headers are those of CloudEvents' binding to HTTP (`ce-id` and so on). `Idempotency-Key` and `webhook-id` are the
message's id, the same for every try; the timestamp and with it the signature are made anew for each. In `webhook-id`
dots are percent-encoded where a number stands behind one, because that could be taken for the timestamp.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpx2

from twicesafe.core.message import Message, ce_headers
from twicesafe.core.retry_after import retry_after
from twicesafe.core.signatures import read_secrets, sign, signable
from twicesafe.errors import NotDeliveredError, RefusedError
from twicesafe.publishers.destinations import Destination, naming, seconds
from twicesafe.publishers.public_addresses import public_address

__all__ = ["REFUSALS", "WebhookPublisher"]

DEFAULT_TIMEOUT: Final = timedelta(seconds=15)
"""From the look-up of the name to the end of the answer. Standard Webhooks recommends 15 to 30 seconds."""

REFUSALS: Final = frozenset({400, 410, 411, 413, 414, 415, 422, 431, 451})
"""Answers that say: this message, or any, is not wanted here. Another try would be answered likewise.

Everything else is tried again: 401, 403, 404 and 405 are what a receiver answers whose secret, route or release is
being changed, and a redirect is a wrong URL in the configuration.
"""

_ANSWER_READ: Final = 64 * 1024
"""Bytes of an answer that are read, so that the connection can be used again. Nothing is done with them."""


class WebhookPublisher:
    """A Publisher to one URL, or to what a function of the message says. Belongs to one event loop.

    `secrets`: one, or several while they are changed. 2xx is an acknowledgement; what is in `refuses` raises
    RefusedError, everything else NotDeliveredError, with the Retry-After that the receiver gave. Redirects are not
    followed. `public_only` refuses receivers at private addresses: for URLs that come from users; each message then has
    a connection of its own. `headers` are more to send. `client` is an httpx2.AsyncClient of yours, which stays yours
    to close, and with `public_only` has no HTTP/2. `clock`: seconds since the Unix epoch.
    """

    def __init__(
        self,
        url: Destination,
        *,
        secrets: str | Iterable[str],
        timeout: timedelta = DEFAULT_TIMEOUT,
        refuses: frozenset[int] = REFUSALS,
        public_only: bool = False,
        headers: Mapping[str, str] | None = None,
        client: httpx2.AsyncClient | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = naming("url", url)
        self._secrets = read_secrets(secrets)
        self._timeout = seconds(timeout)
        self._refuses = refuses
        self._public_only = public_only
        self._headers = list((headers or {}).items())
        self._clock = clock
        self._own = client is None
        # Nothing of one receiver's comes to another, nor is kept.
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        self._client = client or httpx2.AsyncClient(timeout=self._timeout, cookies=no_cookies)

    async def publish(self, message: Message) -> None:
        """Returns when the receiver has answered 2xx."""
        url = self._url(message)
        try:
            async with asyncio.timeout(self._timeout):
                request = await self._request(url, message)
                status, headers = await self._answer(request)
        except TimeoutError as error:
            raise NotDeliveredError(f"the webhook was not answered within {self._timeout:g} s") from error
        except httpx2.InvalidURL as error:
            raise RefusedError("the webhook's URL is none") from error
        except httpx2.HTTPError as error:
            raise NotDeliveredError(f"the webhook was not answered: {type(error).__name__}") from error
        if 200 <= status < 300:
            return
        if status in self._refuses:
            raise RefusedError(f"the webhook was answered {status}: its receiver does not want it")
        if 300 <= status < 400:
            raise NotDeliveredError(f"the webhook was answered {status}, and redirects are not followed: mend the URL")
        raise NotDeliveredError(f"the webhook was answered {status}", retry_after(headers, self._clock()))

    async def aclose(self) -> None:
        """Close the connections that are this publisher's own. Nothing can be published after that."""
        if self._own:
            await self._client.aclose()

    async def _request(self, url: str, message: Message) -> httpx2.Request:
        event = ce_headers(message)
        # As a header can carry it.
        message_id = dict(event)["ce-id"]
        lines = [
            *self._headers,
            *event,
            ("idempotency-key", message_id),
            *sign(self._secrets, signable(message_id), int(self._clock()), message.data),
        ]
        where = httpx2.URL(url)
        if where.scheme not in ("http", "https") or not where.host:
            raise RefusedError("the webhook's URL is not http or https")
        extensions: dict[str, Any] = {}
        if self._public_only:
            # The name is looked up once, and what was found is what is connected to.
            host = where.raw_host.decode("ascii")
            address = await public_address(host, where.port or (443 if where.scheme == "https" else 80))
            # A connection is known by the address alone, and another host's message must not go by this one's.
            lines += [("host", where.netloc.decode("ascii")), ("connection", "close")]
            extensions["sni_hostname"] = host
            where = where.copy_with(host=address)
        return self._client.build_request("POST", where, content=message.data, headers=lines, extensions=extensions)

    async def _answer(self, request: httpx2.Request) -> tuple[int, list[tuple[bytes, bytes]]]:
        response = await self._client.send(request, stream=True, follow_redirects=False)
        try:
            if not response.is_stream_consumed:
                await _read(response)
        except httpx2.HTTPError:
            if not response.is_success:
                raise
            # The answer's end is lost, and what it says was said.
        finally:
            await response.aclose()
        return response.status_code, list(response.headers.raw)


async def _read(response: httpx2.Response) -> None:
    read = 0
    async for piece in response.aiter_raw():
        read += len(piece)
        if read > _ANSWER_READ:
            return
