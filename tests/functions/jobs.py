"""Jobs of a shop, as an application has them, for processes that are really killed and workers that are really started.

The environment says where its database is, and at which step a process is to die.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from contextlib import closing
from datetime import timedelta
from typing import Any

from twicesafe.once import Once, current
from twicesafe.reconcile import NotDone, Reconcilers
from twicesafe.resuming import Steps
from twicesafe.stores.sqlite import SqliteStore
from twicesafe.worker import Worker

FILE = os.environ["SHOP_DB"]
PROVIDER = FILE + ".provider"

store = SqliteStore(FILE)
once = Once(store, scope="shop")
reconcilers = Reconcilers(store)
reconcilers.of("jobs.lost")(lambda unknown: NotDone())


def prepare() -> None:
    """The tables of the shop, and of its provider."""
    store.apply_schema()
    for file, table in ((FILE, "steps (step TEXT)"), (PROVIDER, "charges (key TEXT PRIMARY KEY)")):
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
            connection.commit()


def note(connection: sqlite3.Connection, step: str) -> None:
    connection.execute("INSERT INTO steps VALUES (?)", (step,))


def charge(key: str) -> str:
    with closing(sqlite3.connect(PROVIDER)) as connection:
        connection.execute("INSERT OR IGNORE INTO charges VALUES (?)", (key,))
        connection.commit()
    return "charged"


@once.operation(key=lambda order: order, name="jobs.buy", effects="resumable", lease=timedelta(milliseconds=300))
def buy(order: str) -> str:
    at = current()
    at.phase("reserve", note, "reserve")
    receipt = at.call("charge", charge, remembers=timedelta(hours=1))
    at.phase("paid", note, receipt)
    fee = at.call("fee", charge, remembers=timedelta(hours=1))
    at.phase("fees", note, fee)
    at.phase("end", note, "end")
    return order


@once.operation(key=lambda: "lost", name="jobs.lost", unknown_on_error=True)
def lost() -> None:
    raise TimeoutError


worker = Worker(once, reconcilers, every=timedelta(milliseconds=100))


def die_at(number: int) -> None:
    """SIGKILL to this very process in place of its step of that number."""
    perform = Steps._perform
    left = [number]

    def dying(steps: Any, step: Any, *others: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return perform(steps, step, *others)

    Steps._perform = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    prepare()
    for order in sys.argv[2:]:
        pid = os.fork()
        if pid == 0:
            die_at(int(order))
            buy(f"order-{order}")
            os._exit(0)
        os.waitpid(pid, 0)
