"""Claim, effect and answer in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Ownership, RecordState
from twicesafe.errors import LeaseLostError, StoreUnavailableError
from twicesafe.stores.contract import AsyncTransaction
from twicesafe.testing.check import TRANSACTIONS, Checks
from twicesafe.testing.results import CheckFailedError
from twicesafe.testing.trial import ANSWER, KEY, LEASE, OTHER_REQUEST, REQUEST, Trial, bounded, expect

CHAPTER = Checks()

MANY: Final = 40
"""More transactions than any pool under test has connections, one after the other or at once."""
GRACE: Final = 0.3
"""Seconds after which a rival that has not answered is taken to wait for the transaction in its way."""


class Torn(Exception):  # noqa: N818 - it stands for whatever a handler may raise
    """What a handler raises in these checks."""


async def _begin(trial: Trial, transaction: AsyncTransaction, key: str) -> Ownership:
    own = await trial.won(key, by=transaction, effects=Effects.TRANSACTIONAL)
    await trial.write_effect(transaction, key)
    return own


async def _one(trial: Trial, key: str, **wishes: Any) -> Claimed | Existing:
    """A whole exchange: claim, and if it is won effect and answer."""
    async with trial.transaction() as transaction:
        found = await trial.claim(key, by=transaction, effects=Effects.TRANSACTIONAL, **wishes)
        if isinstance(found, Claimed):
            await trial.write_effect(transaction, key)
            await trial.complete(found.ownership, by=transaction)
        return found


@CHAPTER.check("R23 I2", TRANSACTIONS)
async def effect_and_answer_commit_together(trial: Trial) -> None:
    """Nothing shows before the completion; after it the effect and the answer are both there."""
    async with trial.transaction() as transaction:
        own = await _begin(trial, transaction, "key")
        expect(await trial.effects("key") == 0, "an effect shows before its transaction is complete")
        await trial.complete(own, by=transaction)
        expect(await trial.effects("key") == 1, "after the completion the effect is not there")
        found = await trial.refused(Verdict.REPLAY, when="after a transaction's completion")
        assert found.record is not None
        expect(found.record.response == ANSWER, "the answer is not what was completed")
        expect(found.record.ownership == own, "the row read back does not carry the owner's token")
    expect(await trial.effects("key") == 1, "leaving a completed transaction changed its effect")


@CHAPTER.check("R23 R16", TRANSACTIONS)
async def leaving_rolls_back(trial: Trial) -> None:
    """A transaction that is left unfinished, by an exception or without, leaves neither effect nor record."""
    for key in ("raised", "returned"):
        try:
            async with trial.transaction() as transaction:
                own = await _begin(trial, transaction, key)
                if key == "raised":
                    raise Torn
        except Torn:
            pass
        expect(await trial.effects(key) == 0, f"a handler that {key} left its effect")
        expect(await trial.row(own.digest) is None, f"a handler that {key} left a record")
        found = await _one(trial, key)
        expect(isinstance(found, Claimed), f"after that, a claim was answered {found}")
        expect(await trial.effects(key) == 1, "the second run has no effect")


@CHAPTER.check("R15 R16", TRANSACTIONS)
async def releasing_and_holding_roll_back(trial: Trial) -> None:
    """Released or held, a transaction leaves nothing: that nothing was done is known then."""
    for key in ("release", "hold"):
        async with trial.transaction() as transaction:
            own = await _begin(trial, transaction, key)
            await (transaction.release(own) if key == "release" else transaction.hold(own))
            expect(await trial.row(own.digest) is None, f"{key} left a record")
        expect(await trial.effects(key) == 0, f"{key} left the effect")
        await trial.won(key)


@CHAPTER.check("H2 R15", TRANSACTIONS)
async def a_failure_is_kept_and_its_effects_are_not(trial: Trial) -> None:
    """Completed without keeping its effects, the answer stands and the effect is gone."""
    failure = ANSWER._replace(status=422)
    async with trial.transaction() as transaction:
        own = await _begin(trial, transaction, "key")
        await trial.complete(own, failure, by=transaction, keep_effects=False)
    expect(await trial.effects("key") == 0, "the effect of a failure was kept")
    found = await trial.refused(Verdict.REPLAY, when="after a failure")
    assert found.record is not None
    expect(found.record.response == failure, "the failure was kept otherwise")
    await trial.refused(Verdict.MISMATCH, request=OTHER_REQUEST, when="after a failure")


@CHAPTER.check("R18 I11", TRANSACTIONS)
async def starting_an_answer_commits(trial: Trial) -> None:
    """An answer that flows live is committed at its head: effect there, done, body not kept."""
    head = ANSWER._replace(body=None)
    async with trial.transaction() as transaction:
        own = await _begin(trial, transaction, "key")
        await transaction.start_answer(own, head)
        expect(await trial.effects("key") == 1, "the effect is not there before the first byte leaves")
        found = await trial.refused(Verdict.GONE, when="after an answer's head")
        assert found.record is not None
        expect(found.record.response == head, "the head was kept otherwise")


@CHAPTER.check("I3 R23", TRANSACTIONS)
async def a_lost_claim_rolls_back(trial: Trial) -> None:
    """A completion under an ownership that is not the row's raises LeaseLostError and takes its effect with it."""
    own = None
    async with trial.transaction() as transaction:
        own = await _begin(trial, transaction, "key")
        wrong = own._replace(owner=bytes(16))
        await trial.lost(trial.complete(wrong, by=transaction), "completing under another's token")
        expect(await trial.effects("key") == 0, "the effect of a lost claim was kept")
    expect(await trial.effects("key") == 0, "leaving the transaction committed the effect of a lost claim")
    expect(await trial.row(own.digest) is None, "a lost claim left a record")
    await _one(trial, "key")


