"""The leased way on DynamoDB, as generators: each write is one conditional write of one item.

                claim                  put, if nothing is there
                  |                    a refusal brings the item that is there: lifecycle.decide() judges it
      renew, start answer, hold        update, if owner and epoch are mine
                  |
              complete                 update, if owner and epoch are mine and it is not completed
                  |
        expired, taken over            put or update, if it is still what was judged

A condition names everything that the decision was made on, and a refusal carries the item as it stands, so that a lost
race costs no second round trip. Every write may arrive twice, by a client that repeats what was not answered: the
second is refused by its condition, and the item that comes with the refusal shows that the first was ours (B6).
"""

from __future__ import annotations

from typing import Final

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.lifecycle import Verdict, abandoned, decide
from twicesafe.core.record import Effects, Instant, Micros, Ownership, Record, StoredResponse
from twicesafe.errors import StoreError, StoreUnavailableError
from twicesafe.stores.contract import Swept
from twicesafe.stores.dynamodb_clock import Clock, Window
from twicesafe.stores.dynamodb_items import (
    IN_TRANSACTION,
    NO_KEY,
    Item,
    Value,
    completed_by,
    in_flight,
    number,
    of_claim,
    of_ends,
    of_response,
    to_record,
)
from twicesafe.stores.dynamodb_requests import (
    CLAIMED,
    COMPLETED,
    OWNED,
    SEEN,
    TOO_LARGE,
    UNANSWERED,
    UNFINISHED,
    UNKNOWN,
    Answer,
    Call,
    Marker,
    Pause,
    Requests,
    Steps,
    assigned,
    completion,
    lease_lost,
    named,
    note,
    of_own,
    of_seen,
    shrinking,
)
from twicesafe.stores.sql.rows import check_lasting

ROUNDS: Final = 16
"""How often a claim begins again because the item changed under it. Each round somebody else made progress."""

PATIENCE: Final = 5.0
"""Seconds for which a read waits for a transaction that is under way."""
_LOOK_AGAIN: Final = 0.05

_PAGE: Final = 1000
"""Items that a purge looks at with one request."""


