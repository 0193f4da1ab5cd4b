"""Sealed stores: what lies in the database, keys that come and go, and what cannot be opened."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores.claims import ANSWER, BODY, KEY, LEASE, digest_of, wish
from twicesafe.core.capture import Responded
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects, Ownership, Record, StoredResponse
from twicesafe.core.steps import Answer
from twicesafe.errors import ConfigurationError, SealBrokenError, SealKeyMissingError, StoreError
from twicesafe.stores.cryptography import Keyring
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sealed import AsyncSealedStore, SealedStore
from twicesafe.stores.sealing import MARK, Sealing
from twicesafe.stores.sqlite import SqliteStore
from twicesafe.testing import ManualClock
from twicesafe.testing.cut import cut_at

FIRST, SECOND = Keyring.new_key(), Keyring.new_key()
RING = Keyring({"first": FIRST}, current="first")
SECRET = b'{"card":"4242 4242 4242 4242","note":"' + b"thank you " * 200 + b'"}'
SECRETS = StoredResponse(201, ((b"content-type", b"application/json"), (b"x-customer", b"ada lovelace")), SECRET)


# --- what lies there -------------------------------------------------------------------------------------------------


class Shelf:
    """A SQLite file under sealed stores of several keyrings, and a plain look at its rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.inner = SqliteStore(path, clock=self.clock)
        self.inner.apply_schema()
        self.unreadable: list[tuple[Record, StoreError]] = []

    def store(self, keys: Keyring | None = RING, **settings: Any) -> SealedStore:
        """One more process, with these keys."""
        return SealedStore(
            self.inner, keys=keys, unreadable=lambda record, why: self.unreadable.append((record, why)), **settings
        )

    def rows(self, query: str = "SELECT status, headers, body, request FROM twicesafe_records") -> list[Any]:
        """As they lie there."""
        with sqlite3.connect(self.path) as plain:
            found = plain.execute(query).fetchall()
        plain.close()
        return found

    def change(self, query: str) -> None:
        """Behind everybody's back."""
        with sqlite3.connect(self.path) as plain:
            assert plain.execute(query).rowcount > 0
        plain.close()


@pytest.fixture
def shelf(tmp_path: Path) -> Any:
    """A fresh one."""
    made = Shelf(tmp_path / "records.db")
    yield made
    made.inner.close()


def won(store: SealedStore, key: str = "key", **changes: Any) -> Ownership:
    """Claim and win."""
    found = store.claim(wish(key, **changes))
    assert isinstance(found, Claimed)
    return found.ownership


def done(store: SealedStore, key: str = "key", response: StoredResponse = SECRETS) -> Ownership:
    """Claim and complete."""
    own = won(store, key)
    store.complete(own, response, KEY, BODY)
    return own


def told(store: SealedStore, key: str = "key", **changes: Any) -> Existing:
    """What the next attempt is told; it never runs."""
    found = store.claim(wish(key, **changes))
    assert isinstance(found, Existing), "an answer that cannot be opened was run again"
    return found


def replayed(store: SealedStore, key: str = "key") -> StoredResponse:
    """The answer that the next attempt gets."""
    found = told(store, key)
    assert found.verdict is Verdict.REPLAY
    assert found.record is not None and found.record.response is not None
    return found.record.response


def test_neither_header_lines_nor_bodies_nor_requests_lie_there_in_the_clear(shelf: Shelf) -> None:
    """R22: the file holds no byte run of the answer or the request, by complete, start_answer and settle alike."""
    store = shelf.store()
    done(store)
    own = won(store, "stream", request=b"POST secret request " * 20)
    store.start_answer(own, SECRETS._replace(body=None))
    held = won(store, "held")
    store.hold(held)
    assert store.settle(held, SECRETS, KEY, BODY)
    rows = shelf.rows()
    assert [row[0] for row in rows] == [201, 201, 201]
    for column in [value for row in rows for value in row[1:] if value is not None]:
        for word in (b"4242 4242", b"thank you", b"lovelace", b"application", b"secret request"):
            assert word not in column
    assert replayed(store) == replayed(store, "held") == SECRETS
    assert store.read(own.digest).record.request == b"POST secret request " * 20  # type: ignore[union-attr]