@CHAPTER.check("R11 I4", TRANSACTIONS)
async def what_is_done_is_answered_inside_too(trial: Trial) -> None:
    """Replay, mismatch, done without a body and unknown come from a transaction as from the leased way."""
    for effects in (Effects.TRANSACTIONAL, Effects.KEYED):
        async with trial.transaction() as transaction:
            own = await trial.won(effects, by=transaction, effects=effects)
            await trial.complete(own, by=transaction)
    await trial.unknown("unknown")
    await trial.completed("gone", ANSWER._replace(body=None))
    await trial.won("claimed", effects=Effects.OPAQUE)
    for key, request, verdict in (
        ("transactional", REQUEST, Verdict.REPLAY),
        ("keyed", REQUEST, Verdict.REPLAY),
        ("transactional", OTHER_REQUEST, Verdict.MISMATCH),
        ("gone", REQUEST, Verdict.GONE),
        ("unknown", REQUEST, Verdict.UNKNOWN),
        ("claimed", REQUEST, Verdict.IN_PROGRESS),
        ("claimed", OTHER_REQUEST, Verdict.MISMATCH),
    ):
        for _ in range(2):
            async with trial.transaction() as transaction:
                found = await trial.refused(
                    verdict, key, by=transaction, request=request, when=f"in a transaction on {key}"
                )
                expect(found.record is not None, f"{verdict} came without its record")


@CHAPTER.check("R13 I6", TRANSACTIONS)
async def a_stale_opaque_claim_is_held_from_inside(trial: Trial) -> None:
    """A transaction that meets a stale opaque claim leaves it unknown for good; one begun to be answered, done."""
    opaque = await trial.won("opaque", effects=Effects.OPAQUE)
    begun = await trial.won("begun", effects=Effects.OPAQUE)
    await trial.store.start_answer(begun, ANSWER._replace(body=None))
    trial.clock.advance(LEASE)
    for own, key, verdict, state in (
        (opaque, "opaque", Verdict.UNKNOWN, RecordState.UNKNOWN),
        (begun, "begun", Verdict.GONE, RecordState.COMPLETED),
    ):
        async with trial.transaction() as transaction:
            await trial.refused(
                verdict, key, by=transaction, effects=Effects.TRANSACTIONAL, when="in a transaction over a stale claim"
            )
        row = await trial.row(own.digest)
        expect(row is not None and row.state is state, f"afterwards the row is {row}")


@CHAPTER.check("R13 R23", TRANSACTIONS)
async def a_take_over_rolls_back_too(trial: Trial) -> None:
    """A transaction that takes over a stale claim leaves it as it was if it fails, and completes it if not."""
    own = await trial.won(effects=Effects.KEYED)
    before = await trial.row(own.digest)
    trial.clock.advance(LEASE)
    async with trial.transaction() as transaction:
        found = await trial.claim(by=transaction, effects=Effects.TRANSACTIONAL)
        expect(isinstance(found, Claimed) and found.ownership.epoch == 2, f"a stale claim was answered {found}")
        await trial.write_effect(transaction, "key")
    expect(await trial.row(own.digest) == before, "a take-over that was rolled back left traces")
    expect(await trial.effects("key") == 0, "a take-over that was rolled back left its effect")
    await _one(trial, "key")
    expect(await trial.effects("key") == 1, "a take-over has no effect")
    await trial.nothing_moves(own, "the owner that was taken over in a transaction")