class DynamodbSteps:
    """Every method of the leased way, as steps."""

    def __init__(self, table: str, clock: Clock) -> None:
        self.requests: Final = Requests(table)
        self._clock = clock
        self._purged_to: Item | None = None
        self._swept_to: Item | None = None
        """Where the last purge and the last sweep stopped in the table."""

    # --- claiming -----------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim, marker: Marker | None = None) -> Steps[Claimed | Existing]:
        """See Session.claim. With a marker, the claim is a transaction's, and says there what it wrote."""
        check_lasting(claim.lease_us)
        check_lasting(claim.key_us)
        item: Item | None = None
        for _ in range(ROUNDS):
            window = yield from self.window()
            if item is None:
                answer = yield self._put(claim, 1, window, claim.effects, marker, None)
                if not answer.refused:
                    own = Ownership(claim.digest, claim.owner, 1)
                    return (yield from self._won(claim, own, window, answer, None))
                item = answer.item
                if item is None:
                    # An endpoint that does not say what was in the way.
                    item = (yield self.requests.get(claim.digest)).item
                continue
            record = to_record(item)
            verdict = decide(record, claim.fingerprint, claim.owner, window.earliest)
            if verdict is Verdict.FREE:
                answer = yield self._put(claim, record.epoch + 1, window, claim.effects, marker, item)
                won, previous = Ownership(claim.digest, claim.owner, record.epoch + 1), None
            elif verdict is Verdict.TAKE_OVER:
                answer = yield self._take_over(claim, record, window, marker, item)
                won = Ownership(claim.digest, claim.owner, record.epoch + 1)
                previous = record if answer.item is None else to_record(answer.item)
            elif verdict is Verdict.OWN:
                # The answer was lost on the way; by now the lease may be over, so it begins again.
                if marker is not None and marker.own != record.ownership:
                    # What it replaced is not known any more, unless it was nothing.
                    marker.own = record.ownership if record.epoch == 1 else None
                answer = yield self._renew(record.ownership, claim.lease_us, window)
                # Under a later epoch it may have been a take-over, and whoever ran before may have done something.
                won, previous = record.ownership, record if record.epoch > 1 else None
            elif verdict is Verdict.HOLD or verdict is Verdict.SETTLE:
                answer = yield (
                    self._hold_stale(record)
                    if verdict is Verdict.HOLD
                    else self._settle_answered(record, claim.key_us, window)
                )
                if not answer.refused:
                    assert answer.item is not None
                    after = Verdict.UNKNOWN if verdict is Verdict.HOLD else Verdict.GONE
                    return Existing(after, to_record(answer.item), window.earliest)
                item = answer.item
                continue
            else:
                return Existing(verdict, record, window.earliest)
            if not answer.refused:
                return (yield from self._won(claim, won, window, answer, previous))
            item = answer.item
        raise StoreUnavailableError(f"the record changed {ROUNDS} times while it was being claimed: ask again")

    def _won(
        self, claim: Claim, own: Ownership, window: Window, answer: Answer, previous: Record | None
    ) -> Steps[Claimed]:
        if answer.jumped:
            # This process stood still before it wrote: its lease may be over as it begins.
            yield from self.renew(own, claim.lease_us)
        return Claimed(own, window.earliest, previous)

    def _put(
        self, claim: Claim, epoch: int, window: Window, effects: Effects, marker: Marker | None, seen: Item | None
    ) -> Call:
        note(marker, Ownership(claim.digest, claim.owner, epoch), seen)
        item = of_claim(
            claim, epoch, window.earliest, window.latest, in_transaction=marker is not None, effects=effects
        )
        condition = "attribute_not_exists(#digest)" if seen is None else SEEN
        return self.requests.write(
            "put_item", {"Item": item}, condition, {} if seen is None else of_seen(to_record(seen))
        )

    def _take_over(self, claim: Claim, record: Record, window: Window, marker: Marker | None, seen: Item) -> Call:
        """key_until stays that of the first claim: the keys derived for it are remembered no longer than that (R25)."""
        note(marker, Ownership(claim.digest, claim.owner, record.epoch + 1), seen)
        effects = claim.effects
        if marker is not None and record.effects is not Effects.TRANSACTIONAL:
            # Nothing is left behind by this claim, but something may be by the one before it.
            effects = record.effects
        update = "SET #effects = :effects, #owner = :owner, #epoch = :epoch, #lease_until = :lease_until"
        values: dict[str, Value] = {
            ":effects": {"S": effects.value},
            ":owner": {"B": claim.owner},
            ":epoch": number(record.epoch + 1),
            ":lease_until": number(window.latest + claim.lease_us),
            **of_seen(record),
        }
        if claim.request is not None:
            update += ", #request = if_not_exists(#request, :request)"
            values[":request"] = {"B": claim.request}
        if marker is not None:
            update += f", #{IN_TRANSACTION} = :yes"
            values[":yes"] = {"BOOL": True}
        else:
            update += f" REMOVE #{IN_TRANSACTION}"
        return self.requests.update(claim.digest, update, f"{SEEN} AND {UNANSWERED}", values, returns="ALL_OLD")

    def _hold_stale(self, record: Record) -> Call:
        values = {":unknown": UNKNOWN, **of_seen(record)}
        update = f"SET #state = :unknown REMOVE #{IN_TRANSACTION}"
        return self.requests.update(record.digest, update, f"{SEEN} AND {UNANSWERED}", values, returns="ALL_NEW")

    def _settle_answered(self, record: Record, key_us: Micros, window: Window) -> Call:
        """Its answer had begun to leave, so it was done."""
        ends = of_ends(window.earliest, window.latest, key_us, 0)
        ends["body_until"] = ends["lease_until"]
        update = f"SET #state = :completed, {assigned(ends)} REMOVE #{IN_TRANSACTION}"
        values = {":completed": COMPLETED, **named(ends), **of_seen(record)}
        condition = f"{SEEN} AND attribute_exists(#status)"
        return self.requests.update(record.digest, update, condition, values, returns="ALL_NEW")

    # --- the owner's --------------------------------------------------------------------------------------------------

    def renew(self, own: Ownership, lease_us: Micros) -> Steps[None]:
        """See Session.renew."""
        check_lasting(lease_us)
        for last in (False, True):
            window = yield from self.window()
            answer = yield self._renew(own, lease_us, window)
            if answer.refused:
                raise lease_lost()
            if last or not answer.jumped:
                return

    def _renew(self, own: Ownership, lease_us: Micros, window: Window) -> Call:
        values = {":claimed": CLAIMED, ":lease_until": number(window.latest + lease_us), **of_own(own)}
        return self.requests.update(
            own.digest, "SET #lease_until = :lease_until", f"{OWNED} AND #state = :claimed", values
        )

    def start_answer(self, own: Ownership, head: StoredResponse) -> Steps[None]:
        """See Session.start_answer."""
        bare = head._replace(headers=(), body=None)
        for kept in (head._replace(body=None), bare):
            attributes = of_response(kept)
            update = f"SET {assigned(attributes)} REMOVE #body, #deflated_body"
            values = {":claimed": CLAIMED, **named(attributes), **of_own(own)}
            call = self.requests.update(own.digest, update, f"{OWNED} AND #state = :claimed", values)
            answer = yield call._replace(sheds=kept is not bare)
            if answer.refused:
                raise lease_lost()
            if answer.code != TOO_LARGE:
                return

    def complete(self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros) -> Steps[None]:
        """See Session.complete. What does not fit into an item is left away, the body first (R18)."""
        values = {":claimed": CLAIMED, ":unknown": UNKNOWN, **of_own(own)}
        answer = yield from self._completed(own.digest, response, key_us, body_us, f"{OWNED} AND {UNFINISHED}", values)
        if answer.refused and not completed_by(answer.item, own):
            raise lease_lost()

    def _completed(
        self,
        digest: bytes,
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
        condition: str,
        values: dict[str, Value],
    ) -> Steps[Answer]:
        for kept, bare in shrinking(response):
            window = yield from self.window()
            update, named = completion(kept, window, key_us, body_us, bare=bare)
            call = self.requests.update(digest, update, condition, {**named, **values})
            answer = yield call._replace(sheds=not bare)
            if answer.code != TOO_LARGE:
                break
        return answer

    def completed_before(self, own: Ownership) -> Steps[None]:
        """LeaseLostError unless this very owner has completed it already."""
        if not completed_by((yield self.requests.get(own.digest)).item, own):
            raise lease_lost()

    def release(self, own: Ownership) -> Steps[None]:
        """See Session.release."""
        window = yield from self.window()
        # Not once its owner is gone and its answer had begun to leave: that was done.
        condition = f"{OWNED} AND (#state = :unknown OR (#state = :claimed AND ({UNANSWERED} OR #lease_until > :now)))"
        values = {":claimed": CLAIMED, ":unknown": UNKNOWN, ":now": number(window.earliest), **of_own(own)}
        answer = yield self.requests.delete(own.digest, condition, values)
        if answer.refused and not (answer.repeated and answer.item is None):
            raise lease_lost()

    def hold(self, own: Ownership) -> Steps[None]:
        """See Session.hold."""
        values = {":claimed": CLAIMED, ":unknown": UNKNOWN, **of_own(own)}
        update = f"SET #state = :unknown REMOVE #{IN_TRANSACTION}"
        if (yield self.requests.update(own.digest, update, f"{OWNED} AND {UNFINISHED}", values)).refused:
            raise lease_lost()

    def undo(self, own: Ownership, replaced: Item | None) -> Call:
        """Take back a transaction's claim: what it replaced stands again. Refused where the claim does not stand."""
        values = {":claimed": CLAIMED, **of_own(own)}
        condition = f"{OWNED} AND #state = :claimed"
        if replaced is None:
            return self.requests.delete(own.digest, condition, values)
        return self.requests.write("put_item", {"Item": replaced}, condition, values)

    # --- everybody else -----------------------------------------------------------------------------------------------

    def read(self, digest: bytes) -> Steps[Found]:
        """See Store.read. A transaction that is under way is waited for."""
        waited = 0.0
        while True:
            item = (yield self.requests.get(digest)).item
            now = (yield from self.window()).earliest
            if not in_flight(item, now):
                return Found(None if item is None else to_record(item), now)
            if waited >= PATIENCE:
                raise StoreUnavailableError(f"a transaction has been under way for this key for {PATIENCE:g} s")
            yield Pause(_LOOK_AGAIN)
            waited += _LOOK_AGAIN

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> Steps[bool]:
        """See Store.settle."""
        condition = f"{OWNED} AND #state = :unknown"
        values = {":unknown": UNKNOWN, **of_own(own)}
        if response is None:
            answer = yield self.requests.delete(own.digest, condition, values)
            return not answer.refused or (answer.repeated and answer.item is None)
        answer = yield from self._completed(own.digest, response, key_us, body_us, condition, values)
        return not answer.refused

    def now(self) -> Steps[Instant]:
        """See Store.now."""
        yield self.requests.get(NO_KEY)
        return (yield from self.window()).earliest

    def window(self) -> Steps[Window]:
        """What time it is, asked for where that is not known."""
        window = self._clock.window()
        if window is None:
            yield self.requests.get(NO_KEY)
            window = self._clock.window()
            if window is None:
                raise StoreUnavailableError(
                    "the endpoint's answers carry no Date, so that nobody can tell when a lease ends: use another"
                )
        return window

    def purge(self, limit: int) -> Steps[int]:
        """See Store.purge. From where the last one stopped, once round the table at most."""
        touched, wrapped = 0, self._purged_to is None
        ended = (
            "#state = :completed AND (#key_until <= :now OR "
            "(#body_until <= :now AND (attribute_exists(#body) OR attribute_exists(#deflated_body))))"
        )
        while True:
            now = (yield from self.window()).earliest
            values = {":completed": COMPLETED, ":now": number(now)}
            page = yield self.requests.scan(
                self._purged_to, _PAGE, ended, values, "#digest, #owner, #epoch, #key_until"
            )
            for item in page.response.get("Items", ()):
                if touched >= limit:
                    return touched
                touched += yield from self._purge(item, now)
            self._purged_to = page.response.get("LastEvaluatedKey") or None
            if self._purged_to is None:
                if wrapped:
                    return touched
                wrapped = True

    def settle_stale(self, look_at: int) -> Steps[Swept]:
        """See SettlesStale.settle_stale."""
        settled, looked = 0, 0
        damage: StoreError | None = None
        while looked < look_at:
            window = yield from self.window()
            values = {":claimed": CLAIMED, ":now": number(window.earliest)}
            stale = "#state = :claimed AND #lease_until <= :now"
            page = yield self.requests.scan(self._swept_to, min(_PAGE, look_at - looked), stale, values)
            for item in page.response.get("Items", ()):
                try:
                    settled += yield from self._end_stale(to_record(item), window)
                except StoreError as error:
                    damage = error
            self._swept_to = page.response.get("LastEvaluatedKey") or None
            if damage is not None:
                # The others are ended, and the next call goes on behind it.
                raise damage
            if self._swept_to is None:
                return Swept(settled, more=False)
            looked += max(1, page.response.get("ScannedCount", 1))
        return Swept(settled, more=True)

    def _end_stale(self, record: Record, window: Window) -> Steps[int]:
        verdict = abandoned(record, window.earliest)
        if verdict is None:
            return 0
        if verdict is Verdict.HOLD:
            ending = self._hold_stale(record)
        elif verdict is Verdict.SETTLE:
            # What it asks to be remembered for from now on is what its first claim asked for.
            ending = self._settle_answered(record, max(1, record.key_until - record.created_at), window)
        else:
            ending = self.requests.delete(record.digest, f"{SEEN} AND {UNANSWERED}", of_seen(record))
        answer = yield ending
        return 0 if answer.refused else 1

    def _purge(self, item: Item, now: Instant) -> Steps[int]:
        digest = bytes(item["digest"]["B"])
        condition = f"{OWNED} AND #state = :completed AND #key_until = :key_until"
        values = {":completed": COMPLETED, **named({name: item[name] for name in ("owner", "epoch", "key_until")})}
        if int(item["key_until"]["N"]) <= now:
            answer = yield self.requests.delete(digest, condition, values)
        else:
            answer = yield self.requests.update(digest, "REMOVE #body, #deflated_body", condition, values)
        return 0 if answer.refused else 1