def test_a_transaction_seals_too(shelf: Shelf) -> None:
    """R22, R23: an answer recorded in the handler's own transaction lies there sealed, and is replayed open."""
    store = shelf.store()
    with store.transaction() as transaction:
        found = transaction.claim(wish(effects=Effects.TRANSACTIONAL))
        assert isinstance(found, Claimed)
        transaction.complete(found.ownership, SECRETS, KEY, BODY)
    ((_, headers, body, _),) = shelf.rows()
    assert b"lovelace" not in headers and b"4242 4242" not in body
    with store.transaction() as transaction:
        again = transaction.claim(wish(effects=Effects.TRANSACTIONAL))
    assert isinstance(again, Existing) and again.record is not None and again.record.response == SECRETS


def test_a_body_is_compressed_only_where_that_pays(shelf: Shelf) -> None:
    """R22: repetition shrinks; noise, and what is short, stays as it is; nothing grows by more than its seal."""
    noise = bytes(range(256)) * 4
    noise = bytes(byte ^ (n * n % 251) for n, byte in enumerate(noise))
    for name, keys, most in (("plain", None, 0), ("sealed", RING, 1 + 1 + 5 + 12 + 16)):
        store = shelf.store(keys)
        done(store, f"{name} long", SECRETS)
        done(store, f"{name} short", SECRETS._replace(body=b"a" * 200))
        done(store, f"{name} noise", SECRETS._replace(body=noise))
        (long, short, random) = [row[2] for row in shelf.rows()][-3:]
        assert len(long) < len(SECRET) / 4
        assert len(short) <= 200 + most
        assert len(random) <= len(noise) + most
        assert replayed(store, f"{name} noise").body == noise
        assert replayed(store, f"{name} short").body == b"a" * 200
        assert replayed(store, f"{name} long") == SECRETS


def test_records_from_before_are_read_as_they_are(shelf: Shelf) -> None:
    """R22: sealing may be turned on under live keys; answers and requests that lie there in the clear are replayed."""
    own = shelf.inner.claim(wish(request=b"an old request"))
    assert isinstance(own, Claimed)
    shelf.inner.complete(own.ownership, SECRETS, KEY, BODY)
    assert replayed(shelf.store()) == SECRETS
    assert shelf.store().read(digest_of("key")).record.request == b"an old request"  # type: ignore[union-attr]
    done(shelf.store(None), "compressed")
    assert replayed(shelf.store(), "compressed") == SECRETS


@given(body=st.none() | st.binary(max_size=3000), lines=st.lists(st.tuples(st.binary(min_size=1), st.binary())),
       epoch=st.integers(1, 2**40), least=st.none() | st.integers(0, 100), encrypted=st.booleans())  # fmt: skip
def test_whatever_is_sealed_is_opened_byte_for_byte(
    body: bytes | None, lines: list[tuple[bytes, bytes]], epoch: int, least: int | None, encrypted: bool
) -> None:
    """D1, D4, D6, R17: any body, empty and absent ones apart, and any header lines come back as they were."""
    sealing = Sealing(RING if encrypted else None, least)
    response = StoredResponse(200, tuple(line for line in lines if line[0] != MARK), body)
    stored = sealing.seal(response, digest_of("key"), epoch)
    assert stored.status == 200
    assert (stored.body is None) is (body is None)
    assert sealing.open(stored, digest_of("key"), epoch) == response
    assert sealing.open_request(sealing.seal_request(b"r" * 500, b"d"), b"d") == b"r" * 500


# --- keys ------------------------------------------------------------------------------------------------------------


def test_old_keys_still_read_while_the_new_one_writes(shelf: Shelf) -> None:
    """R22: after a rotation both answers are replayed, and the new one lies there under the new key's id."""
    both = Keyring({"first": FIRST, "second": SECOND}, current="second")
    done(shelf.store(), "old")
    done(shelf.store(both), "new")
    assert replayed(shelf.store(both), "old") == replayed(shelf.store(both), "new") == SECRETS
    old, new = [row[2] for row in shelf.rows()]
    assert b"first" in old and b"second" not in old
    assert b"second" in new and b"first" not in new