@CHAPTER.check("C4 R20", TRANSACTIONS)
async def expiry_needs_no_purge_inside(trial: Trial) -> None:
    """A transaction claims an expired key, and rolled back it leaves the expired row as it was."""
    own = await trial.completed()
    trial.clock.advance(KEY)
    async with trial.transaction() as transaction:
        await _begin(trial, transaction, "key")
    await _one(trial, "key")
    expect(await trial.effects("key") == 1, "after expiry the second run has no effect, or two")
    await trial.nothing_moves(own, "the owner of the expired record")


@CHAPTER.check("R10 R11 K", TRANSACTIONS)
async def a_rival_never_runs_beside(trial: Trial) -> None:
    """While a transaction runs, a rival is told so or waits; it never runs, with this request or another."""
    calls: dict[str, Callable[[], Coroutine[Any, Any, Claimed | Existing]]] = {
        "the same request": lambda: _one(trial, "key"),
        "another request": lambda: _one(trial, "key", request=OTHER_REQUEST),
    }
    async with trial.transaction() as transaction:
        own = await _begin(trial, transaction, "key")
        rivals = {who: asyncio.ensure_future(call()) for who, call in calls.items()}
        await asyncio.wait(rivals.values(), timeout=GRACE)
        early = {who for who, rival in rivals.items() if rival.done()}
        await trial.complete(own, by=transaction)
    for who, rival in rivals.items():
        found = await bounded(rival, f"a rival with {who}")
        expect(isinstance(found, Existing), f"a rival with {who} ran beside a transaction")
        assert isinstance(found, Existing)
        if who in early:
            fine = found.verdict in (Verdict.IN_PROGRESS, Verdict.MISMATCH)
        else:
            # It waited, and found what the transaction had left; or its patience ended first.
            fine = found.verdict in (Verdict.IN_PROGRESS, Verdict.MISMATCH, Verdict.REPLAY)
        if who == "another request":
            fine = fine and found.verdict is not Verdict.REPLAY
        else:
            fine = fine and found.verdict is not Verdict.MISMATCH
        expect(fine, f"a rival with {who} was answered {found.verdict}")
    expect(await trial.effects("key") == 1, "there is not one effect")
    await trial.refused(Verdict.MISMATCH, request=OTHER_REQUEST, when="after the transaction, with another request")


@CHAPTER.check("I1 I3 R10", TRANSACTIONS)
async def the_two_ways_exclude_each_other(trial: Trial) -> None:
    """A leased claim beside a transaction is refused or waits; or it wins, and the transaction loses its effect."""
    async with trial.transaction() as transaction:
        own = await _begin(trial, transaction, "key")
        rival = asyncio.ensure_future(trial.claim("key", effects=Effects.OPAQUE))
        await asyncio.wait([rival], timeout=GRACE)
        try:
            await trial.complete(own, by=transaction)
        except LeaseLostError:
            lost = True
        else:
            lost = False
    found = await bounded(rival, "a leased rival")
    runs = isinstance(found, Claimed)
    expect(runs == lost, f"the transaction {'lost' if lost else 'committed'}, and its leased rival was told {found}")
    effects = await trial.effects("key")
    expect(effects == (0 if lost else 1), f"of the transaction {effects} effects were kept")


@CHAPTER.check("R23", TRANSACTIONS)
async def an_ended_transaction_has_no_connection(trial: Trial) -> None:
    """Before it has begun and after it has ended, a transaction gives nobody a connection to write through."""
    async with trial.transaction() as transaction:
        _no_connection(transaction, "before its beginning")
        own = await _begin(trial, transaction, "key")
        await trial.complete(own, by=transaction)
        _no_connection(transaction, "after its completion")
        await trial.refused(Verdict.REPLAY, by=transaction, when="in an ended transaction")
        _no_connection(transaction, "after a refused claim")
    async with trial.transaction() as transaction:
        await transaction.begin()
        await transaction.commit()
        _no_connection(transaction, "after its commit")


def _no_connection(transaction: AsyncTransaction, when: str) -> None:
    try:
        connection = transaction.connection
    except LookupError:
        return
    raise CheckFailedError(f"{when} a transaction gave {connection!r}")


