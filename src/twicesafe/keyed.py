"""One keyed HTTP request under ASGI: drives the exchange, and stands between the application and the server.

The application talks to this object's `receive` and `send`; what it answers is captured, recorded and only then passed
on. All decisions are core.exchange's. Until `enter` is called everything passes through untouched, so that a framework
may authenticate and validate first (R22).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from os import urandom
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from twicesafe.core.capture import Capture, Progress, Raised, Responded
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.exchange import (
    Answer,
    Begin,
    Commit,
    Complete,
    Exchange,
    Flow,
    Forward,
    Hold,
    Notice,
    Propagate,
    Read,
    Release,
    Renew,
    Result,
    Run,
    StartAnswer,
    Wait,
    exchange,
    unkeyed,
)
from twicesafe.core.fingerprint import Fingerprint, RequestFacts
from twicesafe.core.keys import Scope, derive, scoped_key
from twicesafe.core.policy import Operation
from twicesafe.core.problems import problem
from twicesafe.core.record import Effects, Ownership
from twicesafe.errors import BodyTooLargeError, RequestError, StoreError
from twicesafe.observe import Event, Observer, tell
from twicesafe.renewals import Renewals
from twicesafe.stores.contract import AsyncSession, AsyncStore, AsyncTransaction

ASGIScope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[ASGIScope, Receive, Send], Awaitable[None]]

EnteredOf: TypeAlias = Callable[[ASGIScope, int], bool | None]
"""Whether the handler proper was reached, judged by the ASGI scope once the answer's status is known. None where that
cannot be told; False only where it is certain, because the key is then free for another run."""

PIECE: Final = 64 * 1024
_PASSING, _HOLDING, _FLOWING, _FORWARDING, _DROPPING = "passing", "holding", "flowing", "forwarding", "dropping"
_DISCONNECT: Final[Message] = {"type": "http.disconnect"}


async def _silence() -> Message:
    return _DISCONNECT


async def _nowhere(message: Message) -> None:
    """The exchange is over."""


class ClientGoneError(ConnectionError):
    """The client went away before its request was whole. Nothing was claimed."""


class Shared:
    """What the requests of one middleware have in common."""

    __slots__ = ("entered", "observer", "renewals", "running", "store", "usual")

    def __init__(self, store: AsyncStore, observer: Observer, entered: EnteredOf) -> None:
        self.store = store
        self.observer = observer
        self.entered = entered
        self.renewals = Renewals(store, self._lease_lost)
        self.running: set[asyncio.Task[None]] = set()
        self.usual: dict[str, int] = {}
        """Microseconds that an operation usually takes, a moving average: what a duplicate is told to wait."""

    def _lease_lost(self, own: Ownership) -> None:
        tell(self.observer, Event("lease.lost", "", own.digest.hex()[:8], loud=True))


class KeyedRequest:
    """What a handler may know of its request is public: `key`, `connection`, `derived_key()`, `nothing_done()`."""

    __slots__ = (
        "__weakref__",
        "_body_limit",
        "_capture",
        "_claim",
        "_complete",
        "_detached",
        "_early",
        "_exchange",
        "_held",
        "_loop",
        "_own",
        "_parts",
        "_ran_at",
        "_receive",
        "_repeatable",
        "_result",
        "_scope",
        "_send",
        "_session",
        "_shared",
        "_size",
        "_start",
        "_state",
        "_transaction",
        "_visible",
        "entered",
        "key",
        "operation",
    )  # fmt: skip

    def __init__(
        self,
        shared: Shared,
        operation: Operation,
        key: str,
        scope: ASGIScope,
        receive: Receive,
        send: Send,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.key = key
        """Empty where the request carries none."""
        self.operation = operation
        self.entered: bool | None = None
        """Whether the handler proper was reached; None where nobody says."""
        self._shared = shared
        self._scope = scope
        self._receive = receive
        self._send = send
        self._loop = loop
        self._body_limit = operation.policy.body_limit
        self._parts: list[bytes] = []
        self._size = 0
        self._complete = False
        self._early: deque[Message] = deque()
        self._claim: Claim | None = None
        self._exchange: Any = None
        self._session: AsyncSession = shared.store
        """The store, or the transaction that is open."""
        self._transaction: AsyncTransaction | None = None
        self._own: Ownership | None = None
        self._capture: Capture
        self._start: Message | None = None
        self._held: list[Message] = []
        self._state = _PASSING
        self._result: Result | None = None
        self._repeatable = False
        self._detached = False
        self._visible: asyncio.Event | None = None
        self._ran_at = 0

    # --- for handlers -------------------------------------------------------------------------------------------------

    @property
    def connection(self) -> Any:
        """The driver's connection of a transactional operation, inside its transaction. Do not commit it."""
        if self._transaction is None:
            raise LookupError("this request has no transaction: its operation is not transactional, or not entered yet")
        return self._transaction.connection

    def derived_key(self, call: str) -> str:
        """The key to send with the downstream call named `call`: the same on every attempt at this intent (R25)."""
        if self._claim is None:
            raise LookupError("no key can be derived before the operation is entered")
        return derive(self._claim.digest, call)

    def nothing_done(self) -> None:
        """Declare that the handler did nothing: whatever it answers, the key stays free (R15)."""
        self._repeatable = True

    # --- for shells ---------------------------------------------------------------------------------------------------

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        """Let the application answer, and settle whatever it leaves. Raises what is to reach the server."""
        error = None
        try:
            await app(self._scope, receive, self.send)
        except BaseException as raised:  # noqa: BLE001 - whatever ends the handler has to be settled first
            if isinstance(raised, ClientGoneError) and not self.begun:
                return
            error = raised
        await self.finish(error)

    def bind(self, operation: Operation) -> None:
        """Say, before entering, what this request turned out to ask for; its handler has not been reached yet."""
        self.operation = operation
        self.entered = False
        # What was over the limit while nobody knew the operation is not there to be compared.
        self._body_limit = min(self._body_limit, operation.policy.body_limit)
        self._scope["twicesafe"] = self

    @property
    def begun(self) -> bool:
        """Whether it is entered or refused."""
        return self._exchange is not None or self._result is not None

    @property
    def result(self) -> Result | None:
        """What is to be sent, or was; None while that is for the handler to say."""
        return self._result

    @property
    def claims(self) -> bool:
        """Whether a claim was asked for: from then on the work is seen through to its end, whoever goes away."""
        return self._claim is not None

    async def enter(self, who: Scope) -> Result | None:
        """Claim. None means run; a result is to be sent by `finish` instead, and nothing may run.

        Reads what is left of the body first. Raises RequestError for a request that cannot be claimed, ClientGoneError
        where the body never became whole.
        """
        if not self._complete:
            await self._read_body()
        if self._size > self._body_limit:
            raise BodyTooLargeError(f"the body of this operation may have at most {self._body_limit} bytes")
        operation, policy = self.operation, self.operation.policy
        digest, name, hint = scoped_key(who, self.key, operation.name if policy.per_operation_keys else None)
        scope, parts = self._scope, self._parts
        path = scope.get("raw_path") or quote(scope["path"]).encode("ascii")
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        facts = RequestFacts(scope["method"], path, scope["query_string"], scope["headers"], body)
        claim = self._claim = Claim(
            digest, name, operation.name, hint, Fingerprint(facts, policy.fingerprint), policy.effects, urandom(16),
            policy.lease_us, policy.key_us,
        )  # fmt: skip
        return await self._begin(exchange(claim, policy, self._shared.usual.get(operation.name, 0)))

    async def enter_without_key(self) -> Result | None:
        """Open the transaction of a transactional operation whose request carries no key. The result is `enter`'s."""
        return await self._begin(unkeyed(self.operation.policy))

    async def _begin(self, generator: Exchange) -> Result | None:
        policy = self.operation.policy
        self._exchange = generator
        self._state = _DROPPING
        step = await self._advance(None)
        if type(step) is Run:
            self._capture = Capture(policy.response_limit, live=policy.effects is not Effects.TRANSACTIONAL)
            self._state = _HOLDING
            self._ran_at = perf_counter_ns()
            return None
        return self._result

    async def finish(self, error: BaseException | None) -> None:
        """The application returned, or raised `error`: settle what is open, answer, raise what is due."""
        if not self.begun:
            if error is not None:
                raise error
            return
        if self._result is None:
            if self._state is _HOLDING:
                self._state = _DROPPING
            await self._advance(Raised(error, self.entered))
        result = self._result
        assert result is not None
        if self._state is _DROPPING:
            await self._send_result(result)
        # A server's request leads here through its scope: what led back would leave it to the garbage collector.
        self._scope, self._receive, self._send = {}, _silence, _nowhere
        if type(result) is Propagate:
            raise result.error
        if type(result) is Answer and result.error is not None:
            raise result.error
        if error is not None and type(result) is Forward:
            raise error

    def refuse(self, error: RequestError) -> Result:
        """Have `finish` answer a request that cannot be claimed; whatever the application answers is dropped."""
        self._state = _DROPPING
        policy = self.operation.policy
        status, headers, body = problem(
            error.problem, header=policy.header, base=policy.problem_base, detail=str(error), status=error.status
        )
        self._result = Answer(status, headers, body, error.problem)
        return self._result

    def detach(self) -> None:
        """The caller is gone: the work goes on, nothing more is sent."""
        self._detached = True

    async def close(self) -> None:
        """Give back the transaction, if one is open. Safe to call twice."""
        transaction, self._transaction, self._session = self._transaction, None, self._shared.store
        own, self._own = self._own, None
        if own is not None:
            self._shared.renewals.forget(own)
        if transaction is not None:
            await transaction.__aexit__(None, None, None)

    # --- towards the application --------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """What the application receives: the very messages that came, then silence.

        A hang-up is none of its business while its answer is being recorded; it learns of one when it streams without
        end, and it is told that the exchange is over once its answer is complete.
        """
        if self._early:
            return self._early.popleft()
        if self._exchange is None:
            return await self._next_part()
        if self._result is None:
            if self._visible is None:
                self._visible = asyncio.Event()
            await self._visible.wait()
            if self._result is None:
                return await self._receive()
        return _DISCONNECT

    async def send(self, message: Message) -> None:
        """What the application sends: passed through, held back until it is recorded, let flow, or dropped."""
        state = self._state
        kind = message["type"]
        if kind == "http.response.pathsend":
            await self._send_file(message["path"])
        elif state is _HOLDING:
            if kind == "http.response.start" and self._start is None:
                self._capture.start(message["status"], message.get("headers", ()))
                self._start = message
            elif kind == "http.response.body" and self._start is not None:
                await self._hold_back(message)
            else:
                await self._forward(message)
        elif state is _FLOWING:
            await self._flow(message)
        elif state is _FORWARDING:
            await self._forward(message)
        elif state is _PASSING:
            await self._send(message)

    async def _hold_back(self, message: Message) -> None:
        capture = self._capture
        progress = capture.body(message.get("body", b""), more=message.get("more_body", False))
        if progress is Progress.HOLD:
            self._held.append(message)
            return
        if progress is Progress.WHOLE and not capture.whole:
            return
        if self.entered is None:
            self.entered = self._shared.entered(self._scope, capture.status)
        step = await self._advance(
            Responded(
                capture.status, capture.headers, capture.kept, self.entered, self._repeatable, progress is Progress.FLOW
            )
        )
        if type(self._result) is Forward:
            self._state = _FORWARDING
        elif type(step) is Flow:
            self._state = _FLOWING
            if not capture.recordable:
                self._show_hang_up()
        else:
            self._state = _DROPPING
            return
        start = self._start
        assert start is not None
        await self._forward(start)
        for held in self._held:
            await self._forward(held)
        self._held.clear()
        await self._forward(message)

    async def _flow(self, message: Message) -> None:
        await self._forward(message)
        if message["type"] != "http.response.body":
            return
        capture = self._capture
        progress = capture.body(message.get("body", b""), more=message.get("more_body", False))
        if progress is Progress.WHOLE:
            if capture.whole and self._result is None:
                self._state = _FORWARDING
                await self._advance(Responded(capture.status, capture.headers, capture.kept, self.entered))
        elif not capture.recordable:
            self._show_hang_up()
            if self._detached:
                raise ClientGoneError("the client hung up on an answer that is not recorded")

    async def _forward(self, message: Message) -> None:
        if not self._detached:
            try:
                await self._send(message)
            except OSError:
                # The answer is recorded: the client that hung up will ask again.
                self._detached = True

    async def _send_file(self, path: str) -> None:
        file = await asyncio.to_thread(Path(path).open, "rb")
        try:
            more = True
            while more:
                piece = await asyncio.to_thread(file.read, PIECE)
                more = len(piece) == PIECE
                await self.send({"type": "http.response.body", "body": piece, "more_body": more})
        finally:
            file.close()

    async def _send_result(self, result: Result) -> None:
        if type(result) is Answer:
            headers = list(result.headers)
            await self._forward({"type": "http.response.start", "status": result.status, "headers": headers})
            await self._forward({"type": "http.response.body", "body": result.body, "more_body": False})

    def _show_hang_up(self) -> None:
        if self._visible is None:
            self._visible = asyncio.Event()
        self._visible.set()

    # --- from the client ----------------------------------------------------------------------------------------------

    async def _next_part(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            body = message.get("body", b"")
            self._size += len(body)
            if self._size <= self._body_limit:
                if body:
                    self._parts.append(body)
            else:
                self._parts.clear()
            self._complete = not message.get("more_body", False)
        return message

    async def _read_body(self) -> None:
        while not self._complete and self._size <= self._body_limit:
            message = await self._next_part()
            if message["type"] == "http.disconnect":
                raise ClientGoneError("the client hung up before its request was whole")
            self._early.append(message)

    # --- towards the store --------------------------------------------------------------------------------------------

    async def _advance(self, value: object) -> Run | Flow | None:
        """Drive the exchange until it wants the application to go on, or has its result."""
        generator = self._exchange
        error: StoreError | None = None
        try:
            while True:
                step = generator.send(value) if error is None else generator.throw(error)
                error = None
                kind = type(step)
                try:
                    if kind is Complete:
                        own, response, key_us, body_us, keep = step
                        await self._session.complete(own, response, key_us, body_us, keep_effects=keep)
                        value = None
                    elif kind is Run or kind is Flow:
                        return step  # type: ignore[no-any-return]
                    elif kind is Claim:
                        value = await self._do_claim(step)
                    else:
                        value = await self._perform(step)
                except StoreError as problem_met:
                    error = problem_met
        except StopIteration as stop:
            self._result = stop.value
            if self._ran_at:
                self._note_duration()
            if self._visible is not None:
                self._visible.set()
            await self.close()
            return None
        except BaseException:
            await self.close()
            raise

    async def _do_claim(self, claim: Claim) -> Claimed | Existing:
        shared = self._shared
        if claim.effects is not Effects.TRANSACTIONAL:
            found = await shared.store.claim(claim)
            if type(found) is Claimed:
                self._own = found.ownership
                shared.renewals.watch(found.ownership, claim.lease_us, self._loop)
            return found
        transaction = await self._open()
        found = await transaction.claim(claim)
        if type(found) is not Claimed:
            await self.close()
        return found

    async def _open(self) -> AsyncTransaction:
        await self.close()
        transaction = self._shared.store.transaction()
        await transaction.__aenter__()
        self._transaction = self._session = transaction
        return transaction

    async def _perform(self, step: Any) -> object:
        session = self._session
        match step:
            case Begin():
                await (await self._open()).begin()
            case Commit():
                assert self._transaction is not None
                await self._transaction.commit()
            case StartAnswer(own, head):
                await session.start_answer(own, head)
            case Release(own):
                await session.release(own)
            case Renew(own, lease_us):
                await session.renew(own, lease_us)
            case Hold(own):
                await session.hold(own)
            case Read(digest):
                await self.close()
                return await self._shared.store.read(digest)
            case Wait(microseconds):
                await asyncio.sleep(microseconds / 1_000_000)
            case Notice(name, loud):
                hint = "" if self._claim is None else self._claim.key_hint
                tell(self._shared.observer, Event(name, self.operation.name, hint, loud))
        return None

    def _note_duration(self) -> None:
        took = (perf_counter_ns() - self._ran_at) // 1000
        self._ran_at = 0
        usual, name = self._shared.usual, self.operation.name
        before = usual.get(name)
        usual[name] = took if before is None else before + (took - before) // 8


def current(scope: ASGIScope) -> KeyedRequest:
    """The keyed request that this ASGI scope belongs to. LookupError where the request carries no key."""
    found = scope.get("twicesafe")
    if not isinstance(found, KeyedRequest) or not found.key:
        raise LookupError("this request is not under an idempotency key")
    return found
