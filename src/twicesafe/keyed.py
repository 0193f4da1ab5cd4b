"""One keyed HTTP request under ASGI: what stands between the application and the server.

The application talks to this object's `receive` and `send`; what it answers is captured, recorded and only then passed
on. All decisions are core.exchange's, which `dealings` drives. Until `enter` is called everything passes through
untouched, so that a framework may authenticate and validate first (R22).
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
from twicesafe.core.claims import Claim
from twicesafe.core.exchange import exchange, unkeyed
from twicesafe.core.fingerprint import Fingerprint, RequestFacts
from twicesafe.core.keys import Scope, derive, scoped_key
from twicesafe.core.policy import Operation
from twicesafe.core.problems import problem
from twicesafe.core.record import Effects
from twicesafe.core.steps import Answer, Flow, Forward, Propagate, Result, Run
from twicesafe.dealings import Dealings, Shared
from twicesafe.errors import BodyTooLargeError, RequestError

ASGIScope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[ASGIScope, Receive, Send], Awaitable[None]]

PIECE: Final = 64 * 1024
LINGER: Final = 5.0
"""Seconds that a stream whose client is gone goes on for the sake of its record. Servers end their requests before they
tell the application to shut down, so it may hold up a shutdown, and `docker stop` kills after 10 s."""
_PASSING, _HOLDING, _FLOWING, _FORWARDING, _DROPPING = "passing", "holding", "flowing", "forwarding", "dropping"
_DISCONNECT: Final[Message] = {"type": "http.disconnect"}


async def _silence() -> Message:
    return _DISCONNECT


async def _nowhere(message: Message) -> None:
    """The exchange is over."""


class ClientGoneError(ConnectionError):
    """The client went away: before its request was whole, and nothing was claimed; or while its answer flowed."""


class KeyedRequest(Dealings):
    """What a handler may know of its request is public: `key`, `connection`, `derived_key()`, `nothing_done()`."""

    __slots__ = (
        "__weakref__", "_capture", "_detached", "_early", "_held", "_parts", "_receive", "_repeatable", "_scope",
        "_send", "_size", "_start", "_state", "_told", "_watch", "_whole", "entered", "key",
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
        super().__init__(shared, operation, loop)
        self.key = key
        """Empty where the request carries none."""
        self.entered: bool | None = None
        """Whether the handler proper was reached; None where nobody says."""
        self._scope = scope
        self._receive = receive
        self._send = send
        self._parts: list[bytes] = []
        self._size = 0
        self._whole = False
        """Whether the body has arrived to its end."""
        self._early: deque[Message] = deque()
        self._capture: Capture
        self._start: Message | None = None
        self._held: list[Message] = []
        self._state = _PASSING
        self._repeatable = False
        self._detached = self._told = False
        self._watch: asyncio.Task[None] | asyncio.TimerHandle | None = None
        """While an answer flows: for the client to hang up, then for the time to tell the application (`_told`)."""

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
        if error is None and type(self._result) is Forward:
            self._part()
        else:
            await self.finish(error)

    def bind(self, operation: Operation) -> None:
        """Say, before entering, what this request turned out to ask for; its handler has not been reached yet."""
        self.operation = operation
        self.entered = False
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
        operation = self.operation
        policy = operation.policy
        if not self._whole:
            await self._read_body(policy.body_limit)
        if self._size > policy.body_limit:
            raise BodyTooLargeError(f"the body of this operation may have at most {policy.body_limit} bytes")
        digest, name, hint = scoped_key(who, self.key, operation.name if policy.per_operation_keys else None)
        scope, parts = self._scope, self._parts
        path = scope.get("raw_path") or quote(scope["path"]).encode("ascii")
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        facts = RequestFacts(scope["method"], path, scope["query_string"], scope["headers"], body)
        claim = self._claim = Claim(
            digest, name, operation.name, hint, Fingerprint(facts, policy.fingerprint), policy.effects, urandom(16),
            policy.lease_us, policy.key_us,
        )  # fmt: skip
        self._exchange = exchange(claim, policy, self._shared.usual.get(operation.name, 0))
        self._state = _DROPPING
        return self._begun(await self._advance(None))

    async def enter_without_key(self) -> Result | None:
        """Open the transaction of a transactional operation whose request carries no key. The result is `enter`'s."""
        self._exchange = unkeyed(self.operation.policy)
        self._state = _DROPPING
        return self._begun(await self._advance(None))

    def _begun(self, step: Run | Flow | None) -> Result | None:
        if step is None:
            return self._result
        policy = self.operation.policy
        self._capture = Capture(policy.response_limit, live=policy.effects is not Effects.TRANSACTIONAL)
        self._state = _HOLDING
        self._ran_at = perf_counter_ns()
        return None

    async def finish(self, error: BaseException | None) -> None:
        """The application returned, or raised `error`: settle what is open, answer, raise what is due."""
        if self._result is None:
            if self._exchange is None:
                if error is not None:
                    raise error
                return
            if self._state is _HOLDING:
                self._state = _DROPPING
            self._stop_watching()
            await self._advance(Raised(error, self.entered, self._told))
        result = self._result
        assert result is not None
        if self._state is _DROPPING and type(result) is Answer:
            await self._forward(
                {"type": "http.response.start", "status": result.status, "headers": list(result.headers)},
                {"type": "http.response.body", "body": result.body, "more_body": False},
            )
        self._part()
        if isinstance(result, Propagate | Answer) and result.error is not None:
            raise result.error
        if error is not None and type(result) is Forward and not isinstance(error, ClientGoneError):
            raise error

    def _part(self) -> None:
        """A server's request leads here through its scope: what led back would leave it to the garbage collector."""
        self._scope, self._receive, self._send = {}, _silence, _nowhere

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
        """The caller is gone: the work goes on, nothing more is sent, and a stream is to come to its end."""
        if not self._detached:
            self._detached = True
            if self._state is _FLOWING and self._result is None:
                self._let_know()

    # --- towards the application --------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """What the application receives: the very messages that came, then silence.

        A hang-up is none of its business while its answer is being recorded; it learns of one when it streams what is
        not recorded, or for longer than LINGER, and it is told that the exchange is over once its answer is complete.
        """
        if self._early:
            return self._early.popleft()
        if self._exchange is None:
            message = await self._receive()
            self._count(message, self.operation.policy.body_limit)
            return message
        if self._result is None:
            visible = self._visible = self._visible or asyncio.Event()
            await visible.wait()
            if self._result is None:
                self._told = True
        return _DISCONNECT

    async def send(self, message: Message) -> None:
        """What the application sends: passed through, held back until it is recorded, let flow, or dropped."""
        kind = message["type"]
        if self._state is not _HOLDING or kind == "http.response.pathsend":
            await self._pass_on(message)
        elif kind == "http.response.start" and self._start is None:
            self._capture.start(message["status"], message.get("headers", ()))
            self._start = message
        elif kind == "http.response.body" and self._start is not None:
            progress = self._capture.body(message.get("body", b""), more=message.get("more_body", False))
            if progress is Progress.HOLD:
                self._held.append(message)
            elif progress is Progress.FLOW or self._capture.whole:
                await self._record(message, streaming=progress is Progress.FLOW)
        else:
            await self._forward(message)

    async def _record(self, last: Message, *, streaming: bool) -> None:
        """Have the answer recorded, then let go of it; `last` is the message by which it became known."""
        capture = self._capture
        if self.entered is None:
            self.entered = self._shared.entered(self._scope, capture.status)
        step = await self._advance(
            Responded(capture.status, capture.headers, capture.kept, self.entered, self._repeatable, streaming)
        )
        if type(self._result) is Forward:
            self._state = _FORWARDING
        elif type(step) is Flow:
            self._state = _FLOWING
            if self._detached:
                self._let_know()
            else:
                self._watch = self._loop.create_task(self._watch_client())
        else:
            self._state = _DROPPING
            return
        assert self._start is not None
        held, self._held = self._held, []
        await self._forward(self._start, *held, last)

    async def _pass_on(self, message: Message) -> None:
        state = self._state
        if message["type"] == "http.response.pathsend":
            await self._send_file(message["path"])
        elif state is _FLOWING:
            await self._flow(message)
        elif state is _FORWARDING:
            await self._forward(message)
        elif state is _PASSING:
            await self._send(message)

    async def _flow(self, message: Message) -> None:
        await self._forward(message)
        if message["type"] != "http.response.body":
            return
        capture = self._capture
        progress = capture.body(message.get("body", b""), more=message.get("more_body", False))
        if progress is Progress.WHOLE:
            if capture.whole and self._result is None:
                self._state = _FORWARDING
                self._stop_watching()
                await self._advance(Responded(capture.status, capture.headers, capture.kept, self.entered))
        elif self._detached:
            if not capture.recordable:
                self._show_hang_up()
            if self._visible is not None and self._visible.is_set():
                self._told = True
                raise ClientGoneError("the client hung up on an answer that is not recorded any more")

    async def _forward(self, *messages: Message) -> None:
        for message in messages:
            if self._detached:
                return
            try:
                await self._send(message)
            except OSError:
                # The answer is recorded, or its head: the client that hung up will ask again.
                self.detach()

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

    async def _watch_client(self) -> None:
        """Until the client hangs up. The application's own `receive` may never be called."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._watch = None
        self.detach()

    def _let_know(self) -> None:
        """The client of a flowing answer is gone: have the application know, now or in a while."""
        self._stop_watching()
        if self._capture.recordable:
            self._watch = self._loop.call_later(LINGER, self._show_hang_up)
        else:
            self._show_hang_up()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _show_hang_up(self) -> None:
        visible = self._visible = self._visible or asyncio.Event()
        visible.set()

    # --- from the client ----------------------------------------------------------------------------------------------

    async def _read_body(self, limit: int) -> None:
        while not self._whole and self._size <= limit:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError("the client hung up before its request was whole")
            self._count(message, limit)
            self._early.append(message)

    def _count(self, message: Message, limit: int) -> None:
        """Keep a part of the body, as long as there is not too much of it."""
        if message["type"] == "http.request":
            body = message.get("body", b"")
            self._size += len(body)
            if self._size > limit:
                self._parts.clear()
            elif body:
                self._parts.append(body)
            self._whole = not message.get("more_body", False)


def current(scope: ASGIScope) -> KeyedRequest:
    """The keyed request that this ASGI scope belongs to. LookupError where the request carries no key."""
    found = scope.get("twicesafe")
    if not isinstance(found, KeyedRequest) or not found.key:
        raise LookupError("this request is not under an idempotency key")
    return found