@CHAPTER.check("I1 R10 C1", TRANSACTIONS)
async def one_of_many_transactions_commits(trial: Trial) -> None:
    """Of many transactions at once on each of many keys, retried while in progress, one has an effect; none errs."""

    async def rival(n: int) -> None:
        for key in range(MANY):
            # Every rival begins at another key, so that all keys are contended all the time.
            name = f"key-{(key + n) % MANY}"
            for _ in range(1000):
                found = await _one(trial, name)
                if isinstance(found, Claimed) or found.verdict is not Verdict.IN_PROGRESS:
                    break
                await asyncio.sleep(0.005)
            told = "claimed" if isinstance(found, Claimed) else found.verdict
            expect(told in ("claimed", Verdict.REPLAY), f"on {name} a rival was told {told}")

    await trial.rival(rival(n) for n in range(trial.rivals))
    for key in range(MANY):
        effects = await trial.effects(f"key-{key}")
        expect(effects == 1, f"key-{key} has {effects} effects")


@CHAPTER.check("C8", TRANSACTIONS)
async def more_at_once_than_connections(trial: Trial) -> None:
    """More transactions at once than any pool has connections all come to an end, each with its effect."""
    found = await trial.rival(_one(trial, f"key-{n}") for n in range(MANY // 2))
    expect(all(isinstance(one, Claimed) for one in found), "a transaction on a key of its own was refused")
    for n in range(MANY // 2):
        expect(await trial.effects(f"key-{n}") == 1, "an effect is missing")


@CHAPTER.check("C8", TRANSACTIONS)
async def every_ending_gives_its_connection_back(trial: Trial) -> None:
    """However transactions end, there is a connection for the next one."""
    for n in range(MANY):
        try:
            async with trial.transaction() as transaction:
                own = await _begin(trial, transaction, f"key-{n}")
                if n % 4 == 0:
                    raise Torn
                if n % 4 == 1:
                    await transaction.release(own)
                elif n % 4 == 2:
                    await trial.lost(trial.complete(own._replace(epoch=9), by=transaction), "completing a wrong epoch")
        except Torn:
            pass
        expect(await trial.effects(f"key-{n}") == 0, "an unfinished transaction left its effect")
    await _one(trial, "key")


@CHAPTER.check("C2", TRANSACTIONS)
async def own_rows_survive_a_refusal(trial: Trial) -> None:
    """Rows of one's own, written before a claim that is refused, can still be committed, and the winner is returned."""
    await trial.completed("taken")
    async with trial.transaction() as transaction:
        await transaction.begin()
        await trial.write_effect(transaction, "own row")
        found = await trial.refused(Verdict.REPLAY, "taken", by=transaction, when="in a transaction of one's own")
        assert found.record is not None
        expect(found.record.response == ANSWER, "the winner's answer is not what was returned")
        await transaction.commit()
    expect(await trial.effects("own row") == 1, "the row written before a refused claim is gone")


@CHAPTER.check("R2 R3", TRANSACTIONS)
async def without_a_key_it_is_a_plain_transaction(trial: Trial) -> None:
    """Without a claim, commit keeps the effect and leaving drops it."""
    async with trial.transaction() as transaction:
        await transaction.begin()
        await trial.write_effect(transaction, "committed")
        await transaction.commit()
    async with trial.transaction() as transaction:
        await transaction.begin()
        await trial.write_effect(transaction, "left")
    expect(await trial.effects("committed") == 1, "a plain transaction's effect is gone")
    expect(await trial.effects("left") == 0, "a plain transaction committed by itself")


@CHAPTER.check("R23 K", TRANSACTIONS)
async def a_read_waits_for_the_transaction(trial: Trial) -> None:
    """A read of a key whose transaction is under way answers after it, or says within bounds that it cannot."""
    async with trial.transaction() as transaction:
        own = await _begin(trial, transaction, "key")
        reading = asyncio.ensure_future(trial.store.read(own.digest))
        done, _ = await asyncio.wait([reading], timeout=GRACE)
        early = bool(done) and reading.exception() is None
        await trial.complete(own, by=transaction)
    try:
        found = await bounded(reading, "a read")
    except StoreUnavailableError:
        found = await trial.store.read(own.digest)
        early = False
    expect(not early, "a read did not wait for the transaction in flight")
    expect(found.record is not None and found.record.owner == own.owner, "a read after the commit does not see it")
