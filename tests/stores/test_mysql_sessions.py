"""MySQL beyond the contract: its clock, isolation and modes, and what handlers do with a connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncmy.errors
import pymysql
import pytest
from pymysql.constants import CLIENT

from tests.stores.claims import ANSWER, BODY, HEAD, KEY, LEASE, wish
from tests.stores.mysql_kinds import KIND, as_async, complete, whole, won
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import LeaseLostError, StoreUnavailableError
from twicesafe.testing import Outcome, check_store

ODD_ZONES = ("+12:45", "-11:00", "+05:45")
TRANSACTIONAL = Effects.TRANSACTIONAL
MYSQL_ERRORS = (asyncmy.errors.MySQLError, pymysql.MySQLError)


# --- its clock -------------------------------------------------------------------------------------------------------


@KIND
def test_no_time_zone_moves_a_lease(mysql_place, kind) -> None:
    """I12, K: whatever the session's time zone, a lease ends its length after the server's clock, to the second."""

    async def trial() -> None:
        async with mysql_place.opened() as store:
            await won(store, "here")
            for zone in ODD_ZONES:
                session = {"init_command": f"SET SESSION time_zone = '{zone}'"}
                there = as_async(mysql_place.store(session=session))
                try:
                    found = await there.claim(wish("here"))
                    assert isinstance(found, Existing)
                    assert found.verdict is Verdict.IN_PROGRESS
                    assert found.record is not None
                    assert 0 < found.record.lease_until - found.now <= LEASE
                    own = await won(there, zone)
                    row = (await store.read(own.digest)).record
                    assert row is not None
                    assert 0 <= await store.now() - row.created_at < 60_000_000
                finally:
                    await there.aclose()
            seconds = mysql_place.value("SELECT UNIX_TIMESTAMP()")
            assert abs(await store.now() - seconds * 1_000_000) < 60_000_000

    asyncio.run(trial())


# --- its isolation and modes -----------------------------------------------------------------------------------------


SESSIONS: dict[str, dict[str, Any]] = {
    "read committed, rows that match, lenient": {
        "init_command": "SET SESSION tx_isolation = 'READ-COMMITTED', SESSION sql_mode = ''",
        "client_flag": CLIENT.FOUND_ROWS,
    },
    "serializable, odd": {
        "init_command": "SET SESSION tx_isolation = 'SERIALIZABLE', "
        "SESSION sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,TRADITIONAL'",
        "charset": "gbk",
    },
}
"""Ways in which sessions of somebody else's differ. None of them commits each statement by itself."""


@KIND
@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize(
    ("check", "size"),
    [
        ("one_of_many_wins", 20),
        ("one_of_many_takes_over", 1),
        ("one_of_many_transactions_commits", 1),
        ("completing_twice_is_completing_once", 1),
        ("answers_come_back_byte_for_byte", 1),
    ],
)
def test_no_way_of_a_session_changes_an_answer(mysql_place, kind, session, check, size) -> None:
    """K, C1, C2: at every isolation level, sql_mode and way to count rows, everybody is told the same, no errors."""
    options = {"session": SESSIONS[session]}
    [result] = check_store(lambda clock: mysql_place.subject(clock, **options), only=[check], rivals=8, keys=size)
    assert result.outcome is Outcome.PASSED


@KIND
def test_a_claim_inside_sees_what_is_committed_now(mysql_place, kind) -> None:
    """K, C2: at REPEATABLE READ a claim in a transaction that has looked before finds a record committed since."""

    async def trial() -> None:
        async with mysql_place.opened() as store, store.transaction() as transaction:
            await transaction.begin()
            assert await mysql_place.sql_in(transaction, "SELECT count(*) FROM twicesafe_records") == 0
            await whole(mysql_place, store, "key")
            await mysql_place.write_in(transaction, "own row")
            assert await mysql_place.sql_in(transaction, "SELECT count(*) FROM twicesafe_records") == 0
            found = await transaction.claim(wish(effects=TRANSACTIONAL))
            assert isinstance(found, Existing)
            assert found.verdict is Verdict.REPLAY
            await transaction.commit()
            assert mysql_place.effects("own row") == 1

    asyncio.run(trial())


@KIND
@pytest.mark.parametrize("keep_effects", [True, False])
def test_a_claim_inside_is_completed_with_what_was_begun(mysql_place, kind, keep_effects) -> None:
    """R23, C2: rows written before a claim that is won commit with its answer, or go with its effects."""

    async def trial() -> None:
        async with mysql_place.opened() as store, store.transaction() as transaction:
            await transaction.begin()
            await mysql_place.write_in(transaction, "before")
            own = await won(transaction, effects=TRANSACTIONAL)
            await transaction.complete(own, ANSWER, KEY, BODY, keep_effects=keep_effects)
            assert mysql_place.effects("before") == (1 if keep_effects else 0)
            row = (await store.read(own.digest)).record
            assert row is not None
            assert (row.ownership, row.response) == (own, ANSWER)

    asyncio.run(trial())


