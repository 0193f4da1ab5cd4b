"""One storm from beginning to end: set up, break, calm down, ask every key once more, count."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp
from typing import Final, NamedTuple

from twicesafe.demo.provider.ledger import ProviderLedger
from twicesafe.errors import ConfigurationError
from twicesafe.stores.urls import open_async_store
from twicesafe.storm import census
from twicesafe.storm.aftermath import Aftermath
from twicesafe.storm.census import Ending, Report, Told
from twicesafe.storm.clients import IMPATIENT, Clients
from twicesafe.storm.company import WORKERS, Company, reserved_port
from twicesafe.storm.databases import Database, called_in, ledger_in
from twicesafe.storm.delivery import RELAYS, delivering
from twicesafe.storm.delivery_plan import draw_deliveries
from twicesafe.storm.fleet import preload
from twicesafe.storm.ledger_downstream import Calls, DownstreamLedger
from twicesafe.storm.plan import KINDS, PARALLEL_DUPLICATE, STEPWISE_KINDS, BlowKind, Intent, Plan
from twicesafe.storm.provider_plan import draw_faults
from twicesafe.storm.proxy import FaultProxy
from twicesafe.storm.settings import Settings, Standing
from twicesafe.storm.weather import Weather

SLOW_HANDLER: Final = IMPATIENT * 1.3
"""How long a slow handler takes: its client, an impatient one, has gone by then."""
PATIENCE: Final = timedelta(seconds=120)
"""How long a client keeps asking about one intent while it storms."""
FINAL_PATIENCE: Final = timedelta(seconds=90)
"""How long it asks about each key when all is calm: many times the lease, on a machine that has other things to do."""

FINAL_CLIENTS: Final = 40
"""How many ask at the same time then, at most: it is over sooner when nobody has to ask twice."""


FINAL_ROUNDS: Final = 2
"""Where reconcilers are: what is asked for while somebody works on it may become unknown, and is settled then."""


class Outcome(NamedTuple):
    """The numbers, and what a reader should know of how they came about."""

    report: Report
    remarks: tuple[str, ...]
    clean: bool
    """One effect per intent, and where a provider was called no outcome that is still unknown."""


async def run(settings: Settings, standing: Standing, weather: Weather | None = None) -> Outcome:
    """Run the storm that `settings` describe. StormError or another TwicesafeError where it cannot be run.

    Whatever it started has ended when this returns or raises, cancelled or not.
    """
    check(settings)
    around = Weather() if weather is None else weather
    began = time.monotonic()
    plan = around.plan(settings)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="twicesafe-storm-", ignore_cleanup_errors=True)))
        users = settings.servers + (WORKERS if settings.stepwise else 0) + (RELAYS if settings.with_outbox else 0)
        base = await stack.enter_async_context(around.database(settings, folder, users))
        where = called_in(folder) if settings.keyed else base.ledger
        ledger = await stack.enter_async_context(ledger_in(where))
        await ledger.create()
        store = None
        if not settings.naive:
            store = open_async_store(base.url)
            stack.push_async_callback(store.aclose)
            await store.apply_schema()
        provider = None
        if settings.stepwise:
            provider = stack.enter_context(closing(ProviderLedger(folder / "provider.sqlite3")))
        await asyncio.to_thread(preload, "server", "worker", "provider", "relay", "consumer")
        log = folder / "servers.log"
        delivery = None
        if settings.with_outbox:
            delivery = await stack.enter_async_context(
                delivering(base.url, folder, log, settings.intents, naive=settings.naive)
            )
        proxy = FaultProxy(heard=around.heard)
        company = Company(
            settings.servers,
            {
                "store": base.url,
                "ledger": where,
                "naive": settings.naive,
                "slow": SLOW_HANDLER.total_seconds(),
                **around.told(),
            },
            log,
            proxy.struck,
            folder / "provider.sqlite3",
            stack.enter_context(reserved_port()) if settings.stepwise else None,
            delivery,
        )
        stack.push_async_callback(company.close)
        stack.push_async_callback(proxy.close)
        await company.start()
        await proxy.start(company.servers.pick)
        storm = _Storm(plan, settings, base, company, proxy, standing, around)
        aftermath = None
        if provider is not None:
            aftermath = Aftermath(storm.name, ledger, provider, store, company)
            if settings.provider_faults:
                aftermath.arm(draw_faults(plan))
        if delivery is not None:
            delivery.arm(storm.name, draw_deliveries(plan))
        try:
            told = await storm.to_the_end(aftermath)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        books: list[Sequence[census.Ledger]] = [[await ledger.payments(storm.name)]]
        if aftermath is not None:
            books = [*await aftermath.books()]
        undelivered = 0
        if delivery is not None:
            undelivered = await delivery.drained(standing)
            books[0] = [*books[0], await delivery.events(storm.name)]
        findings = census.take(books, told)
        findings = findings._replace(stuck=findings.stuck + undelivered)
        faults = {kind: storm.faults()[kind] for kind in (STEPWISE_KINDS if settings.stepwise else KINDS)}
        left = []
        if aftermath is not None:
            left = await aftermath.unsettled()
            findings = findings._replace(unknown=max(findings.unknown, len(left)))
            faults |= aftermath.struck()
        if delivery is not None:
            faults |= delivery.struck()
        report = Report(
            intents=settings.intents,
            attempts=proxy.attempts,
            **findings._asdict(),
            faults=faults,
            store=base.name,
            seed=settings.seed,
            seconds=round(time.monotonic() - began, 2),
        )
        clean = report.clean and not (settings.stepwise and report.unknown)
        remarks = base.remarks
        if isinstance(ledger, DownstreamLedger):
            remarks = (*remarks, _called(await ledger.calls()))
        if delivery is not None:
            remarks = (*remarks, *delivery.remarks(books[0][-1]))
        if not settings.naive:
            if aftermath is not None:
                remarks = (*remarks, *aftermath.remarks(left))
            remarks = (*remarks, *_misgivings(log, clean=clean))
    return Outcome(report, remarks, clean)


def check(settings: Settings) -> None:
    """ConfigurationError for a storm that cannot be."""
    if settings.provider_faults and not settings.stepwise:
        raise ConfigurationError("--provider-faults needs a provider: ask for --operation resumable as well")
    if settings.stepwise and settings.store.startswith("redis"):
        raise ConfigurationError(
            "--operation resumable needs a store that keeps recovery points: sqlite, postgresql or mysql"
        )
    if settings.keyed and (settings.stepwise or settings.with_outbox):
        raise ConfigurationError("a keyed payment is one call: it has no steps, and no transaction for an event")
    if settings.with_outbox and settings.store.startswith("redis"):
        raise ConfigurationError("--with-outbox needs a store with transactions: sqlite, postgresql or mysql")


def _called(calls: Calls) -> str:
    """What kept a second run from being a second payment."""
    return (
        f"{calls.calls - calls.keys} of {calls.calls} calls to the ledger repeated an earlier one, and were recognised "
        "by their derived key"
    )


def _misgivings(log: Path, *, clean: bool) -> Iterator[str]:
    """What should not have happened behind twicesafe, and where to read more about it."""
    text = log.read_text(errors="replace")
    errors = text.count("Exception in ASGI application")
    if errors:
        yield f"the servers met {errors} unexpected errors"
    if errors or not clean:
        descriptor, kept = mkstemp(prefix="twicesafe-storm-", suffix=".log", text=True)
        with open(descriptor, "w") as file:  # noqa: PTH123 - a descriptor has no path
            file.write(text)
        yield f"the servers' log is kept in {kept}"


class _Storm:
    """The clients, the blows, and the rule between them: no intent begins before the blows that are to precede it."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        base: Database,
        company: Company,
        proxy: FaultProxy,
        standing: Standing,
        weather: Weather,
    ) -> None:
        self._weather = weather
        self._plan = plan
        self._settings = settings
        self._database = base
        self._company = company
        self._proxy = proxy
        self._standing = standing
        self._over = 0
        self._moved = asyncio.Condition()
        self._counts: Counter[str] = Counter()
        self._clients = Clients(proxy.port)

    @property
    def name(self) -> str:
        """What tells this run's rows in the ledger from another's."""
        return self._clients.run

    def faults(self) -> Counter[str]:
        """What was done so far, by kind."""
        return self._counts + self._proxy.faults + self._company.deaths()

    async def to_the_end(self, aftermath: Aftermath | None) -> list[Told]:
        """What the clients were told of intents 0, 1, 2 ... once all was calm again, and what was open was settled."""
        self._standing.faults = self.faults
        for intent in self._plan.intents:
            self._proxy.expect(self._clients.key(intent), intent.faults)
        async with self._clients:
            self._standing.begin("storm", len(self._plan.intents))
            told: dict[int, Told] = {}
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._strike())
                waiting = iter(self._plan.intents)
                for _ in range(self._settings.clients):
                    tasks.create_task(self._client(waiting, told))
            self._proxy.calm()
            await self._weather.calmed([(one.account, self._clients.key(one)) for one in self._plan.intents])
            asked = [intent for intent in self._plan.intents if self._worth_asking(told[intent.number])]
            for _ in range(FINAL_ROUNDS if aftermath is not None else 1):
                if aftermath is not None:
                    await aftermath.settled(self._standing)
                self._standing.begin("final round", len(asked))
                async with asyncio.TaskGroup() as tasks:
                    waiting = iter(asked)
                    for _ in range(min(self._settings.clients, FINAL_CLIENTS)):
                        tasks.create_task(self._last_words(waiting, told))
                asked = [intent for intent in asked if told[intent.number].ending is Ending.STUCK]
                if not asked:
                    break
        return [told[intent.number] for intent in self._plan.intents]

    def _worth_asking(self, told: Told) -> bool:
        """Behind twicesafe every key is asked once more. Without it asking again would only add to the damage."""
        return not self._settings.naive or told.ending is not Ending.SUCCESS

    async def _client(self, waiting: Iterator[Intent], told: dict[int, Told]) -> None:
        for intent in waiting:
            before = sum(1 for blow in self._plan.blows if blow.before <= intent.number)
            async with self._moved:
                await self._moved.wait_for(lambda: self._over >= before)  # noqa: B023 - awaited here
            self._counts[PARALLEL_DUPLICATE] += intent.copies - 1
            told[intent.number] = await self._clients.pay(intent, PATIENCE)
            async with self._moved:
                self._standing.done += 1
                self._moved.notify_all()

    async def _last_words(self, waiting: Iterator[Intent], told: dict[int, Told]) -> None:
        for intent in waiting:
            told[intent.number] = told[intent.number].then(await self._clients.ask_again(intent, FINAL_PATIENCE))
            self._standing.done += 1

    async def _strike(self) -> None:
        for blow in self._plan.blows:
            async with self._moved:
                await self._moved.wait_for(lambda: self._standing.done >= blow.after)  # noqa: B023 - awaited here
            await asyncio.sleep(blow.delay)
            if blow.kind is BlowKind.SPELL:
                await self._weather.befall(blow.victim, self._company)
            elif blow.kind not in (BlowKind.DATABASE_RESTART, BlowKind.DATABASE_CRASH):
                await self._company.kill(blow.kind, blow.victim)
            elif await self._database.restart(self._company, blow.kind is BlowKind.DATABASE_CRASH):
                self._counts[blow.kind] += 1
            async with self._moved:
                self._over += 1
                self._moved.notify_all()
