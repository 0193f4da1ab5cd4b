"""The checks themselves: each kind of broken store is found out, and told in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Ownership, StoredResponse
from twicesafe.errors import LeaseLostError, StoreUnavailableError
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.testing import (
    CHECKS,
    ManualClock,
    Outcome,
    StoreCheckError,
    StoreUnderTest,
    acheck_store,
    check_store,
    result_table,
)


class LooksThenInserts(AsyncMemoryStore):
    """Asks whether the key is free, and takes it a moment later."""

    async def claim(self, claim: Claim) -> Claimed | Existing:
        before = (await self.read(claim.digest)).record
        await asyncio.sleep(0)
        found = await super().claim(claim)
        if before is None and isinstance(found, Existing):
            return Claimed(Ownership(claim.digest, claim.owner, 1), found.now)
        return found


class ForgetsWhoseItIs(MemoryStore):
    """Takes a claim asked again for a rival's."""

    def claim(self, claim: Claim) -> Claimed | Existing:
        before = self.read(claim.digest).record
        if before is not None and before.owner == claim.owner:
            return Existing(Verdict.IN_PROGRESS, before, self.now())
        return super().claim(claim)


class LetsLateOwnersWrite(MemoryStore):
    """Completes by digest alone."""

    def complete(self, own: Ownership, *rest: Any, **named: Any) -> None:
        row = self.read(own.digest).record
        super().complete(own if row is None else row.ownership, *rest, **named)


class IsSilentAboutLateOwners(MemoryStore):
    """Changes nothing for a late owner, and does not say so."""

    def renew(self, own: Ownership, lease_us: int) -> None:
        with suppress(LeaseLostError):
            super().renew(own, lease_us)


class TakesAnyRequest(MemoryStore):
    """Compares no fingerprints."""

    def claim(self, claim: Claim) -> Claimed | Existing:
        row = self.read(claim.digest).record
        known = (
            claim.fingerprint if row is None else type("Any", (), {"value": row.fingerprint, "matches": lambda *_: 1})()
        )
        return super().claim(claim._replace(fingerprint=known))


class RunsOpaqueOnesAgain(MemoryStore):
    """Takes everything for keyed."""

    def claim(self, claim: Claim) -> Claimed | Existing:
        return super().claim(claim._replace(effects=Effects.KEYED))


class NeedsASweeper(MemoryStore):
    """Goes by whether a row is there."""

    def claim(self, claim: Claim) -> Claimed | Existing:
        found = self.read(claim.digest)
        if found.record is not None and found.record.response is not None and found.now >= found.record.key_until:
            return Existing(Verdict.REPLAY, found.record, found.now)
        return super().claim(claim)


class JoinsHeaderLines(MemoryStore):
    """Keeps headers by name."""

    def complete(self, own: Ownership, response: StoredResponse, *rest: Any, **named: Any) -> None:
        super().complete(own, response._replace(headers=tuple(dict(response.headers).items())), *rest, **named)


class TakesEmptyForNothing(MemoryStore):
    """Tests bodies for truth."""

    def complete(self, own: Ownership, response: StoredResponse, *rest: Any, **named: Any) -> None:
        super().complete(own, response._replace(body=response.body or None), *rest, **named)


class PurgesTheUnknown(MemoryStore):
    """Takes an unknown outcome for an old one."""

    def purge(self, limit: int = 1000) -> int:
        for digest in [digest for digest in self._live if (row := self.read(digest).record) and row.state == "unknown"]:
            del self._live[digest]
        return super().purge(limit)


class PurgesWithoutEnd(MemoryStore):
    """Pays no heed to the limit."""

    def purge(self, limit: int = 1000) -> int:
        return super().purge(1_000_000)


class IsDown(MemoryStore):
    """Cannot be reached."""

    def claim(self, claim: Claim) -> Claimed | Existing:
        raise StoreUnavailableError("gone fishing")


class GoesByAnotherClock(MemoryStore):
    """Reads the application's clock."""

    def __init__(self, *, clock: Callable[[], int]) -> None:
        super().__init__()


class ChangesWhatIsDone(MemoryStore):
    """Lets an owner complete twice, the second time for good."""

    def complete(self, own: Ownership, *rest: Any, **named: Any) -> None:
        with self._lock:
            self._complete(own.digest, self._owned(own), *rest)


class TakesNoLease(MemoryStore):
    """Reads a lease of 0 as one that was not given."""

    def claim(self, claim: Claim) -> Claimed | Existing:
        return super().claim(claim._replace(lease_us=claim.lease_us or 1_000_000_000))


class SettlesByTheEpoch(MemoryStore):
    """Takes the next life of a key for the one that was judged, because it counts from 1 too."""

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: int, body_us: int) -> bool:
        return super().settle(self.under_this_epoch(own), response, key_us, body_us)

    def under_this_epoch(self, own: Ownership) -> Ownership:
        row = self.read(own.digest).record
        return own if row is None or row.epoch != own.epoch else row.ownership


class GoesOnByTheEpoch(SettlesByTheEpoch):
    """The same, letting operations go on."""

    def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> bool:
        return super().reopen(self.under_this_epoch(own), seen, point, data)


