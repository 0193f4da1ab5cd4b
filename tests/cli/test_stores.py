"""`twicesafe stores check`: the contract, put to the test on a server of one's own."""

from __future__ import annotations

import asyncio
import gc
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.cli.running import command, twicesafe, twicesafe_within
from tests.servers.dynamodb import DynamodbServer
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresqlServer
from tests.servers.redis import Cluster, RedisServer
from tests.stores.claims import wish
from tests.stores.dynamodb_place import new_place
from twicesafe.checking import Standing, check_stores, throw_away
from twicesafe.checking.local import in_memory
from twicesafe.stores.urls import open_store
from twicesafe.testing import CHECKS, MakeStore, Outcome
from twicesafe.testing.check import STATEMENTS, TRANSACTIONS

SOME = ("a_claim_is_kept_as_asked", "purging_takes_only_what_has_ended", "a_released_key_is_free")
"""Enough to see whether a check finds its place fresh."""
IN_TRANSACTIONS = ("effect_and_answer_commit_together", "leaving_rolls_back")


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--check", name)]


def outcomes(ran: object, store: str) -> list[str]:
    return [check["outcome"] for check in ran.json["stores"][store]["checks"]]


def test_every_check_is_run_both_ways_and_shown_in_a_table() -> None:
    """R42: the table has a line for each check and a column for each way, and says what does not apply and why."""
    ran = twicesafe_within("stores", "check", "memory:")
    assert ran.status == 0
    lines = {words[0]: words[1:] for line in ran.out.splitlines() if (words := line.split())}
    for check in CHECKS:
        applies = not {STATEMENTS, TRANSACTIONS}.intersection(check.needs)
        assert lines[check.name] == (["ok", "ok"] if applies else ["-", "-"]), check.name
    assert "the store has no transactions" in ran.out
    assert lines["memory:"][1:2] == ["passed,"]


def test_a_file_is_checked_beside_and_left_alone(tmp_path: Path) -> None:
    """R42: SQLite is checked in files of its own; the file itself is neither written nor even made."""
    file = tmp_path / "shop.db"
    ran = twicesafe_within("stores", "check", f"sqlite:///{file}", "--json", *only(*SOME, *IN_TRANSACTIONS))
    assert ran.status == 0
    assert list(tmp_path.iterdir()) == []
    for store in ("sqlite", "sqlite, asyncio"):
        assert outcomes(ran, store) == ["passed"] * 5
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE twicesafe_records (mine)")
    before = file.read_bytes()
    assert twicesafe_within("stores", "check", f"sqlite:///{file}", *only(*SOME)).status == 0
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_postgresql_is_checked_in_a_schema_of_its_own(postgresql_server: PostgresqlServer) -> None:
    """R42: both drivers, in a schema that is gone afterwards; the records that were there stay as they are."""
    dsn = postgresql_server.create_database()
    with closing(open_store(dsn)) as store:
        store.apply_schema()
        store.claim(wish())

    def everything() -> list[object]:
        with psycopg.connect(dsn) as connection:
            schemas = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' ORDER BY 1"
            ).fetchall()
            return [schemas, connection.execute("SELECT * FROM twicesafe_records").fetchall()]

    before = everything()
    ran = twicesafe_within("stores", "check", dsn, "--json", *only(*SOME, *IN_TRANSACTIONS))
    assert everything() == before
    assert ran.status == 0
    for column in ("postgresql", "postgresql, asyncio"):
        assert outcomes(ran, column) == ["passed"] * 5


def test_mysql_is_checked_in_a_database_of_its_own(mariadb_server: MariadbServer) -> None:
    """R42: both drivers, in a database that is gone afterwards."""

    def databases() -> set[str]:
        with mariadb_server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW DATABASES LIKE 'twicesafe\\_check%'")
            return {name for (name,) in cursor.fetchall()}

    ran = twicesafe_within("stores", "check", mariadb_server.dsn(), "--json", *only(*SOME, *IN_TRANSACTIONS))
    assert databases() == set()
    assert ran.status == 0, ran.out
    for store in ("mysql", "mysql, asyncio"):
        assert outcomes(ran, store) == ["passed"] * 5


def test_redis_is_checked_under_a_prefix_of_its_own(redis_server: RedisServer, redis_cluster: Cluster) -> None:
    """R42: both ways, on one server and on a cluster, under a prefix of which no key is left."""
    for server, kind in ((redis_server, "redis"), (redis_cluster, "redis+cluster")):
        ran = twicesafe_within("stores", "check", server.url, "--json", *only(*SOME))
        for node in [server] if isinstance(server, RedisServer) else server.servers:
            with closing(node.client()) as client:
                assert client.keys("twicesafe_check*") == []
        assert ran.status == 0, ran.out
        for column in (kind, f"{kind}, asyncio"):
            assert outcomes(ran, column) == ["passed"] * 3


