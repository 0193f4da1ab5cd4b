"""Intents that outlive the process that made them: key and bytes are on disk before the first send (R34, I8).

    intents = IntentStore("var/intents.db")
    charge = intents.reserve("charge of cart 17", Intent.new("POST", url, json=cart), remembers=timedelta(hours=24))
    outcome = intents.send(client, charge, by=send)

The file knows which runs began, so that what was never sent is told from what may have been. Where a run has no end its
process died, or is at work: in both cases sending the same intent again is what settles it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from twicesafe.client import intent_file
from twicesafe.client._threads import in_thread
from twicesafe.client.intent_bytes import difference, split
from twicesafe.client.intent_file import IntentFile, Kept
from twicesafe.client.intent_runs import IntentRuns, digest_of, known_already
from twicesafe.client.intent_terms import agreed
from twicesafe.client.intent_time import FileTime, time_of
from twicesafe.client.intents import Intent
from twicesafe.client.reports import sign_error
from twicesafe.client.reserved import Reserved, Seal, promise_of, reserved_of
from twicesafe.core.keys import key_hint
from twicesafe.core.outcome import Outcome, Report
from twicesafe.core.record import Instant, Micros
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.core.runs import KNOWN, Run, Standing, Verdict, standing_of
from twicesafe.errors import ConfigurationError, IntentChangedError, IntentStoreError
from twicesafe.stores.contract import Cipher

C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)
R = TypeVar("R")

LONGEST_NAME: Final = 255
_DEFAULT: Final = RetryPolicy()
_MICROSECOND: Final = timedelta(microseconds=1)
_PAGE: Final = 100


def host_clock() -> Instant:
    """The host's: all processes at the file run on this host."""
    return time.time_ns() // 1000


class Sends(Protocol[C_contra, R]):
    """A binding's `send`."""

    def __call__(self, client: C_contra, what: Intent, /, *, policy: RetryPolicy) -> Outcome[R]: ...


class AsyncSends(Protocol[C_contra, R]):
    """A binding's `asend`."""

    def __call__(self, client: C_contra, what: Intent, /, *, policy: RetryPolicy) -> Awaitable[Outcome[R]]: ...