@KIND
def test_a_transaction_locks_no_other_key(mysql_place, kind) -> None:
    """C8, K: while transactions run, keys between theirs are claimed and completed at once, at every level."""

    async def trial() -> None:
        session = {"init_command": "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"}
        async with (
            mysql_place.opened() as other,
            mysql_place.opened(session=session) as store,
            store.transaction() as first,
            store.transaction() as second,
        ):
            owns = [await won(one, key, effects=TRANSACTIONAL) for one, key in ((first, "1"), (second, "2"))]
            async with asyncio.timeout(30):
                for n in range(5):
                    await whole(mysql_place, other, f"key-{n}")
                    await complete(other, await won(other, f"leased-{n}"))
            await complete(second, owns[1])
            await complete(first, owns[0])

    asyncio.run(trial())


# --- what handlers do ------------------------------------------------------------------------------------------------


ENDINGS = {
    "COMMIT": (["COMMIT"], 1),
    "ROLLBACK": (["ROLLBACK"], 0),
    "COMMIT and another": (["COMMIT", "START TRANSACTION"], 1),
    "ROLLBACK and another": (["ROLLBACK", "BEGIN"], 0),
    "DDL": (["CREATE TABLE made (n INT)"], 1),
    "autocommit": (["SET autocommit = 0", "SET autocommit = 1"], 1),
}


@KIND
@pytest.mark.parametrize(("end", "keep_effects"), [*((end, True) for end in ENDINGS), ("COMMIT", False)])
def test_an_end_that_the_handler_made_is_not_a_success(mysql_place, kind, end, keep_effects) -> None:
    """R23, H2: where a handler ended its transaction, knowingly or not, nothing is recorded; the error says why."""
    statements, stands = ENDINGS[end]

    async def trial() -> None:
        async with mysql_place.opened(pool_size=1) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await mysql_place.write_in(transaction)
                for statement in statements:
                    await mysql_place.sql_in(transaction, statement)
                with pytest.raises(RuntimeError, match="may be committed"):
                    await transaction.complete(own, ANSWER, KEY, BODY, keep_effects=keep_effects)
            assert mysql_place.effects() == stands
            assert mysql_place.value("SELECT count(*) FROM twicesafe_records") == 0
            await whole(mysql_place, store, "other")

    asyncio.run(trial())


@KIND
def test_an_end_without_a_key_is_not_a_success(mysql_place, kind) -> None:
    """R23, H2: the same for a transaction that belongs to no key."""

    async def trial() -> None:
        async with mysql_place.opened(pool_size=1) as store:
            async with store.transaction() as transaction:
                await transaction.begin()
                await mysql_place.sql_in(transaction, "ROLLBACK")
                with pytest.raises(RuntimeError, match="may be committed"):
                    await transaction.commit()
            await whole(mysql_place, store, "other")

    asyncio.run(trial())


@KIND
def test_a_deadlock_that_a_handler_passed_over_is_not_a_success(mysql_place, kind) -> None:
    """H2, K: the server rolls back a deadlock's victim whole; if it answers 201 all the same, nothing is recorded."""

    async def trial() -> None:
        async with mysql_place.opened() as store:
            mysql_place.value("INSERT INTO effects (id, name) VALUES (1, 'a'), (2, 'b')")
            with mysql_place.server.connect(mysql_place.name, autocommit=False) as other, other.cursor() as cursor:
                # The one who has changed more rows is not the victim.
                cursor.execute("INSERT INTO effects (name) SELECT 'more' FROM seq_1_to_50")
                cursor.execute("UPDATE effects SET name = 'other' WHERE id = 1")
                async with store.transaction() as transaction:
                    own = await won(transaction, effects=TRANSACTIONAL)
                    await mysql_place.write_in(transaction)
                    await mysql_place.sql_in(transaction, "UPDATE effects SET name = 'mine' WHERE id = 2")
                    waiting = asyncio.create_task(
                        asyncio.to_thread(cursor.execute, "UPDATE effects SET name = 'other' WHERE id = 2")
                    )
                    query = "SELECT variable_value FROM information_schema.global_status"
                    query += " WHERE variable_name = 'Innodb_row_lock_current_waits'"
                    while await asyncio.to_thread(mysql_place.value, query) == "0":
                        assert not waiting.done()
                    with pytest.raises(MYSQL_ERRORS):
                        await mysql_place.sql_in(transaction, "UPDATE effects SET name = 'mine' WHERE id = 1")
                    await waiting
                    with pytest.raises(RuntimeError, match="deadlock"):
                        await complete(transaction, own)
                other.rollback()
            assert mysql_place.effects() == 0
            assert (await store.read(own.digest)).record is None
            await whole(mysql_place, store, "key")

    asyncio.run(trial())