def test_dynamodb_is_checked_in_tables_of_its_own(dynamodb_server: DynamodbServer) -> None:
    """R42: both ways, in tables that are gone afterwards, whether or not the address names one that is there."""
    place = new_place(dynamodb_server, "dynamodb")
    before = place.client.list_tables()["TableNames"]
    url = dynamodb_server.url(place.table)
    # The emulator is a thread of this process; and purging asks it for more than all the others.
    names = [name for name in (*SOME, *IN_TRANSACTIONS) if not name.startswith("purging")]
    ran = twicesafe("stores", "check", url, "--json", *only(*names))
    assert place.client.list_tables()["TableNames"] == before
    assert ran.status == 0, ran.out
    for store in ("dynamodb", "dynamodb, asyncio"):
        assert outcomes(ran, store) == ["passed"] * 4


def test_an_endpoint_that_does_not_answer_is_said_so(dynamodb_server: DynamodbServer) -> None:
    """House: where no table can be made, one line says why, with status 2."""
    ran = twicesafe_within("stores", "check", "dynamodb://eu-central-1/shop?endpoint=http://127.0.0.1:1")
    assert (ran.status, ran.out) == (2, "")
    assert "http://127.0.0.1:1" in ran.err.splitlines()[-1]


def test_several_stores_stand_beside_each_other(tmp_path: Path) -> None:
    """R42: several addresses are several columns, those of one kind numbered."""
    urls = ("memory:", f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db")
    ran = twicesafe_within("stores", "check", *urls, "--json", *only(*SOME))
    assert ran.status == 0
    assert list(ran.json["stores"]) == [
        "memory", "memory, asyncio", "sqlite", "sqlite, asyncio", "sqlite #2", "sqlite, asyncio #2"
    ]  # fmt: skip


def test_a_broken_promise_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """R42: a store that breaks a promise fails the check, and the reason is told."""
    whole = in_memory()

    def forgetful(make: MakeStore) -> MakeStore:
        def made(clock: object) -> object:
            subject = make(clock)
            subject.store.release = subject.store.hold
            return subject

        return made

    broken = whole._replace(ways={way: forgetful(make) for way, make in whole.ways.items()})
    monkeypatch.setattr(throw_away, "in_memory", lambda: broken)
    standing = Standing()
    checked = asyncio.run(check_stores(["memory:"], standing, ["a_released_key_is_free"]))
    assert not checked.passed
    assert (standing.done, standing.total, standing.failed) == (2, 2, 2)
    for column in checked.results.values():
        assert [(result.outcome, result.reason != "") for result in column] == [(Outcome.FAILED, True)]


def test_an_unheard_of_check_is_refused() -> None:
    """House: a check that there is none of ends with status 2 before anything is made."""
    ran = twicesafe_within("stores", "check", "memory:", "--check", "no_such_check")
    assert (ran.status, ran.out) == (2, "")
    assert "no_such_check" in ran.err


def test_a_missing_driver_is_named_with_its_extra() -> None:
    """House: without any driver one line names the extra; without one of two, a note does, and the other is checked."""
    program = "import sys\nfor name in sys.argv.pop(1).split(','): sys.modules[name] = None\n"
    program += "from twicesafe.cli import main; main()"
    for missing, extra in (("psycopg,asyncpg", "psycopg"), ("boto3,aiobotocore,botocore", "dynamodb")):
        url = "dynamodb://eu-central-1/t" if extra == "dynamodb" else "postgresql://127.0.0.1:1/shop"
        arguments = [sys.executable, "-c", program, missing, "stores", "check", url]
        ran = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert f"pip install 'twicesafe[{extra}]'" in ran.stderr.splitlines()[-1]
    arguments = [sys.executable, "-c", program, "aiosqlite", "stores", "check", "sqlite:///x.db", *only(*SOME)]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0
    assert "pip install 'twicesafe[aiosqlite]'" in ran.stderr
    assert "asyncio" not in ran.stdout


def test_interrupted_it_leaves_nothing(postgresql_server: PostgresqlServer) -> None:
    """House: SIGINT ends it with status 130, and the schema that was made for it is removed."""
    dsn = postgresql_server.create_database()
    made = "SELECT count(*) FROM pg_namespace WHERE nspname ~ '^twicesafe_check_'"
    with (
        psycopg.connect(dsn, autocommit=True) as connection,
        subprocess.Popen(command("stores", "check", dsn), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        try:
            # Bounded by the test's own time.
            while connection.execute(made).fetchone() == (0,):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 130
        assert connection.execute(made).fetchone() == (0,)


def test_interrupted_among_rivals_it_says_nothing() -> None:
    """A1: cancelled while many rivals are at work, a check ends without exceptions that nobody heard of."""
    noise = []

    async def trial() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: noise.append(told))
        checking = asyncio.create_task(check_stores(["memory:"], Standing(), ["one_of_many_wins"], keys=1_000_000))
        while len(asyncio.all_tasks()) < 16:  # noqa: ASYNC110 - there is nothing that tells of it
            await asyncio.sleep(0)
        checking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await checking
        del checking
        gc.collect()

    asyncio.run(trial())
    assert noise == []
