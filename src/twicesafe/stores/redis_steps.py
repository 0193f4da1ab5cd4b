"""Every method of a Redis store, as steps. What a verdict is, lifecycle.decide() says; this finds the script for it.

A first claim, an answer and each of the owner's writes are one script, which is one indivisible step. What a claim
decides on a record that it found, it does in a second one, on condition that the record's head is what it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.lifecycle import Verdict, abandoned, decide
from twicesafe.core.record import Instant, Micros, Ownership, Record, RecordState, StoredResponse
from twicesafe.errors import LeaseLostError, SchemaError, StoreError, StoreUnavailableError
from twicesafe.stores import redis_scripts as scripts
from twicesafe.stores.contract import Swept
from twicesafe.stores.redis_rows import (
    APART,
    AT_THE_END,
    NO_BODY,
    Kept,
    answer,
    ownership,
    packed,
    taken_over,
    unpack,
)
from twicesafe.stores.redis_scripts import Ask, Asking, Primaries, Script

ROUNDS: Final = 16
"""How often a claim begins again because the record changed under it. Each round somebody else made progress."""

DIGEST: Final = 32
BODY_ID: Final = 16
"""Bytes."""
MARGIN_MS: Final = 1000
"""A body that is kept apart is stored a moment before the completion from which its retention counts."""

SCANNED: Final = 500
"""Keys that a sweep has a server look at in one go: a fraction of a millisecond."""

OLDEST: Final = 7
"""Redis 7 brought shard channels, by which waiters are told."""


class RedisSteps:
    """`prefix` begins every name. `clock` stands for the server's where it is given."""

    def __init__(self, prefix: str, clock: Callable[[], Instant] | None) -> None:
        self._prefix = prefix.encode()
        self._clock = clock
        self._swept = 0, b"0"
        """How far the sweep has come: which server, and its cursor."""

    def name(self, digest: bytes) -> bytes:
        """The key of a record, and the channel of its waiters. What is in braces decides its place in a cluster."""
        return b"%b{%b}" % (self._prefix, digest.hex().encode())

    def _ask(self, script: Script, digest: bytes, *words: bytes, writes: bool = True) -> Ask:
        time = b"" if self._clock is None else b"%d" % self._clock()
        return Ask(self.name(digest), script, (time, *words), writes)

    # --- claiming -----------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Asking[Claimed | Existing]:
        """See Session.claim."""
        digest, owner = claim.digest, claim.owner
        effects, _, said = packed(claim)
        ask = self._ask(scripts.CLAIM, digest, effects, owner, said, b"%d" % claim.lease_us, b"%d" % claim.key_us)
        for _ in range(ROUNDS):
            found = yield ask
            if type(found) is int:
                return Claimed(Ownership(digest, owner, 1), found)
            now, value = found
            kept = yield from self._whole(unpack(digest, value, now))
            verdict = decide(kept.record, claim.fingerprint, owner, now)
            judge = self._JUDGED.get(verdict)
            if judge is None:
                return Existing(verdict, kept.record, now)
            judged = yield from judge(self, claim, kept)
            if judged is not None:
                return judged
        raise StoreUnavailableError(f"the record changed {ROUNDS} times while it was being claimed: ask again")

    def _whole(self, kept: Kept) -> Asking[Kept]:
        """With its body, where that is apart; one that cannot be found any more is not kept."""
        record, _, apart = kept
        if apart is None:
            return kept
        name = self._body_name(record.digest, apart)
        body = yield Ask(self.name(record.digest), None, (b"GET", name), writes=False)
        assert record.response is not None
        return kept._replace(record=record._replace(response=record.response._replace(body=body)))

    def _body_name(self, digest: bytes, body_id: bytes) -> bytes:
        """Of a body that is apart. Another body has another name: nobody's can come into another's answer."""
        return b"%b:%b" % (self.name(digest), body_id.hex().encode())

    def _take_over(self, claim: Claim, seen: Kept) -> Asking[Claimed | Existing | None]:
        record = seen.record
        before, after = taken_over(claim, record)
        now = yield self._ask(scripts.TAKE_OVER, claim.digest, seen.head, before, b"%d" % claim.lease_us, after)
        return None if now is None else Claimed(Ownership(claim.digest, claim.owner, record.epoch + 1), now, record)

    def _own(self, claim: Claim, seen: Kept) -> Asking[Claimed | Existing | None]:
        """The reply was lost on the way; by now the lease may be over, so it begins again."""
        own = seen.record.ownership
        now = yield self._ask(scripts.RENEW, claim.digest, ownership(own), b"%d" % claim.lease_us)
        # Under a later epoch it may have been a take-over, and whoever ran before may have done something.
        previous = seen.record if own.epoch > 1 else None
        return None if now is None else Claimed(own, now, previous)

    def _hold_stale(self, claim: Claim, seen: Kept) -> Asking[Claimed | Existing | None]:
        now = yield self._ask(scripts.HOLD_STALE, claim.digest, seen.head)
        return None if now is None else Existing(Verdict.UNKNOWN, seen.record._replace(state=RecordState.UNKNOWN), now)

    def _settle_answered(self, claim: Claim, seen: Kept) -> Asking[Claimed | Existing | None]:
        now = yield self._ask(scripts.SETTLE_ANSWERED, claim.digest, seen.head, b"%d" % claim.key_us)
        if now is None:
            return None
        record = seen.record._replace(state=RecordState.COMPLETED, lease_until=now, key_until=now + claim.key_us)
        return Existing(Verdict.GONE, record, now)

    _JUDGED: Final = {
        Verdict.OWN: _own,
        Verdict.TAKE_OVER: _take_over,
        Verdict.HOLD: _hold_stale,
        Verdict.SETTLE: _settle_answered,
    }
    """What a verdict does to the record; where that gives None the record had changed. Other verdicts are final."""

    # --- the owner ----------------------------------------------------------------------------------------------------

    def renew(self, own: Ownership, lease_us: Micros) -> Asking[None]:
        """See Session.renew."""
        if lease_us < 1:
            raise ValueError("a claim's lease lasts a microsecond at least")
        yield from self._owners(scripts.RENEW, own, b"%d" % lease_us)

    def start_answer(self, own: Ownership, head: StoredResponse) -> Asking[None]:
        """See Session.start_answer."""
        yield from self._owners(scripts.START_ANSWER, own, *answer(head))

    def complete(self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros) -> Asking[None]:
        """See Session.complete. A body that goes before its record is in its key before the record says so."""
        place, tail = yield from self._placed(own.digest, ownership(own), response.body, key_us, body_us)
        words = (*answer(response), place, tail, b"%d" % key_us, b"%d" % body_us)
        yield from self._owners(scripts.COMPLETE, own, *words)

    def _placed(
        self, digest: bytes, writer: bytes, body: bytes | None, key_us: Micros, body_us: Micros
    ) -> Asking[tuple[bytes, bytes]]:
        """Where the body is, and what stands for it in the record. Nobody else's, and none that lasts otherwise, has
        its name: a write that is refused afterwards has touched no other."""
        if body is None or body_us < 1:
            return NO_BODY, b""
        if body_us >= key_us:
            return AT_THE_END, body
        lasts = b"%d" % (body_us // 1000 + MARGIN_MS)
        body_id = blake2b(body, digest_size=BODY_ID, key=writer + lasts).digest()
        words = (b"SET", self._body_name(digest, body_id), body, b"PX", lasts)
        # Whether it stands matters to nobody until the record says that it does.
        yield Ask(self.name(digest), None, words, writes=False)
        return APART, body_id

    def release(self, own: Ownership) -> Asking[None]:
        """See Session.release."""
        yield from self._owners(scripts.RELEASE, own)

    def hold(self, own: Ownership) -> Asking[None]:
        """See Session.hold."""
        yield from self._owners(scripts.HOLD, own)

    def _owners(self, script: Script, own: Ownership, *words: bytes) -> Asking[None]:
        if (yield self._ask(script, own.digest, ownership(own), *words)) is None:
            raise LeaseLostError("the claim is no longer this owner's: nothing was changed")

    # --- everybody else -----------------------------------------------------------------------------------------------

    def read(self, digest: bytes) -> Asking[Found]:
        """See Store.read."""
        now, *found = yield self._ask(scripts.FIND, digest, writes=False)
        if not found:
            return Found(None, now)
        kept = yield from self._whole(unpack(digest, found[0], now))
        return Found(kept.record, now)

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> Asking[bool]:
        """See Store.settle."""
        if response is None:
            return (yield self._ask(scripts.SETTLE, own.digest, ownership(own))) is not None
        place, tail = yield from self._placed(own.digest, ownership(own), response.body, key_us, body_us)
        words = (ownership(own), *answer(response), place, tail, b"%d" % key_us, b"%d" % body_us)
        return (yield self._ask(scripts.SETTLE, own.digest, *words)) is not None

    def now(self) -> Asking[Instant]:
        """See Store.now."""
        if self._clock is not None:
            return self._clock()
        seconds, micros = yield Ask(self.name(b""), None, (b"TIME",), writes=False)
        return int(seconds) * 1_000_000 + int(micros)

    def settle_stale(self, look_at: int, before: Callable[[Record], Asking[None]] | None = None) -> Asking[Swept]:
        """See SettlesStale.settle_stale. `before` comes before a claim is made unknown or completed."""
        looked_at = settled = 0
        damage: StoreError | None = None
        while looked_at < look_at and damage is None:
            nodes = yield Primaries()
            place, cursor = self._swept
            if place >= len(nodes):
                self._swept = 0, b"0"
                return Swept(settled, more=False)
            words = (
                b"SCAN",
                cursor,
                b"MATCH",
                _literal(self._prefix) + b"{*}",
                b"COUNT",
                b"%d" % min(look_at, SCANNED),
            )
            cursor, names = yield Ask(b"", None, words, writes=False, node=nodes[place])
            looked_at += min(look_at, SCANNED)
            for name in names:
                if len(name) == len(self.name(bytes(DIGEST))):
                    ended = yield from self._end_stale(name, before)
                    if isinstance(ended, StoreError):
                        damage = ended
                    else:
                        settled += ended
            self._swept = (place + 1, b"0") if cursor == b"0" else (place, cursor)
        if damage is not None:
            # The others are ended, and the next call goes on behind it.
            raise damage
        return Swept(settled, more=True)

    def _end_stale(self, name: bytes, before: Callable[[Record], Asking[None]] | None) -> Asking[int | StoreError]:
        """How many were ended; or what is wrong with a record that cannot be read."""
        try:
            digest = bytes.fromhex(name[len(self._prefix) + 1 : -1].decode("ascii"))
        except ValueError:
            # Somebody else's, that looks alike.
            return 0
        found = yield self._ask(scripts.STALE, digest, writes=False)
        if found is None:
            return 0
        try:
            kept = unpack(digest, found[1], found[0])
        except StoreError as error:
            return error
        record = kept.record
        verdict = abandoned(record, found[0])
        if before is not None and verdict in (Verdict.HOLD, Verdict.SETTLE):
            yield from before(record)
        if verdict is Verdict.HOLD:
            ended = yield self._ask(scripts.HOLD_STALE, digest, kept.head)
        elif verdict is Verdict.SETTLE:
            key_us = b"%d" % max(1, record.key_until - record.created_at)
            ended = yield self._ask(scripts.SETTLE_ANSWERED, digest, kept.head, key_us)
        elif verdict is Verdict.FREE:
            ended = yield self._ask(scripts.FORGET, digest, kept.head)
        else:
            return 0
        return int(ended is not None)

    def lease_left(self, digest: bytes) -> Asking[Micros]:
        """For how long nothing happens to the record unless its owner does it."""
        left: Micros = yield self._ask(scripts.LEASE_LEFT, digest, writes=False)
        return left

    def check_server(self) -> Asking[None]:
        """SchemaError where records would be lost, or scripts not be understood."""
        text = yield Ask(self.name(b""), None, (b"INFO", b"everything"), writes=False)
        lines = dict(line.split(":", 1) for line in text.decode("utf-8", "replace").splitlines() if ":" in line)
        version = lines.get("redis_version", "0")
        if int(version.partition(".")[0]) < OLDEST:
            raise SchemaError(f"this is Redis {version}: the store needs Redis {OLDEST}, or Valkey, or newer")
        policy = lines.get("maxmemory_policy", "noeviction")
        if policy != "noeviction" and lines.get("maxmemory", "0") != "0":
            raise SchemaError(
                f"this server forgets records when its memory is full (maxmemory-policy {policy}), and what is "
                "forgotten runs again: set maxmemory-policy to noeviction"
            )


def _literal(text: bytes) -> bytes:
    """As a pattern that matches nothing else."""
    return re.sub(rb"([*?\[\]^\\-])", rb"\\\1", text)
