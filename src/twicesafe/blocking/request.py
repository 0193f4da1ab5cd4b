"""One keyed request under a blocking framework: what stands between the application and whoever sends its answer.

A shell enters before the handler runs and shows what it answered, or raised, before a byte of it is sent; what it gets
back is recorded. All decisions are core.exchange's, which `dealings` drives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from twicesafe.blocking.dealings import Dealings, Shared
from twicesafe.blocking.sending import Close, Flowing, Sendable, exactly_bytes
from twicesafe.core.capture import Capture, Progress, Raised, Responded
from twicesafe.core.claims import Claim
from twicesafe.core.exchange import IncompleteAnswerError, unkeyed
from twicesafe.core.fingerprint import Fingerprint, RequestFacts
from twicesafe.core.keys import Scope, scoped_key
from twicesafe.core.plain import plain_record
from twicesafe.core.policy import Operation
from twicesafe.core.record import Effects, HeaderLines, StoredResponse
from twicesafe.core.steps import FORWARD, Answer, Flow, Forward, Propagate
from twicesafe.errors import RequestError
from twicesafe.exchanging import ForHandlers
from twicesafe.owners import new_owner

_OF_THE_BODY: Final = frozenset({b"accept-ranges", b"etag", b"last-modified", b"transfer-encoding", b"vary"})
_new: Final = tuple.__new__
"""Makes a named tuple by one call instead of two."""


class BlockingRequest(ForHandlers, Dealings):
    """What handlers may know of it is ForHandlers': `key`, `connection`, `derived_key()`, `nothing_done()`."""

    # On the class, so that a request pays for what it uses only.
    entered: bool | None = None
    """Whether the handler proper was reached; None where nobody says. Shells set it before they show an answer."""
    _failure: BaseException | None = None

    def __init__(self, shared: Shared, operation: Operation, key: str) -> None:
        self._shared = shared
        self.operation = operation
        self.key = key

    # --- for shells ---------------------------------------------------------------------------------------------------

    @property
    def begun(self) -> bool:
        """Whether it is entered or refused. Before that, its answer is none of twicesafe's business."""
        return self._claim is not None or self._exchange is not None or self.result is not None

    def bind(self, operation: Operation, key: str) -> None:
        """Say, before entering, what this request turned out to ask for; its handler has not been reached yet."""
        self.operation = operation
        self.key = key
        self.entered = False

    def enter(self, who: Scope, facts: RequestFacts, request: Any = None) -> Sendable | None:
        """Claim. None means run; otherwise that is to be sent, and nothing may run.

        `request` is what the operation's `rebuild` is given. Raises RequestError for a request that cannot be claimed,
        and what the store may not raise.
        """
        operation = self.operation
        policy = operation.policy
        digest, name, hint = scoped_key(who, self.key, operation.name if policy.per_operation_keys else None)
        claim = self._claim = _new(
            Claim,
            (
                digest, name, operation.name, hint, Fingerprint(facts, policy.fingerprint), policy.effects,
                new_owner(), policy.lease_us, policy.key_us, None, None,
            ),
        )  # fmt: skip
        if self._claimed(claim):
            return None
        if operation.rebuild is not None:
            self._rebuild(request)
        return self.instead()

    def once_more(self) -> Sendable | None:
        """What `enter` came to, for another operation that is called within the same request."""
        if self._awaited and self.result is None:
            return None
        if self.result is None:
            raise RuntimeError("this request could not be claimed, so nothing may run under its key")
        return self.instead()

    def enter_without_key(self) -> Sendable | None:
        """Open the transaction of a transactional operation whose request carries no key. The result is `enter`'s."""
        self._exchange = unkeyed(self.operation.policy)
        return None if self.advance(None) is not None else self.instead()

    def refuse(self, error: RequestError) -> Sendable:
        """What to answer to a request that cannot be claimed. Whatever the application answers is dropped."""
        self._shared.refused(self.operation, error)
        status, headers, body = self.operation.policy.problem(error.problem, detail=str(error), status=error.status)
        self.result = Answer(status, headers, body, error.problem)
        return self.instead()

    def instead(self) -> Sendable:
        """The answer that is sent instead of the application's. Raises where that is an error."""
        result = self.result
        if type(result) is Propagate:
            raise result.error
        assert type(result) is Answer, result
        headers = (*self.operation.policy.announcements(self.key, result.headers), *result.headers)
        return Sendable(result.status, headers, [result.body], None, result.error)

    def answered(
        self, status: int, headers: HeaderLines, pieces: Iterable[bytes], close: Close | None = None
    ) -> Sendable:
        """The application answered this. `pieces` are read, and `close` is called by whoever sends what is returned.

        Returns when the answer is recorded; of one that flows, when its head is. Raises what is to reach the server,
        and has called `close` then.
        """
        try:
            if self._failure is not None and not self.operation.policy.records_exceptions:
                self._settle(self._failure)
            if not self._awaited and self.result is None:
                # It was not entered; or the store failed as no store may, and nothing ran.
                return Sendable(status, headers, pieces, close)
            if type(self.result) is Answer:
                # An error of the handler's has been logged by whoever turned it into an answer.
                instead = self.instead()
                return instead._replace(headers=_with_added(instead.headers, headers), close=close, error=None)
            if self.result is not None:
                return self._forwarded(status, headers, pieces, close)
            return self._answered(status, headers, pieces, close)
        except BaseException:
            if close is not None:
                close()
            raise

    def raised(self, error: BaseException | None, close: Close | None = None) -> Sendable:
        """The application raised `error`, or (None) returned without an answer. Otherwise as `answered`."""
        try:
            return self._failed(error, close)
        except BaseException:
            if close is not None:
                close()
            raise

    def failed(self, error: BaseException) -> None:
        """The handler raised what nobody handled: the answer that is shown next is its framework's last resort.

        It is recorded where the policy records exceptions. Elsewhere it is sent as it is, and what is open to another
        attempt is left open.
        """
        self._failure = error

    # --- what comes of an answer --------------------------------------------------------------------------------------

    def _answered(self, status: int, headers: HeaderLines, pieces: Iterable[bytes], close: Close | None) -> Sendable:
        if type(pieces) is list and len(pieces) == 1 and type(pieces[0]) is bytes:
            # As below; not by it, because most answers come this way.
            sent = self._recorded_plainly(status, headers, pieces[0])
            if sent is not None:
                return self._forwarded(status, headers, pieces, close) if sent else self._instead(close)
        policy = self.operation.policy
        capture = Capture(policy.response_limit, live=policy.effects is not Effects.TRANSACTIONAL)
        capture.start(status, headers)
        held: list[bytes] = []
        rest: Iterator[bytes] = iter(())
        try:
            if type(pieces) is list or type(pieces) is tuple:
                held = [exactly_bytes(piece) for piece in pieces]
                progress = capture.body(held[0] if len(held) == 1 else b"".join(held), more=False)
            else:
                rest = iter(pieces)
                progress = _read(rest, capture, held)
        except BaseException as error:  # noqa: BLE001 - whatever ends the answer has to be settled first
            return self._failed(error, close)
        if progress is Progress.FLOW:
            return self._let_flow(capture, held, rest, close)
        if not capture.whole:
            return self._failed(None, close)
        return self._whole(capture, held, close)

    def _failed(self, error: BaseException | None, close: Close | None) -> Sendable:
        self._settle(error)
        if self.result is None or type(self.result) is Forward:
            raise IncompleteAnswerError if error is None else error
        return self._instead(close)

    @property
    def _awaited(self) -> bool:
        """Whether the exchange waits for what the handler does. Not where the store failed as no store may."""
        return self._own is not None or self._exchange is not None

    def _settle(self, error: BaseException | None) -> None:
        if self._awaited and self.result is None:
            self.advance(Raised(error, self.entered))

    def _whole(self, capture: Capture, held: list[bytes], close: Close | None) -> Sendable:
        status, headers, body = capture.status, capture.headers, capture.kept
        if body is not None:
            sent = self._recorded_plainly(status, headers, body)
            if sent is not None:
                return self._forwarded(status, headers, [body], close) if sent else self._instead(close)
        self.advance(Responded(status, headers, body, self.entered, self._repeatable))
        if self.result is FORWARD:
            return self._forwarded(status, headers, held if body is None else [body], close)
        return self._instead(close)

    def _recorded_plainly(self, status: int, headers: HeaderLines, body: bytes) -> bool | None:
        """Record what core.plain has lines for. Whether the application's answer is to be sent; None where it has none.

        Header names are kept as they were sent, and judged in lower case.
        """
        own, entered = self._own, self.entered
        lower = [(name.lower(), line) for name, line in headers]
        if own is None or self._repeatable or plain_record(status, lower, body, entered, self.operation.policy) is None:
            return None
        return self._recorded(own, _new(StoredResponse, (status, headers, body)), entered)

    def _let_flow(self, capture: Capture, held: list[bytes], rest: Iterator[bytes], close: Close | None) -> Sendable:
        status, headers = capture.status, capture.headers
        step = self.advance(Responded(status, headers, capture.kept, self.entered, self._repeatable, streaming=True))
        if type(step) is Flow:
            flowing = Flowing(self, self.entered, capture, held, rest, close)
            return self._forwarded(status, headers, flowing, flowing.close)
        if self.result is FORWARD:
            return self._forwarded(status, headers, chain(held, rest), close)
        return self._instead(close)

    def _instead(self, close: Close | None) -> Sendable:
        return self.instead()._replace(close=close)

    def _forwarded(self, status: int, headers: HeaderLines, pieces: Iterable[bytes], close: Close | None) -> Sendable:
        """The application's own answer. What is announced on it is no part of what is recorded."""
        if self.key:
            headers = (*self.operation.policy.announcements(self.key, headers), *headers)
        return Sendable(status, headers, pieces, close)


def _with_added(instead: HeaderLines, headers: HeaderLines) -> HeaderLines:
    """What stands in for another answer, with the lines of layers around the handler: of CORS, a session, an id."""
    there = {name.lower() for name, _ in instead} | _OF_THE_BODY
    added = [line for line in headers if line[0].lower() not in there and line[0][:8].lower() != b"content-"]
    return (*instead, *added)


def _read(pieces: Iterator[bytes], capture: Capture, held: list[bytes]) -> Progress:
    """Read on until the answer is whole, or has to flow."""
    for each in pieces:
        piece = exactly_bytes(each)
        held.append(piece)
        if capture.body(piece, more=True) is Progress.FLOW and not capture.arrived:
            return Progress.FLOW
    return capture.body(b"", more=False)