def test_a_missing_key_is_an_error_that_names_it_and_never_a_second_run(shelf: Shelf) -> None:
    """R22, I5: where a key is missing a replay is refused for now; where it is not, the answer is still there."""
    done(shelf.store())
    for keys, said in ((Keyring({"second": SECOND}, current="second"), "'first'"), (None, "given no keys")):
        other = shelf.store(keys)
        for _ in range(2):
            with pytest.raises(SealKeyMissingError, match=said):
                other.claim(wish())
        shown = other.read(digest_of("key")).record
        assert shown is not None and shown.response == StoredResponse(201, (), None)
    assert len(shelf.unreadable) == 6
    assert all(SECRET not in str(why).encode() for _, why in shelf.unreadable)
    assert replayed(shelf.store()) == SECRETS


def test_a_discarded_key_means_done_and_not_kept(shelf: Shelf) -> None:
    """R20, R22: what a discarded key encrypted is gone for good; the key still says done, and another request 422."""
    done(shelf.store())
    after = shelf.store(Keyring({"second": SECOND}, current="second", discarded={"first"}))
    found = told(after)
    assert found.verdict is Verdict.GONE
    assert found.record is not None and found.record.response == StoredResponse(201, (), None)
    assert isinstance(shelf.unreadable[0][1], SealBrokenError)
    other = wish()._replace(fingerprint=wish().fingerprint)
    assert told(after, fingerprint=_other(other)).verdict is Verdict.MISMATCH


def _other(claim: Claim) -> Any:
    from twicesafe.core.fingerprint import GivenFingerprint

    return GivenFingerprint(claim.fingerprint.value[:1] + b"o" * 32)


@pytest.mark.parametrize(
    "swap",
    [
        "UPDATE twicesafe_records SET body = (SELECT body FROM twicesafe_records WHERE scope = 'bob')",
        "UPDATE twicesafe_records SET headers = (SELECT headers FROM twicesafe_records WHERE scope = 'bob')",
        "UPDATE twicesafe_records SET body = substr(headers, 14)",
        "UPDATE twicesafe_records SET body = CAST(substr(body, 1, length(body) - 1) || x'00' AS BLOB)",
        "UPDATE twicesafe_records SET body = x'07'",
        "UPDATE twicesafe_records SET body = x''",
        "UPDATE twicesafe_records SET body = x'02ff'",
        "UPDATE twicesafe_records SET body = CAST(x'00' || substr(body, 2) AS BLOB)",
        "UPDATE twicesafe_records SET headers = CAST(substr(headers, 1, 12) || 'x' || substr(headers, 14) AS BLOB)",
        "UPDATE twicesafe_records SET epoch = epoch + 1",
    ],
    ids=[
        "body",
        "headers",
        "headers as body",
        "last byte",
        "unknown seal",
        "empty",
        "cut",
        "as if plain",
        "mark",
        "another life",
    ],
)
def test_an_answer_serves_its_own_record_only(shelf: Shelf, swap: str) -> None:
    """R22, I7: changed or moved from another caller's record, an answer is shown to nobody; nothing runs again."""
    store = shelf.store()
    done(store)
    bobs = won(store, "bob", scope="bob")
    store.complete(bobs, SECRETS._replace(body=b"bob's " * 400), KEY, BODY)
    shelf.change(f"{swap} WHERE scope = 'caller'")
    found = told(store)
    assert found.verdict is Verdict.GONE
    assert found.record is not None and found.record.response == StoredResponse(201, (), None)
    assert [type(why) for _, why in shelf.unreadable] == [SealBrokenError]
    assert replayed(store, "bob").body == b"bob's " * 400


def test_a_claim_that_goes_on_from_a_lost_run_is_won_whatever_its_request(shelf: Shelf) -> None:
    """R13, R22: a take-over is a claim that stands; a kept request that cannot be opened is missing, not in its way."""
    won(shelf.store(), request=b"the request")
    shelf.clock.advance(timedelta(microseconds=LEASE))
    found = shelf.store(Keyring({"second": SECOND}, current="second")).claim(wish())
    assert isinstance(found, Claimed) and found.previous is not None
    assert found.previous.request is None
    assert isinstance(shelf.unreadable[0][1], SealKeyMissingError)