class IntentStore:
    """Intents in a file, which is made where there is none. Several processes and threads may use it at once.

    `policy` says where a server takes keys and for how long it knows them, and how intents are sent. The file is its
    owner's alone, and says what is to be sent, bodies included; with `keys` (a Keyring, say) that is encrypted. Values
    of headers that are secrets are never in it. `busy_timeout` is how long to wait for other processes at the file.
    Every method raises IntentStoreError where the file cannot be used; nothing was sent then.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        policy: RetryPolicy = _DEFAULT,
        keys: Cipher | None = None,
        busy_timeout: timedelta = timedelta(seconds=10),
        clock: Callable[[], Instant] = host_clock,
    ) -> None:
        self._policy = policy
        self._file = IntentFile(path, busy_timeout)
        self._seal = Seal(self._file.path, keys)
        self._clock = clock
        self.runs: Final = IntentRuns(self._file, clock)
        """What `send` begins and ends, for those who send in a way of their own."""

    # --- reserving ----------------------------------------------------------------------------------------------------

    def reserve(
        self,
        name: str,
        intent: Intent,
        *,
        remembers: timedelta | None = None,
        withhold: Iterable[str] = (),
    ) -> Reserved:
        """The intent of this name: the one that is kept, with the key and the bytes it had, or else this one.

        A process that was restarted says the same again and goes on where the first one was; so does one beside it.
        `remembers` is for how long the server knows keys, from when one was first sent; the shortest that was said
        counts. Something keyed needs it, here or in a route of the policy: past it a key is a new one to the server.
        `withhold` names headers whose values are not to be kept, besides those whose names say that they are secrets.

        IntentChangedError where the name or the key is taken by an intent with other bytes.
        """
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise ConfigurationError(f"an intent's name must have 1 to {LONGEST_NAME} printable characters")
        intent, header, member, remembers = agreed(intent, self._policy, remembers)
        kept, withheld = split(intent, withhold)
        remembers_us = None if remembers is None else remembers // _MICROSECOND
        row = Kept(
            name,
            digest_of(intent.key),
            key_hint(intent.key),
            str(intent.contract),
            header,
            member,
            ",".join(sorted({line[0].lower() for line in withheld})),
            remembers_us,
            0,
            None,
            int(self._seal.seals),
            self._seal.closed(kept, name),
        )

        def work(connection: sqlite3.Connection) -> tuple[Kept, dict[int, Run], FileTime]:
            found, time = intent_file.find(connection, name), time_of(connection, self._clock, writes=True)
            if found is None:
                other = intent_file.find_key(connection, row.key_digest)
                if other is not None:
                    raise IntentChangedError(f"the key {row.key_hint} is reserved already, as {other.name!r}")
                new = row._replace(reserved_at=time.now)
                intent_file.insert(connection, new)
                return new, {}, time
            self._check_same(found, row, kept)
            shortest = min((one for one in (found.remembers_us, remembers_us) if one is not None), default=None)
            if shortest != found.remembers_us:
                intent_file.shorten(connection, name, shortest)
                found = found._replace(remembers_us=shortest)
            return found, intent_file.runs_of(connection, name), time

        try:
            found, runs, time = self._file.perform(work, writes=True)
        except IntentChangedError as error:
            sign_error(error, Report(intent.key, ()))
            raise
        first = self._seal.opened(found)
        whole = replace(first, headers=first.headers + withheld)
        return reserved_of(found, runs, time, lambda: whole)

    def _check_same(self, found: Kept, row: Kept, given: Intent) -> None:
        differs = difference(self._seal.opened(found), given)
        if not differs and (found.header.lower(), found.member) != (row.header.lower(), row.member):
            differs = "place of the key"
        if differs:
            raise IntentChangedError(
                f"{found.name!r} is reserved, under the key {found.key_hint}, with another {differs}. Send that one to "
                "its end, or look up what became of it; another wish needs another name"
            )

    # --- looking ------------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Reserved | None:
        """The intent of this name."""

        def work(connection: sqlite3.Connection) -> Reserved | None:
            found, runs = intent_file.find(connection, name), intent_file.runs_of(connection, name)
            time = time_of(connection, self._clock, writes=False)
            return None if found is None else reserved_of(found, runs, time, partial(self._seal.opened, found))

        return self._file.perform(work, writes=False)

    def listed(self, after: str = "", *, settled: bool = False, limit: int = _PAGE) -> tuple[Reserved, ...]:
        """Intents in the order of their names, those beyond `after`. Those that are settled only if asked for."""

        def work(connection: sqlite3.Connection) -> tuple[Reserved, ...]:
            rows = intent_file.page(connection, after, limit, settled=settled)
            found = [(row, intent_file.runs_of(connection, row.name)) for row in rows]
            time = time_of(connection, self._clock, writes=False)
            return tuple(reserved_of(row, runs, time, partial(self._content, row)) for row, runs in found)

        return self._file.perform(work, writes=False)

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(
        self,
        client: C,
        reserved: Reserved,
        *,
        by: Sends[C, R],
        policy: RetryPolicy | None = None,
        deadline: timedelta | None = None,
        **how: Any,
    ) -> Outcome[R]:
        """Send it by a binding's `send`, and keep what becomes of it: `send(client, charge, by=send)`.

        `policy` (the store's own otherwise) and whatever else is given go to `by`. The deadline is clipped to what is
        left until the server forgets the key. Where an earlier run may have had the effect, a refusal of this one is
        Unknown, and only a recorded one is a rejection. The outcome is returned also where the file fails meanwhile:
        the run then counts as one that may have been sent.

        IntentSettledError where it was rejected, or succeeded and its server may have forgotten the key;
        IntentOverdueError where it may have been done and its server may have forgotten the key. Nothing is sent then.
        """
        begun = self.runs.begin(reserved, policy or self._policy, deadline)
        try:
            outcome = by(client, begun.intent, policy=begun.policy, **how)
        except BaseException as error:
            self.runs.broke_off(begun, error)
            raise
        return self.runs.ended(begun, outcome)

    # --- ending -------------------------------------------------------------------------------------------------------

    def settle(self, name: str, *, done: bool, why: str) -> None:
        """Keep what somebody found out by other means: that it was done, or that it was not and will not be.

        `why` is all that whoever looks at it later has. IntentSettledError where it is known already.
        """
        if not why.strip():
            raise ConfigurationError(f"say why {name!r} is settled: what you know, for whoever looks at it later")

        def work(connection: sqlite3.Connection) -> None:
            found, runs = self._must_find(connection, name)
            time = time_of(connection, self._clock, writes=True)
            now = time.now
            standing = standing_of(time.judged(runs), promise_of(found), now)
            if standing in KNOWN:
                raise known_already(found, standing)
            verdict = Verdict.DONE if done else Verdict.REFUSED
            intent_file.add_run(connection, name, Run(now, os.getpid(), verdict, now, reason=why))
            intent_file.settle(connection, name, now)

        self._file.perform(work, writes=True)

    def forget(self, name: str, *, even_unknown: bool = False) -> None:
        """Take it out of the file. The next intent of this name is another one.

        ConfigurationError where its outcome is unknown, unless `even_unknown`.
        """

        def work(connection: sqlite3.Connection) -> None:
            found, runs = self._must_find(connection, name)
            time = time_of(connection, self._clock, writes=True)
            standing = standing_of(time.judged(runs), promise_of(found), time.now)
            if standing in (Standing.UNKNOWN, Standing.OVERDUE) and not even_unknown:
                raise ConfigurationError(
                    f"nobody knows what became of {name!r}: it is kept until somebody does. Another intent in its "
                    "place could do it twice"
                )
            intent_file.delete(connection, name)

        self._file.perform(work, writes=True)

    def purge(self, beyond: timedelta = timedelta(0)) -> int:
        """Forget what is settled, and forgotten by its server for as long as `beyond`. How many those were.

        Never what is unknown, and never what was not sent.
        """
        after, purged = "", 0
        while True:

            def work(connection: sqlite3.Connection, after: str = after) -> tuple[str, int]:
                rows = intent_file.page(connection, after, _PAGE, settled=True)
                time = time_of(connection, self._clock, writes=True)
                over = [row for row in rows if _is_over(connection, row, time, beyond // _MICROSECOND)]
                for row in over:
                    intent_file.delete(connection, row.name)
                return rows[-1].name if len(rows) == _PAGE else "", len(over)

            after, count = self._file.perform(work, writes=True)
            purged += count
            if not after:
                return purged

    # --- within -------------------------------------------------------------------------------------------------------

    def _must_find(self, connection: sqlite3.Connection, name: str) -> tuple[Kept, dict[int, Run]]:
        found = intent_file.find(connection, name)
        if found is None:
            raise ConfigurationError(f"there is no intent named {name!r} in {self._file.path}")
        return found, intent_file.runs_of(connection, name)

    def _content(self, row: Kept) -> Intent:
        """Of one that was listed: a thousand bodies are not read to see a thousand names."""
        found = self._file.perform(partial(intent_file.find_key, key_digest=row.key_digest), writes=False)
        if found is None:
            raise IntentStoreError(f"{row.name!r} in {self._file.path} was forgotten meanwhile")
        return self._seal.opened(found)


def _is_over(connection: sqlite3.Connection, row: Kept, time: FileTime, beyond: Micros) -> bool:
    """Whether it is settled, and has been forgotten by its server for so long."""
    if row.settled_at is None:
        return False
    runs = time.remembered(intent_file.runs_of(connection, row.name))
    return promise_of(row).forgotten(runs, time.settled(row.settled_at), time.now - beyond)


class AsyncIntentStore:
    """IntentStore, for asyncio and trio: its file is used in threads, and `by` is a binding's `asend`.

    Only making one blocks, for as long as opening a file does.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        policy: RetryPolicy = _DEFAULT,
        keys: Cipher | None = None,
        busy_timeout: timedelta = timedelta(seconds=10),
        clock: Callable[[], Instant] = host_clock,
    ) -> None:
        self._policy = policy
        self._store = IntentStore(path, policy=policy, keys=keys, busy_timeout=busy_timeout, clock=clock)

    async def reserve(
        self,
        name: str,
        intent: Intent,
        *,
        remembers: timedelta | None = None,
        withhold: Iterable[str] = (),
    ) -> Reserved:
        """See IntentStore.reserve."""
        reserve = partial(self._store.reserve, remembers=remembers, withhold=withhold)
        return await in_thread(partial(reserve, name, intent))

    async def find(self, name: str) -> Reserved | None:
        """See IntentStore.find."""
        return await in_thread(partial(self._store.find, name))

    async def listed(self, after: str = "", *, settled: bool = False, limit: int = _PAGE) -> tuple[Reserved, ...]:
        """See IntentStore.listed."""
        return await in_thread(partial(self._store.listed, after, settled=settled, limit=limit))

    async def send(
        self,
        client: C,
        reserved: Reserved,
        *,
        by: AsyncSends[C, R],
        policy: RetryPolicy | None = None,
        deadline: timedelta | None = None,
        **how: Any,
    ) -> Outcome[R]:
        """See IntentStore.send. Cancelled, it leaves a run without an end: the intent can be sent again."""
        runs = self._store.runs
        begun = await in_thread(partial(runs.begin, reserved, policy or self._policy, deadline))
        try:
            outcome = await by(client, begun.intent, policy=begun.policy, **how)
        except Exception as error:
            await in_thread(partial(runs.broke_off, begun, error))
            raise
        return await in_thread(partial(runs.ended, begun, outcome))

    async def settle(self, name: str, *, done: bool, why: str) -> None:
        """See IntentStore.settle."""
        await in_thread(partial(self._store.settle, name, done=done, why=why))

    async def forget(self, name: str, *, even_unknown: bool = False) -> None:
        """See IntentStore.forget."""
        await in_thread(partial(self._store.forget, name, even_unknown=even_unknown))

    async def purge(self, beyond: timedelta = timedelta(0)) -> int:
        """See IntentStore.purge."""
        return await in_thread(partial(self._store.purge, beyond))
