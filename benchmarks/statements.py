"""What the benchmarks of databases share: one request's work on a store, and what the same by hand needs.

The floor of each driver sends the very statements that twicesafe sends, grouped into as many round trips, over the
driver's pool as it comes, from code that decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from os import urandom
from typing import Any

from benchmarks.load import BlockingOnce, Once
from twicesafe import Effects, Policy
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.record import StoredResponse
from twicesafe.stores.contract import AsyncStore, Store
from twicesafe.stores.packing import pack_headers
from twicesafe.stores.sql.statements import Queries

BODY = b'{"amount": 100, "account": 7}'
ANSWER = b'{"id": "ch_1", "amount": 100}'
LINES = ((b"content-length", b"29"), (b"content-type", b"application/json"))
INSERT = "INSERT INTO ledger (account, amount) VALUES (7, 100)"
DAY = 86_400_000_000
NAMES = (
    "digest", "scope", "operation", "key_hint", "fingerprint", "effects", "owner", "epoch", "created_at", "request",
    "lease_us", "key_us", "body_us", "purge_us", "status", "headers", "body",
    "seen_owner", "seen_epoch", "seen_state", "seen_lease_until", "seen_key_until",
)  # fmt: skip
FIXED: Mapping[str, Any] = dict.fromkeys(NAMES, 0) | {
    "scope": "user", "operation": "http", "key_hint": "…0001", "effects": "keyed", "epoch": 1, "request": None,
    "lease_us": 30_000_000, "key_us": DAY, "body_us": DAY, "purge_us": DAY, "status": 201,
    "headers": pack_headers(LINES), "body": ANSWER, "seen_owner": b"", "seen_state": "completed",
}  # fmt: skip

Effect = Callable[[Any], Awaitable[None]]
BlockingEffect = Callable[[Any], Any]


# --- by hand ----------------------------------------------------------------------------------------------------------


class Written:
    """One statement: its text, and its parameters of one request."""

    def __init__(self, sql: Queries, name: str) -> None:
        statement = sql(name, **{name: name for name in NAMES})
        self.text = statement.text
        self._order = statement.parameters

    def values(self, mine: Mapping[str, Any]) -> list[Any]:
        """In the driver's order."""
        return [mine[name] for name in self._order]


def fresh() -> dict[str, Any]:
    """What differs from one request to the next."""
    return {**FIXED, "digest": urandom(32), "fingerprint": b"\x01" + urandom(32), "owner": urandom(16)}


def together(*texts: str) -> str:
    """Several statements in one round trip."""
    return "; ".join(texts)


# --- on the store -----------------------------------------------------------------------------------------------------


def wish(policy: Policy) -> Claim:
    """A claim that nobody has made before."""
    return Claim(
        urandom(32), "user", "http", "…0001", GivenFingerprint(b"\x01" + urandom(32)), policy.effects, urandom(16),
        policy.lease_us, policy.key_us,
    )  # fmt: skip


def leased(store: AsyncStore) -> Once:
    """Claim and complete."""
    policy, response = Policy(effects=Effects.KEYED), StoredResponse(201, LINES, ANSWER)

    async def once() -> None:
        won = await store.claim(wish(policy))
        assert type(won) is Claimed
        await store.complete(won.ownership, response, policy.key_us, policy.body_us)

    return once


def transactional(store: AsyncStore, effect: Effect) -> Once:
    """Claim, effect and answer in one transaction."""
    policy, response = Policy(effects=Effects.TRANSACTIONAL), StoredResponse(201, LINES, ANSWER)

    async def once() -> None:
        async with store.transaction() as transaction:
            won = await transaction.claim(wish(policy))
            assert type(won) is Claimed
            await effect(transaction.connection)
            await transaction.complete(won.ownership, response, policy.key_us, policy.body_us)

    return once


def blocking_leased(store: Store) -> BlockingOnce:
    """Claim and complete, in blocking calls."""
    policy, response = Policy(effects=Effects.KEYED), StoredResponse(201, LINES, ANSWER)

    def once() -> None:
        won = store.claim(wish(policy))
        assert type(won) is Claimed
        store.complete(won.ownership, response, policy.key_us, policy.body_us)

    return once


def blocking_transactional(store: Store, effect: BlockingEffect) -> BlockingOnce:
    """Claim, effect and answer in one transaction, in blocking calls."""
    policy, response = Policy(effects=Effects.TRANSACTIONAL), StoredResponse(201, LINES, ANSWER)

    def once() -> None:
        with store.transaction() as transaction:
            won = transaction.claim(wish(policy))
            assert type(won) is Claimed
            effect(transaction.connection)
            transaction.complete(won.ownership, response, policy.key_us, policy.body_us)

    return once
