"""A client for tests: gives each intent its key, sends it as the worst network would, and looks at the answers.

    with IdempotentClient(app) as client:
        client.twice("/charges", json={"cents": 500})

What was done is not to be seen in answers: put it into `assert_one_effect`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

from twicesafe.errors import ConfigurationError
from twicesafe.testing.intents import IntentBrokenError, Journal, TriedIntent, shortened
from twicesafe.testing.served import ResponseDropper, Served, Target

__all__ = ["AsyncIdempotentClient", "IdempotentClient", "ResponseDropper", "Target", "Tried"]

R = TypeVar("R")

Response: TypeAlias = Any
"""An httpx2.Response."""

LATER: Final = frozenset({408, 409, 425, 429, 503})
"""What a duplicate may be answered while the first attempt is at work: come again."""

BODIES: Final = frozenset({"json", "content", "data", "files"})
"""The ways to give a body."""


class Tried(NamedTuple):
    """What came of an intent: its key, and all answers in the order of its attempts, dropped ones included."""

    key: str
    answers: tuple[Response, ...]

    @property
    def first(self) -> Response:
        return self.answers[0]

    @property
    def last(self) -> Response:
        return self.answers[-1]


class AsyncIdempotentClient:
    """An asynchronous context around an ASGI or WSGI application, or a server at a base URL.

    `header` carries the key, `make_key` makes one for each intent, `headers` go with every request. Each method tries
    one intent, a POST unless `method` says otherwise, and takes what httpx2 makes requests of: `json`, `content`,
    `headers`, `params`. It raises IntentBrokenError where the answers are not those of one intent. Success is an answer
    below 400, or the one that `status` says.
    """

    def __init__(
        self,
        target: Target,
        *,
        header: str = "Idempotency-Key",
        make_key: Callable[[], str] = lambda: str(uuid4()),
        headers: Mapping[str, str] | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._served = Served(target)
        self._header = header
        self._make_key = make_key
        self._headers = dict(headers or {})
        self.journal: Journal = [] if journal is None else journal

    async def __aenter__(self) -> AsyncIdempotentClient:
        await self._served.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._served.__aexit__(kind, error, traceback)

    async def once(
        self, url: str, *, method: str = "POST", key: str | None = None, status: int | None = None, **options: Any
    ) -> Tried:
        """One attempt."""
        trial = self._begin(method, url, key, status, options)
        return trial.done(await trial.succeed())

    async def twice(
        self, url: str, *, method: str = "POST", key: str | None = None, status: int | None = None, **options: Any
    ) -> Tried:
        """One attempt, and when it is answered the same again: the second answer is the first, byte for byte."""
        trial = self._begin(method, url, key, status, options)
        first = await trial.succeed()
        return trial.done(first, await trial.repeat(first))

    async def at_once(
        self,
        times: int,
        url: str,
        *,
        method: str = "POST",
        key: str | None = None,
        status: int | None = None,
        **options: Any,
    ) -> Tried:
        """As many attempts at the same time, and one when all are answered.

        Each gets the one answer, or is told to come again; the last one gets the answer.
        """
        if times < 2:
            raise ConfigurationError(f"there are 2 attempts at the same time at least, not {times}")
        trial = self._begin(method, url, key, status, options)
        answers = await asyncio.gather(*(trial.attempt() for _ in range(times)))
        final = await trial.succeed("after all others were answered")
        for number, answer in enumerate(answers, 1):
            if trial.is_success(answer):
                trial.check_same(final, answer, f"attempt {number}")
            elif answer.status_code not in LATER:
                raise trial.broken(f"attempt {number} is neither given the one answer nor told to come again")
        return trial.done(*answers, final)

    async def lost_answer(
        self, url: str, *, method: str = "POST", key: str | None = None, status: int | None = None, **options: Any
    ) -> Tried:
        """One attempt whose answer is lost after all was done, and the retry of a client that never saw it.

        The retry is given the answer that was lost.
        """
        trial = self._begin(method, url, key, status, options)
        lost = await trial.succeed("and the answer was lost")
        return trial.done(lost, await trial.repeat(lost))

    async def changed(
        self,
        url: str,
        to: Mapping[str, Any],
        *,
        method: str = "POST",
        key: str | None = None,
        status: int | None = None,
        **options: Any,
    ) -> Tried:
        """One attempt, then the same key with what `to` changes (`{"json": {...}}`), then the first request again.

        The changed one is refused, whoever's mistake it is; the first keeps its answer.
        """
        trial = self._begin(method, url, key, status, options)
        first = await trial.succeed()
        other = await trial.attempt("changed", to)
        if not 400 <= other.status_code < 500:
            raise trial.broken("the key was used for another request, and that was not refused")
        return trial.done(first, other, await trial.repeat(first))

    def _begin(self, method: str, url: str, key: str | None, status: int | None, options: dict[str, Any]) -> _Trial:
        key = self._make_key() if key is None else key
        headers = {**self._headers, **(options.pop("headers", None) or {}), self._header: key}
        return _Trial(self._served, self.journal, method, url, key, status, {**options, "headers": headers})


class _Trial:
    """One intent under way."""

    def __init__(
        self,
        served: Served,
        journal: Journal,
        method: str,
        url: str,
        key: str,
        status: int | None,
        options: dict[str, Any],
    ) -> None:
        self._served = served
        self._asked = (method, url)
        self._options = options
        self._status = status
        request = served.request(method, url, **options)
        asked = f"{method} {request.url.raw_path.decode()} {shortened(request.read())}".rstrip()
        self.intent = TriedIntent(len(journal) + 1, asked, key)
        journal.append(self.intent)

    async def attempt(self, note: str = "", changes: Mapping[str, Any] | None = None) -> Response:
        number = len(self.intent.attempts)
        self.intent.attempts.append("not answered")
        if "headers" in (changes or {}):
            raise ConfigurationError("headers do not make it another request: change the json, the content, the params")
        options = self._options if changes is None else self._changed(changes)
        try:
            response = await self._served.answer(self._served.request(*self._asked, **options))
        except Exception as error:
            self.intent.attempts[number] = f"failed with {error!r}"
            raise
        self.intent.attempts[number] = _shown(response, note)
        return response

    def _changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        # A body takes the place of whatever body there was.
        gone = BODIES if BODIES & changes.keys() else frozenset()
        return {**{name: value for name, value in self._options.items() if name not in gone}, **changes}

    def is_success(self, response: Response) -> bool:
        found: int = response.status_code
        return found < 400 if self._status is None else found == self._status

    async def succeed(self, note: str = "") -> Response:
        response = await self.attempt(note)
        if not self.is_success(response):
            wanted = "a success" if self._status is None else str(self._status)
            number = len(self.intent.attempts)
            raise self.broken(f"attempt {number} was answered {response.status_code} and not {wanted}")
        return response

    async def repeat(self, first: Response) -> Response:
        again = await self.attempt()
        self.check_same(first, again, f"attempt {len(self.intent.attempts)}")
        return again

    def check_same(self, first: Response, again: Response, name: str) -> None:
        differing = [
            what
            for what, one, other in (
                ("status", first.status_code, again.status_code),
                ("body", first.content, again.content),
                ("content type", first.headers.get("content-type"), again.headers.get("content-type")),
                ("location", first.headers.get("location"), again.headers.get("location")),
            )
            if one != other
        ]
        if differing:
            raise self.broken(f"{name} got another answer than the one there is: the {', '.join(differing)}")

    def broken(self, what: str) -> IntentBrokenError:
        return IntentBrokenError(f"{what}\n\n{self.intent}")

    def done(self, *answers: Response) -> Tried:
        return Tried(self.intent.key, answers)


def _shown(response: Response, note: str) -> str:
    replayed = "a replay" if response.headers.get("idempotent-replayed") == "true" else ""
    notes = ", ".join(filter(None, (replayed, note)))
    return f"{response.status_code} {shortened(response.content)}".rstrip() + (f" ({notes})" if notes else "")


class IdempotentClient:
    """AsyncIdempotentClient, for tests that block. The application runs in a thread that has an event loop."""

    def __init__(
        self,
        target: Target,
        *,
        header: str = "Idempotency-Key",
        make_key: Callable[[], str] = lambda: str(uuid4()),
        headers: Mapping[str, str] | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.journal: Journal = [] if journal is None else journal
        self._client = AsyncIdempotentClient(
            target, header=header, make_key=make_key, headers=headers, journal=self.journal
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> IdempotentClient:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="application under test", daemon=True)
        self._thread.start()
        try:
            self._run(self._client.__aenter__)
        except BaseException:
            self._end(self._loop)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._loop is not None
        try:
            self._run(lambda: self._client.__aexit__(kind, error, traceback))
        finally:
            self._end(self._loop)

    def once(self, url: str, **options: Any) -> Tried:
        """See AsyncIdempotentClient.once."""
        return self._run(lambda: self._client.once(url, **options))

    def twice(self, url: str, **options: Any) -> Tried:
        """See AsyncIdempotentClient.twice."""
        return self._run(lambda: self._client.twice(url, **options))

    def at_once(self, times: int, url: str, **options: Any) -> Tried:
        """See AsyncIdempotentClient.at_once."""
        return self._run(lambda: self._client.at_once(times, url, **options))

    def lost_answer(self, url: str, **options: Any) -> Tried:
        """See AsyncIdempotentClient.lost_answer."""
        return self._run(lambda: self._client.lost_answer(url, **options))

    def changed(self, url: str, to: Mapping[str, Any], **options: Any) -> Tried:
        """See AsyncIdempotentClient.changed."""
        return self._run(lambda: self._client.changed(url, to, **options))

    def _run(self, begin: Callable[[], Awaitable[R]]) -> R:
        if self._loop is None:
            raise ConfigurationError("the client is a context: `with IdempotentClient(app) as client:`")

        async def awaited() -> R:
            return await begin()

        under_way: Future[R] = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        return under_way.result()

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        async def finish() -> None:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await loop.shutdown_asyncgens()
            await loop.shutdown_default_executor()

        self._run(finish)
        self._loop = None
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()