BROKEN = {
    LooksThenInserts: "one_of_many_wins",
    ForgetsWhoseItIs: "own_claim_is_recognised",
    LetsLateOwnersWrite: "a_late_owner_changes_nothing",
    IsSilentAboutLateOwners: "a_late_owner_changes_nothing",
    TakesAnyRequest: "another_request_is_refused_everywhere",
    RunsOpaqueOnesAgain: "an_opaque_claim_is_held",
    NeedsASweeper: "expiry_needs_no_purge",
    JoinsHeaderLines: "answers_come_back_byte_for_byte",
    TakesEmptyForNothing: "answers_come_back_byte_for_byte",
    PurgesTheUnknown: "an_unknown_outcome_does_not_age",
    PurgesWithoutEnd: "purging_takes_only_what_has_ended",
    IsDown: "a_released_key_is_free",
    GoesByAnotherClock: "a_claim_is_kept_as_asked",
    ChangesWhatIsDone: "completing_twice_is_completing_once",
    TakesNoLease: "no_lease_is_absent",
    SettlesByTheEpoch: "a_late_settlement_is_of_no_other_claim",
    GoesOnByTheEpoch: "only_what_was_judged_goes_on",
}


@pytest.mark.parametrize(("broken", "check"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_store_is_found_out(broken: type[MemoryStore | AsyncMemoryStore], check: str) -> None:
    """R42, I1: each way of breaking a promise fails the check that is about it, with a reason in words."""
    [result] = check_store(lambda clock: broken(clock=clock), only=[check], raise_on_failure=False)
    assert result.outcome is Outcome.FAILED
    assert len(result.reason.split()) > 3


def test_a_failure_is_raised_with_a_table() -> None:
    """R42: without further ado a failed check raises, and the message is a table of all checks with the reason."""
    with pytest.raises(StoreCheckError) as caught:
        check_store(lambda clock: JoinsHeaderLines(clock=clock), rivals=2, keys=2)
    message = str(caught.value)
    assert "answers_come_back_byte_for_byte" in message
    assert "header lines came back as" in message
    assert message.count("FAILED") == 2
    assert len(caught.value.results) == len(CHECKS)


def test_a_store_is_checked_inside_a_running_loop() -> None:
    """R42: acheck_store checks a blocking store from within a running event loop."""

    async def check() -> list[Any]:
        return await acheck_store(lambda clock: MemoryStore(clock=clock), only=["own_claim_is_recognised"])

    assert [result.outcome for result in asyncio.run(check())] == [Outcome.PASSED]


def test_every_store_is_closed_whatever_happens() -> None:
    """C8: after a check that failed as after one that passed, the store and what it stands on are closed, in order."""
    closed = []

    class Closes(IsDown):
        def close(self) -> None:
            closed.append("store")

    def make(clock: ManualClock) -> StoreUnderTest:
        return StoreUnderTest(store=Closes(clock=clock), close=lambda: closed.append("place"))

    check_store(make, only=["own_claim_is_recognised"], raise_on_failure=False)
    assert closed == ["store", "place"]


def test_a_store_with_transactions_must_be_checked_with_effects() -> None:
    """R23: claiming to have transactions without a way to see effects is a failure, not a check left out."""

    class Claims(MemoryStore):
        transactional = True

    [result] = check_store(lambda clock: Claims(clock=clock), only=["leaving_rolls_back"], raise_on_failure=False)
    assert result.outcome is Outcome.FAILED
    assert "write_effect" in result.reason


def test_an_unheard_name_is_refused() -> None:
    """R42: a misspelt check is an error, not a check that is left out."""
    with pytest.raises(ValueError, match="no check named wins"):
        check_store(lambda clock: MemoryStore(clock=clock), only=["wins"])


def test_the_table_shows_stores_side_by_side() -> None:
    """R42: the table has a line per check and a column per store."""
    only = ["one_of_many_wins", "leaving_rolls_back"]
    results = {
        name: check_store(lambda clock: MemoryStore(clock=clock), only=only, rivals=2, keys=2)
        for name in ("one", "two")
    }
    table = result_table(results)
    lines = [line.split() for line in table.splitlines()]
    assert ["check", "about", "one", "two"] in lines
    assert ["one_of_many_wins", "I1", "I2", "C1", "ok", "ok"] in lines
    assert table.count("the store has no transactions") == 2


def test_each_check_says_what_it_proves() -> None:
    """R42: every check has a name of its own, cites something, and states its promise in a sentence."""
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.cites
        assert check.promise.endswith(".")


def test_a_manual_clock_moves_forwards_only() -> None:
    """I12: a ManualClock stands until it is moved, tells its watchers, and never goes back."""
    told: list[int] = []
    clock = ManualClock(10)
    clock.watch(told.append)
    clock.advance(timedelta(microseconds=5))
    assert (clock(), told) == (15, [10, 15])
    with pytest.raises(ValueError, match="forwards"):
        clock.advance(timedelta(microseconds=-1))


def test_rows_are_read_the_same_whoever_reads() -> None:
    """I1: what a broken store in these tests reads is what the store has."""
    store = MemoryStore(clock=ManualClock())
    assert store.read(bytes(32)) == Found(None, store.now())
