"""What a trial works with: requests within limits, the effects they had, and a record of everything that passed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.findings import Answer, Effects, Exchange, Lines, Request
from twicesafe.conformance.limits import Limits, OutOfBoundsError
from twicesafe.conformance.profiles import Profile
from twicesafe.conformance.proxy import LosingProxy
from twicesafe.conformance.retry_after import named_wait
from twicesafe.conformance.target import Target, Template
from twicesafe.conformance.templates import KEY, Intent, new_intent
from twicesafe.conformance.wire import NoAnswerError, connected, find, written

USER_AGENT: Final = f"twicesafe-check/{version('twicesafe')}"


@dataclass(frozen=True, slots=True)
class Known:
    """What was learned of the target before the trials."""

    seconds: float
    """How long the plain request takes."""
    telling: bool
    """Whether the answers to two intents with the same parameters differ, so that an answer tells whose it is."""


class Bench:
    """One trial's own. Only `together` and `begin` send from other threads."""

    def __init__(self, target: Target, profile: Profile, limits: Limits, requests: int, known: Known) -> None:
        self.target = target
        self.profile = profile
        self.limits = limits
        self.known = known
        self.sent = 0
        """Requests of this trial, those that count effects included."""
        self._spent = 0
        self._most = requests
        self._began = time.monotonic()
        self._exchanges: list[Exchange] = []
        self._starts: dict[str, int] = {}
        self._counted: dict[str, Effects] = {}
        self._recording = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=limits.parallel + 1)

    def close(self) -> None:
        """Wait for whatever is still on its way."""
        self._pool.shutdown(cancel_futures=True)

    @property
    def evidence(self) -> tuple[Exchange, ...]:
        """Everything that passed, in the order in which it began."""
        with self._recording:
            return tuple(sorted(self._exchanges, key=lambda one: one.began))

    @property
    def seconds(self) -> float:
        """Since the trial began."""
        return time.monotonic() - self._began

    # --- requests -----------------------------------------------------------------------------------------------------

    def intent(self) -> Intent:
        """A new one. Where effects are counted for all together, those so far are counted now."""
        intent = new_intent(self.target.key)
        counter = self.target.counter
        if counter is not None and not counter.per_intent:
            self._starts[intent.unique] = counter.count(intent, self._fetch, self.limits.answer)
        return intent

    def request(self, intent: Intent, template: Template | None = None, caller: Lines = ()) -> Request:
        """The request of an intent: the plain one, or that of another template, by the usual caller or another."""
        return (template or self.target.request).with_lines(caller).fill(intent)

    def with_key(self, request: Request, key: str) -> Request:
        """The request with another key, where its header is described: in quotes, say."""
        described = next(value for name, value in self.target.request.lines if name == self.target.header)
        return self.rewritten(request, KEY.sub(lambda _: key, described))

    def rewritten(self, request: Request, key: str) -> Request:
        """The request with the value of the key's header line as given, quotes, blanks and all."""
        name = self.target.header.lower()
        lines = tuple((found, key if found.lower() == name else value) for found, value in request.lines)
        return request._replace(lines=lines)

    def prepare(self, template: Template | None, intent: Intent, caller: Lines = ()) -> None:
        """Send what a template wants sent before itself."""
        if template is not None and template.before is not None:
            self.order(template.before.with_lines(caller), intent)

    def reach(self, template: Template, intent: Intent, ended: Callable[[], bool]) -> None:
        """Wait until the target says that a template's request is at work, or it has `ended` before."""
        assert template.reached is not None, "it was asked for"
        asking = template.reached.fill(intent)
        while not ended() and not self._fetch(asking).succeeded:
            self.wait(_GLANCE)

    def let_go(self, template: Template | None, intent: Intent) -> None:
        """Send what a template wants sent while it is running."""
        if template is not None and template.after is not None:
            self.order(template.after, intent)

    def order(self, template: Template, intent: Intent) -> None:
        """Send what the description wants sent, for its own sake. CannotCheckError where it is refused."""
        self._spend()
        request = template.fill(intent)
        answer = self._recorded(request, "by order of the target's description")
        if answer.status >= 400:
            raise CannotCheckError(f"{request.method} {template.url} answered {answer.status}")

    def send(self, request: Request, note: str = "") -> Answer:
        """Send a request and wait for its answer. NoAnswerError where none comes."""
        self._spend()
        return self._recorded(request, note)

    def begin(self, request: Request, note: str = "") -> Future[Answer]:
        """Send a request and go on while it is running."""
        self._spend()
        return self._pool.submit(self._recorded, request, note)

    def together(self, requests: Sequence[Request]) -> list[Answer | None]:
        """Send requests at the same moment: each is delivered up to its last byte, and the last bytes go together."""
        ready = threading.Barrier(len(requests))
        for _ in requests:
            self._spend()

        def one(request: Request) -> Answer | None:
            try:
                return self._recorded(request, "", ready)
            except NoAnswerError:
                ready.abort()
                return None

        return list(self._pool.map(one, requests))

    def cut(self, request: Request, *, chunked: bool = False) -> None:
        """Send the head and half of the body, and hang up."""
        self._spend()
        place = find(request.url, anywhere=self.limits.anywhere)
        head, body = written(request, place, chunked=chunked)
        part = body[: len(body) // 2]
        began = self.seconds
        with connected(place, self._left()) as connection:
            connection.send(head + part)
            connection.answered(_MOMENT)
            connection.hang_up()
        note = f"hung up after {len(part)} of {len(body)} bytes of the body{', in chunks' if chunked else ''}"
        self._note(Exchange(self._dressed(request), None, began, self.seconds - began, note))

    def abandon(self, request: Request, seconds: float, until: Callable[[Callable[[], bool]], None] | None) -> bool:
        """Send a request whole and hang up after so long, or when `until` is done, which is told how to see its end.

        Whether it was still running then.
        """
        self._spend()
        request = self._dressed(request)
        place = find(request.url, anywhere=self.limits.anywhere)
        head, body = written(request, place)
        began = self.seconds
        with connected(place, self._left()) as connection:
            connection.send(head + body)
            if until is not None:
                until(lambda: connection.answered(0.0))
            answered = connection.answered(0.0 if until is not None else seconds)
            connection.hang_up()
        took = self.seconds - began
        note = "hung up when the answer had begun" if answered else f"hung up after {took:.2f} s, without an answer"
        self._note(Exchange(request, None, began, took, note))
        return not answered

    def lose(self, request: Request) -> Answer:
        """Send a request over a network that loses the answer, and return the answer that was lost."""
        self._spend()
        request = self._dressed(request)
        place = find(request.url, anywhere=self.limits.anywhere)
        began = self.seconds
        with LosingProxy(place, request, self._left()) as proxy, connected(proxy.place, self._left()) as connection:
            connection.send(b"".join(written(request, place)))
            try:
                connection.answer(request.method)
            except NoAnswerError as error:
                reason = str(error)
            else:
                reason = ""
        note = f"the answer was dropped on its way: {reason}"
        self._note(Exchange(request, proxy.lost, began, self.seconds - began, note))
        if proxy.lost is None:
            raise NoAnswerError(proxy.reason or "the target gave no answer")
        return proxy.lost

    def final(self, request: Request) -> Answer:
        """Send a request again and again until it is no longer told that the first one is in progress.

        It waits as it is told to. OutOfBoundsError where that would take too long.
        """
        patience = self.seconds + _PATIENCE + 3 * self.known.seconds
        while True:
            answer = self.send(request)
            silent = answer.status in _BUSY | self.profile.in_progress and self.seconds < patience
            if not self.in_progress(answer) and not silent:
                return answer
            self.wait(named_wait(answer) or _PAUSE)

    def in_progress(self, answer: Answer) -> bool:
        """Whether it says to come back with the same request, and not that the outcome is unknown."""
        if b"unknown" in answer.body:
            return False
        if answer.status not in _BUSY | self.profile.in_progress:
            return False
        return bool(answer.value("Retry-After")) or any(word in answer.body for word in _AT_WORK)

    def wait(self, seconds: float) -> None:
        """Let time pass. OutOfBoundsError where there is not so much of it."""
        if seconds >= self.limits.trial - self.seconds:
            raise OutOfBoundsError(f"it would have had to wait {seconds:.0f} s more")
        time.sleep(seconds)

    # --- effects ------------------------------------------------------------------------------------------------------

    @property
    def effects(self) -> Effects | None:
        """All that was counted; None where nothing was."""
        if not self._counted:
            return None
        counted = self._counted.values()
        return Effects(sum(one.counted for one in counted), sum(one.expected for one in counted))

    def counts_all(self, caller: Lines) -> bool:
        """Whether the usual count has another caller's effects in it."""
        counter = self.target.counter
        return counter is not None and counter.for_caller(caller) == counter

    def count(self, intents: Sequence[Intent], expected: int = 1, caller: Lines = ()) -> int | None:
        """How often the work of these intents was done, together; None where nobody tells.

        What was `expected` is only written down. Intents with the same parameters count as one.
        """
        counter = self.target.counter
        if counter is None:
            return None
        counter = counter.for_caller(caller)
        alike = {intent.unique: intent for intent in intents}
        if counter.per_intent:
            counted = sum(counter.count(intent, self._fetch, self.limits.answer) for intent in alike.values())
        else:
            started = min(self._starts[unique] for unique in alike)
            counted = counter.count(intents[0], self._fetch, self.limits.answer) - started
        self._counted[" ".join([*alike, *(value for _, value in caller)])] = Effects(counted, expected)
        return counted

    # --- within -------------------------------------------------------------------------------------------------------

    def _fetch(self, request: Request) -> Answer:
        """For counters: recorded by nobody, and not in the trial's own time, because every verdict needs it."""
        request = self._dressed(request)
        place = find(request.url, anywhere=self.limits.anywhere)
        self.sent += 1
        try:
            with connected(place, self.limits.answer) as connection:
                connection.send(b"".join(written(request, place)))
                return connection.answer(request.method)
        except NoAnswerError as error:
            raise CannotCheckError(f"effects cannot be counted: {error}") from error

    def _recorded(self, request: Request, note: str, ready: threading.Barrier | None = None) -> Answer:
        request = self._dressed(request)
        place = find(request.url, anywhere=self.limits.anywhere)
        began = self.seconds
        try:
            with connected(place, self._left()) as connection:
                data = b"".join(written(request, place))
                if ready is not None:
                    connection.send(data[:-1])
                    ready.wait(self._left())
                    began = self.seconds
                    data = data[-1:]
                connection.send(data)
                answer = connection.answer(request.method)
        except (NoAnswerError, threading.BrokenBarrierError) as error:
            said = str(error) or "others of the same moment found no connection"
            self._note(Exchange(request, None, began, self.seconds - began, f"{note}; {said}" if note else said))
            raise NoAnswerError(said, getattr(error, "part", b"")) from error
        self._note(Exchange(request, answer, began, self.seconds - began, note))
        return answer

    def _note(self, exchange: Exchange) -> None:
        with self._recording:
            self._exchanges.append(exchange)

    def _dressed(self, request: Request) -> Request:
        if request.values("User-Agent"):
            return request
        return request._replace(lines=(("User-Agent", USER_AGENT), *request.lines))

    def _spend(self) -> None:
        if self._spent >= self._most:
            raise OutOfBoundsError(f"it may send {self._most} requests and would need more")
        self._left()
        self._spent += 1
        self.sent += 1

    def _left(self) -> float:
        left = self.limits.trial - self.seconds
        if left <= 0:
            raise OutOfBoundsError(f"it may take {self.limits.trial:.0f} s and would need more")
        return min(self.limits.answer, left)


_MOMENT: Final = 0.05
"""Seconds for a server to read what was sent before it is hung up on."""
_BUSY: Final = frozenset({409, 423, 425, 429, 503})
"""Statuses that may mean that the first attempt is in progress, and may mean something else."""
_AT_WORK: Final = (b"in-progress", b"in progress", b"in_progress", b"outstanding", b"being processed", b"in-flight")
_PATIENCE: Final = 2.0
"""Seconds for which such a status is taken for that where nothing else says so."""
_GLANCE: Final = 0.05
"""Seconds until asking again whether a request is at work."""
_PAUSE: Final = 0.25
"""Seconds until asking again where nobody says."""
