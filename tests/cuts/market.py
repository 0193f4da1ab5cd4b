"""A shop of several processes: its database, a clock that they all go by, and a payment provider.

Where it is fits into a line of text, so that processes can be told. Each may be told as well at which step it dies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from twicesafe.once import Answered, AsyncOnce, Done, NotDone, Once, current
from twicesafe.stores.urls import open_async_store, open_store

STEPS = 4 * 4 + 2 * 3
"""Begin, run, advance and commit of four phases; advance, send and advance of two calls."""
PHASES = ["reserve", "charged", "paid", "end"]
CALLS = ["charge", "fee"]
_MICROSECOND = timedelta(microseconds=1)


class Death:
    """At which step this process is killed. None: at none."""

    left: int | None = None

    def step(self) -> None:
        """One more is taken."""
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.left is not None:
            self.left -= 1


DEATH = Death()


class Provider:
    """Another system: it charges once per key, and forgets a key when its window is over."""

    def __init__(self, file: Path, clock: Callable[[], int], window: timedelta) -> None:
        self._file = file
        self._clock = clock
        self._window = window // _MICROSECOND

    def make(self) -> None:
        with self._open() as ledger:
            ledger.execute("PRAGMA journal_mode = WAL")
            ledger.execute("CREATE TABLE charges (number INTEGER PRIMARY KEY, key TEXT, what TEXT, at INTEGER)")
            ledger.execute("CREATE TABLE asked (how TEXT, key TEXT, what TEXT)")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file, isolation_level=None, timeout=30)) as ledger:
            ledger.execute("PRAGMA synchronous = OFF")
            yield ledger

    def charge(self, key: str, what: str) -> str:
        with self._open() as ledger:
            ledger.execute("BEGIN IMMEDIATE")
            ledger.execute("INSERT INTO asked VALUES ('charge', ?, ?)", (key, what))
            known = ledger.execute(
                "SELECT min(number) FROM charges WHERE key = ? AND at > ?", (key, self._clock() - self._window)
            ).fetchone()[0]
            if known is None:
                new = "INSERT INTO charges (key, what, at) VALUES (?, ?, ?) RETURNING number"
                known = ledger.execute(new, (key, what, self._clock())).fetchone()[0]
            ledger.execute("COMMIT")
        return f"ch_{known}"

    def find(self, key: str, what: str) -> Answered:
        with self._open() as ledger:
            ledger.execute("INSERT INTO asked VALUES ('find', ?, ?)", (key, what))
            found = ledger.execute("SELECT number FROM charges WHERE key = ?", (key,)).fetchone()
        return NotDone() if found is None else Done(f"ch_{found[0]}")

    def charges(self, what: str) -> list[str]:
        """What was charged for it."""
        with self._open() as ledger:
            return [
                f"ch_{number}" for (number,) in ledger.execute("SELECT number FROM charges WHERE what = ?", (what,))
            ]

    def asked(self, what: str) -> list[str]:
        """How it was asked for it: to charge, or whether it has."""
        with self._open() as ledger:
            return [how for (how,) in ledger.execute("SELECT how FROM asked WHERE what = ? ORDER BY rowid", (what,))]


@dataclass(frozen=True)
class Market:
    """Where all of it is. `looks_up`: whether the shop asks the provider what became of a charge."""

    url: str
    folder: str
    window: float = 3600
    """For how many seconds the provider recognises a key, as it does and as the shop believes."""
    looks_up: bool = False
    lease: float = 30

    @property
    def provider(self) -> Provider:
        return Provider(Path(self.folder, "provider.db"), self.clock, timedelta(seconds=self.window))

    def clock(self) -> int:
        """The time that all of them go by, unless it is the database that tells it."""
        return int(Path(self.folder, "clock").read_text(encoding="ascii"))

    def tell_time(self, now: int) -> None:
        Path(self.folder, "clock").write_text(str(now), encoding="ascii")

    def open(self, *, asynchronous: bool) -> Any:
        """A store, on the clock of all."""
        options: dict[str, Any] = {"now_sql": "SELECT now FROM clock"}
        if self.url.startswith("sqlite:"):
            options = {"clock": self.clock}
        return (open_async_store if asynchronous else open_store)(self.url, **options)


def _row(order: str, step: str) -> str:
    return f"INSERT INTO effects (name) VALUES ('{order} {step}')"


class Jobs(dict[str, Callable[..., Any]]):
    """What a firm does under a key, by what it declares of it; declared when it is needed."""

    def __init__(self, firm: Firm) -> None:
        super().__init__()
        self._firm = firm

    def __missing__(self, effects: str) -> Callable[..., Any]:
        firm = self._firm
        declared = firm.once.operation(
            key=lambda order, cents=100: order, name=effects, effects=effects,
            lease=timedelta(seconds=firm.market.lease),
        )  # fmt: skip
        found: Callable[..., Any] = declared(getattr(firm, effects))
        self[effects] = found
        return found


class Firm:
    """The shop in one process, whose calls block, and its jobs."""

    at_rest: Callable[[], object] = staticmethod(lambda: None)
    """Called about whatever a job does."""

    def __init__(self, market: Market, store: Any = None) -> None:
        self.market = market
        self.provider = market.provider
        self.store: Any = self._opened() if store is None else store
        self.once = self._once()
        # The time stands still for leases too: a renewal that is under way when its process dies may be made later on.
        self.once._shared.renewals.watch = lambda *claim: None
        self._call = {
            "remembers": timedelta(seconds=market.window),
            "look_up": self.provider.find if market.looks_up else None,
        }
        self.jobs = Jobs(self)

    def resume(self) -> Any:
        """One round of a worker's."""
        return self.end(self.resuming())

    def resuming(self) -> Any:
        """See Once.resume."""
        self.jobs["resumable"]
        return self.once.resume()

    def _opened(self) -> Any:
        return self.market.open(asynchronous=False)

    def _once(self) -> Any:
        return Once(self.store, scope="shop", observer=lambda event: None)

    def another(self, store: Any = None) -> Firm:
        """Another one, on the same store or on this."""
        return Firm(self.market, store or self.store)

    def end(self, called: Any) -> Any:
        """What a call comes to."""
        return called

    def close(self) -> None:
        self.store.close()

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def breathe(self) -> Any:
        """Let whoever wants to disturb this job do so."""
        self.at_rest()

    def charge(self, key: str, what: str) -> Any:
        self.breathe()
        receipt = self.provider.charge(key, what)
        self.breathe()
        return receipt

    def write(self, connection: Any, order: str, step: str) -> Any:
        self.breathe()
        connection.cursor().execute(_row(order, step))
        self.breathe()

    def resumable(self, order: str, cents: int = 100) -> Any:
        """Four phases, and two calls to the provider."""
        DEATH.step()
        at: Any = current()
        at.phase("reserve", self.write, order, "reserve")
        charge: str = at.call("charge", self.charge, f"{order} charge", **self._call)
        at.phase("charged", self.write, order, "charged")
        fee: str = at.call("fee", self.charge, f"{order} fee", **self._call)
        at.phase("paid", self.write, order, "paid")
        at.phase("end", self.write, order, "end")
        return f"{charge} {fee}"

    def transactional(self, order: str, cents: int = 100) -> Any:
        """A row in the transaction that keeps its result."""
        DEATH.step()
        self.write(current().connection, order, "only")
        DEATH.step()
        return "written"

    def keyed(self, order: str, cents: int = 100) -> Any:
        """A charge under a key that is the same on every attempt."""
        DEATH.step()
        receipt = self.charge(current().derived_key("charge"), f"{order} only")
        DEATH.step()
        return receipt

    def opaque(self, order: str, cents: int = 100) -> Any:
        """A charge under a key that nobody knows later."""
        DEATH.step()
        receipt = self.charge(str(uuid4()), f"{order} only")
        DEATH.step()
        return receipt


