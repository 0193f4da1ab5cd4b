"""Stop an exchange after any of its steps, as a crash would, and look at what it left.

Every decision is a step that the exchange yields, so a run can be cut after the n-th for every n: that is every place
at which a process can die, as far as its store can tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from twicesafe.core.capture import Raised, Responded
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.exchange import exchange
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects
from twicesafe.core.steps import (
    Complete,
    Flow,
    Hold,
    Notice,
    Read,
    Release,
    Renew,
    Result,
    Run,
    StartAnswer,
    Step,
    Wait,
)
from twicesafe.errors import StoreError
from twicesafe.stores.contract import AsyncSession, AsyncStore, AsyncTransaction

Handler = Callable[[Any], Awaitable[Responded | Raised]]
"""Does the work and answers. It is given the transaction's connection, or None in the leased way."""


class Cut(NamedTuple):
    """What a run came to. `result` is None where it was cut; `steps` are those performed, by name."""

    result: Result | None
    steps: list[str]


class _Stopped(Exception):  # noqa: N818 - it is not an error
    """The process is taken to have died here."""


async def cut_at(
    stop_after: int | None,
    claim: Claim,
    policy: Policy,
    store: AsyncStore,
    handler: Handler,
    *,
    flow: Callable[[], Awaitable[Responded | Raised]] | None = None,
) -> Cut:
    """Run one exchange and drop it after `stop_after` steps; None lets it end.

    A claim, a run, each write and each notice is a step. A transaction that was open is rolled back, as the loss of its
    connection would; nothing else is told to anybody. `flow` stands for the rest of a stream.
    """
    generator = exchange(claim, policy)
    steps: list[str] = []
    transaction: AsyncTransaction | None = None
    session: AsyncSession = store

    async def perform(step: Step) -> object:
        nonlocal transaction, session
        match step:
            case Claim():
                if step.effects is Effects.TRANSACTIONAL:
                    transaction = session = store.transaction()
                    await transaction.__aenter__()
                found = await session.claim(step)
                if transaction is not None and type(found) is not Claimed:
                    await leave()
                return found
            case Run():
                return await handler(None if transaction is None else transaction.connection)
            case Flow():
                assert flow is not None, "the exchange lets a stream flow: say how it goes on"
                return await flow()
            case Complete(own, response, key_us, body_us, keep):
                await session.complete(own, response, key_us, body_us, keep_effects=keep)
            case StartAnswer(own, head):
                await session.start_answer(own, head)
            case Release(own):
                await session.release(own)
            case Renew(own, lease_us):
                await session.renew(own, lease_us)
            case Hold(own):
                await session.hold(own)
            case Read(digest):
                await leave()
                return await store.read(digest)
            case Wait(microseconds):
                await asyncio.sleep(microseconds / 1_000_000)
            case Notice():
                pass
        return None

    async def leave() -> None:
        nonlocal transaction, session
        if transaction is not None:
            open_one, transaction, session = transaction, None, store
            await open_one.__aexit__(None, None, None)

    try:
        step = next(generator)
        while True:
            if len(steps) == stop_after:
                raise _Stopped
            steps.append(type(step).__name__)
            try:
                value = await perform(step)
            except StoreError as error:
                step = generator.throw(error)
            else:
                if len(steps) == stop_after:
                    raise _Stopped
                step = generator.send(value)
    except StopIteration as stop:
        return Cut(stop.value, steps)
    except _Stopped:
        return Cut(None, steps)
    finally:
        generator.close()
        await leave()