@KIND
@pytest.mark.parametrize("ending", ["complete", "release", "leave", "fail"])
def test_no_lock_of_a_request_outlasts_it(mysql_place, kind, ending) -> None:
    """R23, C8: however a request ends, its key's lock and those of its handler are free, and the key with them."""

    async def trial() -> None:
        async with mysql_place.opened(pool_size=1) as store:
            with suppress(ZeroDivisionError):
                async with store.transaction() as transaction:
                    own = await won(transaction, effects=TRANSACTIONAL)
                    await mysql_place.sql_in(transaction, "SELECT GET_LOCK('of the handler', 0)")
                    if ending == "complete":
                        await complete(transaction, own)
                    elif ending == "release":
                        await transaction.release(own)
                    elif ending == "fail":
                        raise ZeroDivisionError
            async with mysql_place.opened() as other:
                found = await other.claim(wish())
                assert isinstance(found, Existing if ending == "complete" else Claimed)
            assert mysql_place.value("SELECT IS_FREE_LOCK('of the handler')") == 1

    asyncio.run(trial())


@KIND
@pytest.mark.parametrize("rival_first", [True, False])
def test_the_unique_key_arbitrates_where_locks_are_passed_by(mysql_place, kind, rival_first) -> None:
    """I1, I3: against a leased rival that takes no lock one row goes in: who loses it rolls its effect back."""

    async def trial() -> None:
        async with mysql_place.opened() as store, store.transaction() as transaction:
            own = await won(transaction, effects=TRANSACTIONAL)
            await mysql_place.write_in(transaction)
            if rival_first:
                await won(store)
                with pytest.raises(LeaseLostError):
                    await complete(transaction, own)
            else:
                await complete(transaction, own)
                found = await store.claim(wish())
                assert isinstance(found, Existing)
            assert mysql_place.effects() == (0 if rival_first else 1)
            assert mysql_place.value("SELECT count(*) FROM twicesafe_records") == 1

    asyncio.run(trial())


@KIND
def test_a_purge_waits_for_nobody(mysql_place, kind) -> None:
    """R20: rows that somebody is busy with are left for the next time, so that a purge never stands in a queue."""

    async def trial() -> None:
        async with mysql_place.opened(now_sql="SELECT now FROM clock") as store:
            mysql_place.set_clock(1)
            for key in ("busy", "idle"):
                await complete(store, await won(store, key))
            for after, expected in ((BODY, "body IS NULL"), (KEY, "FALSE")):
                mysql_place.set_clock(1 + after)
                with mysql_place.server.connect(mysql_place.name, autocommit=False) as somebody:
                    with somebody.cursor() as cursor:
                        cursor.execute(
                            "SELECT 1 FROM twicesafe_records WHERE digest = %s FOR UPDATE", [wish("busy").digest]
                        )
                    assert await store.purge() == 1
                    somebody.rollback()
                assert await store.purge() == 1
                total = mysql_place.value("SELECT count(*) FROM twicesafe_records")
                assert mysql_place.value(f"SELECT count(*) FROM twicesafe_records WHERE {expected}") == total

    asyncio.run(trial())


# --- what does not fit -----------------------------------------------------------------------------------------------


@KIND
@pytest.mark.parametrize("effects", [Effects.TRANSACTIONAL, Effects.OPAQUE])
def test_an_answer_too_large_for_a_packet_is_done_and_not_kept(mysql_place, kind, effects) -> None:
    """R18, A4: past max_allowed_packet the effect stands, once, and retries are told that it is done."""
    large = ANSWER._replace(body=bytes(mysql_place.value("SELECT @@max_allowed_packet") // 2))

    async def trial() -> None:
        async with mysql_place.opened() as store:
            if effects is TRANSACTIONAL:
                async with store.transaction() as transaction:
                    own = await won(transaction, effects=effects)
                    await mysql_place.write_in(transaction)
                    await transaction.complete(own, large, KEY, BODY)
                assert mysql_place.effects() == 1
            else:
                await store.complete(await won(store, effects=effects), large, KEY, BODY)
            found = await store.claim(wish())
            assert isinstance(found, Existing)
            assert found.verdict is Verdict.GONE
            assert found.record is not None
            assert found.record.response == HEAD

    asyncio.run(trial())


@KIND
def test_a_request_too_large_to_be_kept_claims_nothing(mysql_place, kind) -> None:
    """R13, A4: a claim that no packet holds is refused before anything is sent, and the message names the setting."""

    async def trial() -> None:
        async with mysql_place.opened() as store:
            size = mysql_place.value("SELECT @@max_allowed_packet") // 2
            with pytest.raises(StoreUnavailableError, match="max_allowed_packet"):
                await store.claim(wish(request=bytes(size)))
            assert mysql_place.value("SELECT count(*) FROM twicesafe_records") == 0
            await won(store)

    asyncio.run(trial())