class AsyncFirm(Firm):
    """The same under asyncio."""

    def __init__(self, market: Market, store: Any = None, runner: asyncio.Runner | None = None) -> None:
        self._runner = asyncio.Runner() if runner is None else runner
        super().__init__(market, store)

    def _opened(self) -> Any:
        return self.market.open(asynchronous=True)

    def _once(self) -> Any:
        return AsyncOnce(self.store, scope="shop", observer=lambda event: None)

    def another(self, store: Any = None) -> Firm:
        """Another one, on the same store or on this, in the same loop."""
        return AsyncFirm(self.market, store or self.store, self._runner)

    def end(self, called: Any) -> Any:
        """What a call comes to."""
        return self._runner.run(called)

    def close(self) -> None:
        self._runner.run(self.store.aclose())
        self._runner.close()

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def breathe(self) -> None:
        """Let whoever wants to disturb this job do so."""
        self.at_rest()
        await asyncio.sleep(0)

    async def charge(self, key: str, what: str) -> str:
        await self.breathe()
        receipt = self.provider.charge(key, what)
        await self.breathe()
        return receipt

    async def write(self, connection: Any, order: str, step: str) -> None:
        await self.breathe()
        if hasattr(connection, "execute"):
            await connection.execute(_row(order, step))
        else:
            async with connection.cursor() as cursor:
                await cursor.execute(_row(order, step))
        await self.breathe()

    async def resumable(self, order: str, cents: int = 100) -> str:
        """Four phases, and two calls to the provider."""
        DEATH.step()
        at: Any = current()
        await at.phase("reserve", self.write, order, "reserve")
        charge: str = await at.call("charge", self.charge, f"{order} charge", **self._call)
        await at.phase("charged", self.write, order, "charged")
        fee: str = await at.call("fee", self.charge, f"{order} fee", **self._call)
        await at.phase("paid", self.write, order, "paid")
        await at.phase("end", self.write, order, "end")
        return f"{charge} {fee}"

    async def transactional(self, order: str, cents: int = 100) -> str:
        """A row in the transaction that keeps its result."""
        DEATH.step()
        await self.write(current().connection, order, "only")
        DEATH.step()
        return "written"

    async def keyed(self, order: str, cents: int = 100) -> str:
        """A charge under a key that is the same on every attempt."""
        DEATH.step()
        receipt = await self.charge(current().derived_key("charge"), f"{order} only")
        DEATH.step()
        return receipt

    async def opaque(self, order: str, cents: int = 100) -> str:
        """A charge under a key that nobody knows later."""
        DEATH.step()
        receipt = await self.charge(str(uuid4()), f"{order} only")
        DEATH.step()
        return receipt


FIRMS = {"blocking": Firm, "asyncio": AsyncFirm}