@pytest.mark.parametrize("gone", ["missing", "discarded"])
def test_what_a_client_is_told_when_its_answer_cannot_be_opened(gone: str) -> None:
    """R20, R22, R42: 503 where a key is missing for now, "done, not kept" where it is gone; effects stay 1."""

    async def trial() -> None:
        inner = AsyncMemoryStore()
        runs = []

        async def handler(_: Any) -> Responded:
            runs.append(1)
            return Responded(201, SECRETS.headers, SECRET)

        async def attempt(store: AsyncSealedStore) -> Any:
            return (await cut_at(None, wish(), Policy(), store, handler)).result

        await attempt(AsyncSealedStore(inner, keys=RING))
        left = {"discarded": ["first"]} if gone == "discarded" else {}
        later = AsyncSealedStore(inner, keys=Keyring({"second": SECOND}, current="second", **left))
        result = await attempt(later)
        assert runs == [1]
        assert type(result) is Answer
        assert result.status == (201 if gone == "discarded" else 503)
        kind = "result-not-kept" if gone == "discarded" else "store-unavailable"
        assert json.loads(result.body)["type"].endswith(kind)
        assert b"4242 4242" not in result.body
        again = await attempt(AsyncSealedStore(inner, keys=RING))
        assert runs == [1]
        assert again.body == SECRET

    asyncio.run(trial())


def test_a_large_answer_is_sealed_beside_the_loop() -> None:
    """R18, R22: an answer of a megabyte goes through threads and comes back whole, by claim and by read."""

    async def trial() -> None:
        store = AsyncSealedStore(AsyncMemoryStore(), keys=RING)
        found = await store.claim(wish())
        assert isinstance(found, Claimed)
        large = SECRETS._replace(body=SECRET * 500)
        await store.complete(found.ownership, large, KEY, BODY)
        again = await store.claim(wish())
        assert isinstance(again, Existing) and again.record is not None
        assert again.record.response == large
        record = (await store.read(digest_of("key"))).record
        assert record is not None and record.response == large

    asyncio.run(trial())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Keyring({"a": b"short"}, current="a"), "32 bytes"),
        (lambda: Keyring({"a": FIRST}, current="b"), "current"),
        (lambda: Keyring({"a": FIRST}, current="a", discarded={"a"}), "both"),
        (lambda: Keyring({"a": FIRST}, current="a", discarded="b"), "discarded"),
        (lambda: Keyring({"": FIRST}, current=""), "id"),
        (lambda: Keyring({"a\n": FIRST}, current="a\n"), "printable"),
        (lambda: Keyring({"x" * 65: FIRST}, current="x" * 65), "id"),
        (lambda: SealedStore(MemoryStore(), compress_from=-1), "compress_from"),
        (lambda: AsyncSealedStore(AsyncMemoryStore(), compress_from=True), "compress_from"),
    ],
)
def test_wrong_settings_are_refused_at_once(wrong: Callable[[], object], said: str) -> None:
    """R22: a setting that cannot be meant is an error that names it, and shows no key."""
    with pytest.raises(ConfigurationError, match=said) as caught:
        wrong()
    assert repr(FIRST) not in str(caught.value) and "short" not in str(caught.value)


def test_what_a_store_can_do_besides_it_can_do_sealed() -> None:
    """R27: an optional method is there where the store has it, and missing where it has not."""
    assert hasattr(SealedStore(SqliteStore("records.db")), "settle_stale")

    class Bare:
        transactional = False

    assert not hasattr(SealedStore(Bare()), "settle_stale")  # type: ignore[arg-type]


def test_an_unsealed_answer_costs_nothing(shelf: Shelf) -> None:
    """R22: off by default: with no keys a short answer lies there as any store would have it."""
    done(shelf.store(None), response=ANSWER)
    assert shelf.inner.read(digest_of("key")).record.response == ANSWER  # type: ignore[union-attr]
