"""One keyed HTTP request under ASGI: what stands between the application and the server.

The application talks to this object's `receive` and `send`; what it answers is captured, recorded and only then passed
on. All decisions are core.exchange's, which `dealings` drives. Until `enter` is called everything passes through
untouched, so that a framework may authenticate and validate first (R22).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import quote

from twicesafe.core.capture import Capture, Progress, Raised, Responded
from twicesafe.core.claims import Claim
from twicesafe.core.exchange import unkeyed
from twicesafe.core.fingerprint import UNQUOTED, Fingerprint, RequestFacts
from twicesafe.core.keys import Scope, scoped_key
from twicesafe.core.plain import plain_record
from twicesafe.core.policy import Operation
from twicesafe.core.record import Effects, StoredResponse
from twicesafe.core.steps import FORWARD, Answer, Exchange, Flow, Forward, Propagate, Result
from twicesafe.dealings import Shared
from twicesafe.errors import RequestError
from twicesafe.exchanging import ForHandlers
from twicesafe.files import FILES, pieces_of
from twicesafe.incoming import ASGIScope, ClientGoneError, Incoming, Message, Receive
from twicesafe.owners import new_owner

Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[ASGIScope, Receive, Send], Awaitable[None]]

_PASSING, _HOLDING, _FLOWING, _FORWARDING, _DROPPING = "passing", "holding", "flowing", "forwarding", "dropping"


async def _silence() -> Message:
    return {"type": "http.disconnect"}


async def _nowhere(message: Message) -> None:
    """The exchange is over."""


_PARTED: Final[tuple[ASGIScope, Receive, Send]] = ({}, _silence, _nowhere)
_new: Final = tuple.__new__
"""Makes a named tuple by one call instead of two."""


class KeyedRequest(ForHandlers, Incoming):
    """What handlers may know of it is ForHandlers': `key`, `connection`, `derived_key()`, `nothing_done()`."""

    # On the class, so that a request pays for what it uses only.
    entered: bool | None = None
    """Whether the handler proper was reached; None where nobody says."""
    _start: Message | None = None
    _held: list[Message] | None = None
    _state = _PASSING
    _detached = False

    def __init__(self, shared: Shared, operation: Operation, scope: ASGIScope, receive: Receive, send: Send) -> None:
        self._shared = shared
        self.operation = operation
        self._scope = scope
        self._receive = receive
        self._send = send
        headers = scope["headers"]
        lines = dict(headers)
        self.lines = lines if len(lines) == len(headers) else None

    # --- for shells ---------------------------------------------------------------------------------------------------

    async def serve(self, app: ASGIApp, who: Scope) -> None:
        """Claim, and let the application answer or answer instead."""
        try:
            result = await self.enter(who)
        except RequestError as error:
            result = self.refuse(error)
        except ClientGoneError:
            return
        if result is not None:
            if self.operation.rebuild is not None:
                await self.rebuild(self._scope)
            await self.finish(None)
            return
        try:
            await app(self._scope, self.receive, self.send)
        except BaseException as raised:  # noqa: BLE001 - whatever ends the handler has to be settled first
            await self.finish(raised)
        else:
            if self._result is FORWARD:
                self._scope, self._receive, self._send = _PARTED
            else:
                await self.finish(None)

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        """Let the application answer, and settle whatever it leaves. Raises what is to reach the server."""
        try:
            await app(self._scope, receive, self.send)
        except BaseException as raised:  # noqa: BLE001 - whatever ends the handler has to be settled first
            if self.begun or not isinstance(raised, ClientGoneError):
                await self.finish(raised)
        else:
            if self._result is FORWARD and self._sent:
                self._scope, self._receive, self._send = _PARTED
            else:
                await self.finish(None)

    def bind(self, operation: Operation) -> None:
        """Say, before entering, what this request turned out to ask for; its handler has not been reached yet."""
        self.operation = operation
        self.entered = False
        self._scope["twicesafe"] = self

    @property
    def begun(self) -> bool:
        """Whether it is entered or refused."""
        return self._state is not _PASSING

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
        body = await self._whole_body()
        scope = self._scope
        digest, name, hint = scoped_key(who, self.key, operation.name if policy.per_operation_keys else None)
        facts = _new(
            RequestFacts,
            (
                scope["method"], scope.get("raw_path") or quote(scope["path"], safe=UNQUOTED).encode("ascii"),
                scope["query_string"], scope["headers"], body, self.lines,
            ),
        )  # fmt: skip
        claim = self._claim = _new(
            Claim,
            (
                digest, name, operation.name, hint, Fingerprint(facts, policy.fingerprint), policy.effects,
                new_owner(), policy.lease_us, policy.key_us, None, None,
            ),
        )  # fmt: skip
        self._state = _DROPPING
        if await self._claimed(claim):
            self._state = _HOLDING
            return None
        return self._result

    async def enter_without_key(self) -> Result | None:
        """Open the transaction of a transactional operation whose request carries no key. The result is `enter`'s."""
        return await self.enter_by(unkeyed(self.operation.policy))

    async def enter_by(self, exchange: Exchange, claim: Claim | None = None) -> Result | None:
        """Enter by another exchange than a keyed request's. `claim` is what it claims. The result is `enter`'s."""
        if claim is not None and self.operation.policy.counts_keys:
            exchange = self._within_limits(exchange, claim)
        self._claim, self._exchange = claim, exchange
        self._state = _DROPPING
        if await self._advance(None) is None:
            return self._result
        self._state = _HOLDING
        return None

    async def finish(self, error: BaseException | None) -> None:
        """The application returned, or raised `error`: settle what is open, answer, raise what is due."""
        if self._result is None:
            if not self.begun or (self._own is None and self._exchange is None):
                # Nothing was claimed; or the store failed as no store may, and only the claim's lease can tell.
                if error is not None:
                    raise error
                return
            if self._state is _HOLDING:
                self._state = _DROPPING
            self._stop_watching()
            await self._advance(Raised(error, self.entered, self._told))
        result = self._result
        assert result is not None
        self._has_sent()
        if self._state is _DROPPING and type(result) is Answer:
            await self._forward(
                self._announcing({"type": "http.response.start", "status": result.status, "headers": result.headers}),
                {"type": "http.response.body", "body": result.body, "more_body": False},
            )
        # A server's request leads here through its scope: what led back would leave it to the garbage collector.
        self._scope, self._receive, self._send = _PARTED
        if isinstance(result, Propagate | Answer) and result.error is not None:
            raise result.error
        if error is not None and type(result) is Forward and not isinstance(error, ClientGoneError):
            raise error

    def refuse(self, error: RequestError) -> Result:
        """Have `finish` answer a request that cannot be claimed; whatever the application answers is dropped."""
        self._state = _DROPPING
        self._shared.refused(self.operation, error)
        policy = self.operation.policy
        status, headers, body = policy.problem(error.problem, detail=str(error), status=error.status)
        self._result = Answer(status, headers, body, error.problem)
        return self._result

    def detach(self) -> None:
        """The caller is gone: the work goes on, nothing more is sent, and a stream is to come to its end."""
        if not self._detached:
            self._detached = True
            if self._state is _FLOWING and self._result is None:
                self._let_know()

    # --- towards the application --------------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        """What the application sends: passed through, held back until it is recorded, let flow, or dropped."""
        kind = message["type"]
        start = self._start
        if self._state is not _HOLDING or kind in FILES:
            await self._pass_on(message)
        elif start is None and kind == "http.response.start":
            self._start = _settled_start(message)
        elif start is None or kind != "http.response.body":
            if kind == "http.response.start":
                # As servers do: the first one's body is not what comes now.
                raise RuntimeError("an answer was started twice")
            await self._forward(message)
        else:
            body = message.get("body", b"")
            if type(body) is not bytes:
                # A view, perhaps, of what the application writes its next piece to.
                message = {**message, "body": bytes(body)}
            if self._capture is None and not message.get("more_body", False):
                await self._sent_in_one_piece(start, message)
            else:
                await self._take(start, message)

    async def _sent_in_one_piece(self, start: Message, message: Message) -> None:
        status, headers, body = start["status"], start.get("headers", ()), message.get("body", b"")
        entered = self.entered
        if entered is None:
            entered = self.entered = self._shared.entered(self._scope, status)
        own, policy = self._own, self.operation.policy
        kept = plain_record(status, headers, body, entered, policy)
        if kept is None or own is None or self._repeatable:
            await self._take(start, message)
        elif not await self._recorded(own, _new(StoredResponse, (status, kept, body)), entered):
            self._state = _DROPPING
        else:
            self._state = _FORWARDING
            await self._forward(self._announcing(start), message)
            self._has_sent()

    async def _take(self, start: Message, message: Message) -> None:
        """One more piece of an answer that is held back."""
        capture = self._capture
        if capture is None:
            policy = self.operation.policy
            capture = self._capture = Capture(policy.response_limit, live=policy.effects is not Effects.TRANSACTIONAL)
            capture.start(start["status"], start.get("headers", ()))
            self._held = []
        progress = capture.body(message.get("body", b""), more=message.get("more_body", False))
        if progress is Progress.HOLD:
            assert self._held is not None
            self._held.append(message)
        elif progress is Progress.FLOW or capture.whole:
            await self._record(capture, message, streaming=progress is Progress.FLOW and not capture.arrived)

    async def _record(self, capture: Capture, last: Message, *, streaming: bool) -> None:
        """Have the answer recorded, then let go of it; `last` is the message by which it became known."""
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
            elif self._claim is not None:
                # Without a key the body was not read first: the application may still be reading it.
                self._watch = asyncio.get_running_loop().create_task(self._until_hang_up(self.detach))
        else:
            self._state = _DROPPING
            return
        assert self._start is not None and self._held is not None
        held, self._held = self._held, []
        await self._forward(self._announcing(self._start), *held)
        await self._forward_settled(last)

    async def _pass_on(self, message: Message) -> None:
        state = self._state
        if state is _PASSING:
            await self._send(message)
        elif state is not _DROPPING and message["type"] in FILES:
            async for piece in pieces_of(message):
                await self.send(piece)
        elif state is _FLOWING:
            await self._flow(message)
        elif state is _FORWARDING:
            await self._forward_settled(message)

    async def _flow(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            await self._forward(message)
            return
        capture = self._capture
        assert capture is not None
        progress = capture.body(message.get("body", b""), more=message.get("more_body", False))
        if capture.arrived and self._result is None:
            self._state = _FORWARDING
            self._stop_watching()
            try:
                # Before the last piece: whoever has the whole answer finds it recorded.
                await self._advance(Responded(capture.status, capture.headers, capture.kept, self.entered))
            finally:
                await self._forward_settled(message)
            return
        await self._forward(message)
        if progress is not Progress.WHOLE and self._detached:
            if not capture.recordable:
                self._show_hang_up()
            if self._visible is not None and self._visible.is_set():
                self._told = True
                raise ClientGoneError("the client hung up on an answer that is not recorded any more")

    def _announcing(self, start: Message) -> Message:
        """With what every answer to a request under a key says first. It is no part of what is recorded."""
        sent = start.get("headers", ())
        lines = self.operation.policy.announcements(self.key, sent) if self.key else ()
        return {**start, "headers": [*lines, *sent]}

    async def _forward_settled(self, message: Message) -> None:
        """One of the last messages, of an answer whose record is settled."""
        await self._forward(message)
        if (
            self._state is _FORWARDING
            and message["type"] == "http.response.body"
            and not message.get("more_body", False)
        ):
            self._has_sent()

    async def _forward(self, *messages: Message) -> None:
        for message in messages:
            if self._detached:
                return
            try:
                await self._send(message)
            except OSError:
                # The answer is recorded, or its head: the client that hung up will ask again.
                self.detach()


def _settled_start(message: Message) -> Message:
    """As it is to be stored and sent: HTTPStatus is no plain number, and an iterator is gone once it is read."""
    status, headers = message["status"], message.get("headers", ())
    if type(status) is int and type(headers) in (list, tuple):
        return message
    return {**message, "status": int(status), "headers": list(headers)}
