"""Stores that were used before a fork, as under a server that loads the application and then forks its workers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.stores import mysql_kinds, postgresql_kinds

PROGRAM = """
import os, sys
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.record import Effects
from twicesafe.stores.{module} import {store} as Store

store = Store(sys.argv[1], pool_size=2)
store.apply_schema()
who = {who}

def whoever():
    with store.transaction() as transaction:
        transaction.begin()
        cursor = transaction.connection.cursor()
        cursor.execute(who)
        return cursor.fetchone()[0]

def use(key):
    for n in range(3):
        own = store.claim(wish(f"{{key}} {{n}}")).ownership
        store.complete(own, ANSWER, KEY, BODY)
        with store.transaction() as transaction:
            own = transaction.claim(wish(f"{{key}} {{n}} in a transaction", effects=Effects.TRANSACTIONAL)).ownership
            transaction.complete(own, ANSWER, KEY, BODY)

use("before")
sessions = {{whoever()}}
asked, told = os.pipe()
children = []
for name in "ab":
    children.append(os.fork())
    if not children[-1]:
        use(name)
        os.write(told, b"%d\\n" % whoever())
        store.close()
        os._exit(0)
use("parent")
assert whoever() in sessions
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
os.close(told)
sessions.update(int(line) for line in os.fdopen(asked))
assert len(sessions) == 3, sessions
use("after")
store.close()
"""


def ends_well(place: Any, address: str, module: str, store: str, who: str) -> None:
    """Run it, and look at what was recorded."""
    program = PROGRAM.format(module=module, store=store, who=repr(who))
    command = [sys.executable, "-W", "ignore", "-c", program, address]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert place.value("SELECT count(*) FROM twicesafe_records WHERE state = 'completed'") == 5 * 6


@pytest.mark.parametrize("kind", ["psycopg"])
def test_postgresql(place: postgresql_kinds.Place, kind: str) -> None:
    """I1, C8: children have sessions of their own, and leave their parent's alone."""
    ends_well(place, place.dsn_with(), "psycopg", "PsycopgStore", "SELECT pg_backend_pid()")


@pytest.mark.parametrize("kind", ["pymysql"])
def test_mysql(mysql_place: mysql_kinds.Place, kind: str) -> None:
    """I1, C8: children have sessions of their own, and leave their parent's alone."""
    address = mysql_place.server.dsn(mysql_place.name)
    ends_well(mysql_place, address, "pymysql", "PymysqlStore", "SELECT CONNECTION_ID()")
