"""What records are kept in, and what has been left lying there."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from twicesafe.core.policy import Operation
from twicesafe.core.record import Effects, Instant, RecordState
from twicesafe.doctor.asking import Asked, asking
from twicesafe.doctor.catalogue import Finding
from twicesafe.doctor.circumstances import Circumstances
from twicesafe.doctor.parts import parts_of, pool_size
from twicesafe.doctor.subject import name_of
from twicesafe.errors import ConfigurationError, SchemaError, SealBrokenError, SealKeyMissingError, StoreError
from twicesafe.stores.redis_scripts import Ask
from twicesafe.stores.sealing import MARK, Sealing
from twicesafe.stores.sql.relaying import waiting

SKEW: Final = 1.0
"""Seconds, beside the time that asking takes."""
PAGES: Final = 20
UNREAPED: Final = timedelta(days=1)
SAID: Final = {"WAL": "sqlite-network", "maxmemory-policy": "redis-evicts"}
"""What a store itself refuses to work with, by a word of its message."""
_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
NETWORKS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "gpfs"}
)
"""What /proc/mounts calls file systems whose other end is another machine. FUSE has some more, by their own names."""


async def judge_store(store: Any, operations: Sequence[Operation], known: Circumstances) -> list[Finding]:
    """All that can be seen of one store."""
    where, asked = name_of(store), Asked(store)
    found = [*_as_it_is(store, operations, known)]
    try:
        await asked.call("check_schema")
        found += [one async for one in _asked(asked, where, operations, known)]
    except (SchemaError, ConfigurationError) as error:
        otherwise = "schema-wrong" if isinstance(error, SchemaError) else "settings-wrong"
        code = next((code for word, code in SAID.items() if word in str(error)), otherwise)
        found.append(Finding(code, where, str(error)))
    except StoreError as error:
        found.append(Finding("store-unreachable", where, str(error)))
    finally:
        await asked.close()
    return found


# --- without asking ---------------------------------------------------------------------------------------------------


def _as_it_is(store: Any, operations: Sequence[Operation], known: Circumstances) -> Iterator[Finding]:
    where = name_of(store)
    kinds = {type(part).__name__ for part in parts_of(store)}
    if kinds & {"MemoryStore", "AsyncMemoryStore"}:
        processes = "one process, until it ends" if known.workers < 2 else f"each of {known.workers} processes"
        yield Finding("memory-store", where, f"in the memory of {processes}")
    size = pool_size(store)
    if size is not None and any(one.policy.effects is Effects.TRANSACTIONAL for one in operations):
        wanted = max(2, known.concurrency)
        if size < wanted:
            yield Finding("pool-small", where, f"{size} of {wanted}")
    for part in parts_of(store):
        path = getattr(part, "path", None)
        if type(part).__name__ == "SqliteFile" and isinstance(path, Path):
            kind = file_system(path)
            if kind in NETWORKS or kind.startswith("fuse."):
                yield Finding("sqlite-network", where, f"{path} is on {kind}")
            return


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The kind of file system that a path is on, as the kernel calls it; empty where nobody says."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    real, best = os.path.realpath(path), ("", "")
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        point = point.encode("latin-1", "backslashreplace").decode("unicode_escape")
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


# --- by asking --------------------------------------------------------------------------------------------------------


async def _asked(
    asked: Asked, where: str, operations: Sequence[Operation], known: Circumstances
) -> AsyncIterator[Finding]:
    store = asked.store
    before = time.time()
    now: Instant = await asked.call("now")
    after = time.time()
    skew = max(before - now / _SECOND, now / _SECOND - after)
    if skew > SKEW:
        yield Finding("clock-skew", where, f"by {skew:.0f} s")
    servers = next((part for part in parts_of(store) if type(part).__name__ in ("Servers", "AsyncServers")), None)
    if servers is not None:
        async for finding in _redis(asked, servers, where):
            yield finding
    async for finding in _left_behind(asked, where, known):
        yield finding
    if not store.transactional:
        return
    if any(one.policy.effects is Effects.TRANSACTIONAL for one in operations):
        try:
            await asked.claims_in_a_transaction()
        except SchemaError:
            raise
        except ConfigurationError as error:
            yield Finding("no-transaction", where, str(error))
            return
        async for finding in _isolation(asked, where):
            yield finding
    async for finding in _rows(asked, where, now, known):
        yield finding


async def _redis(asked: Asked, servers: Any, where: str) -> AsyncIterator[Finding]:
    async def told(*words: bytes) -> Any:
        given = servers.perform(Ask(b"twicesafe", None, words, writes=False))
        return await given if asked.is_async else given

    try:
        lines = dict(line.partition(":")[::2] for line in str((await told(b"INFO")), "utf-8").splitlines())
    except (StoreError, TypeError, ValueError):
        return
    durable = any(getattr(part, "_records", None) is not None for part in parts_of(asked.store))
    if durable:
        return
    if lines.get("aof_enabled") == "0":
        yield Finding("redis-forgets", where, "appendonly is no")
        return
    with suppress(StoreError, TypeError, ValueError):
        name, value = await told(b"CONFIG", b"GET", b"appendfsync")
        if value != b"always":
            yield Finding("redis-forgets", where, f"{name.decode()} is {value.decode()}")


async def _isolation(asked: Asked, where: str) -> AsyncIterator[Finding]:
    if not any("postgresql" in name_of(part).lower() for part in parts_of(asked.store)):
        return
    rows = await asked.in_transaction(asking("SHOW transaction_isolation"))
    level = str(rows[0][0])
    if level in ("serializable", "repeatable read"):
        yield Finding("isolation-strict", where, level.upper())


async def _left_behind(asked: Asked, where: str, known: Circumstances) -> AsyncIterator[Finding]:
    if not hasattr(asked.store, "outstanding"):
        return
    counts = {RecordState.CLAIMED: 0, RecordState.UNKNOWN: 0}
    after, oldest = None, 0
    for _ in range(PAGES):
        found = await asked.call("outstanding", after)
        for record in found.records:
            age = found.now - record.lease_until
            if age > known.patience // timedelta(microseconds=1):
                counts[record.state] += 1
                oldest = max(oldest, age)
        after = found.after
        if after is None:
            break
    if any(counts.values()):
        yield Finding(
            "unsettled-old",
            where,
            f"{counts[RecordState.CLAIMED]} broke off, {counts[RecordState.UNKNOWN]} unknown; the oldest "
            f"{timedelta(seconds=oldest // _SECOND)} ago",
        )


async def _rows(asked: Asked, where: str, now: Instant, known: Circumstances) -> AsyncIterator[Finding]:
    rows = await asked.in_transaction(asking("SELECT min(purge_minute) FROM twicesafe_records"))
    due = rows[0][0]
    if due is not None and now - int(due) * _MINUTE > UNREAPED // timedelta(microseconds=1):
        yield Finding("expired-kept", where, f"since {timedelta(minutes=now // _MINUTE - int(due))}")
    lag = (await asked.in_transaction(waiting)).oldest_us
    if lag is not None and lag > known.patience // timedelta(microseconds=1):
        yield Finding("messages-old", where, f"the oldest for {timedelta(seconds=lag // _SECOND)}")
    sealing = next((part for part in parts_of(asked.store) if isinstance(part, Sealing)), Sealing(None, None))
    rows = await asked.in_transaction(
        asking("SELECT digest FROM twicesafe_records WHERE state = 'completed' ORDER BY purge_minute DESC LIMIT 50")
    )
    unsealed = Asked(getattr(asked.store, "_store", asked.store) if _is_sealed(asked.store) else asked.store)
    for row in rows:
        record = (await unsealed.call("read", bytes(row[0]))).record
        missing = None if record is None else _missing(record, sealing)
        if missing:
            yield Finding("seal-key-missing", where, missing)
            return


def _is_sealed(store: Any) -> bool:
    return type(store).__name__ in ("SealedStore", "AsyncSealedStore")


def _missing(record: Any, sealing: Sealing) -> str:
    """Which key its answer wants, if that is missing."""
    response = record.response
    if response is None or not response.headers or response.headers[0][0] != MARK:
        return ""
    try:
        sealing.open(response, record.digest, record.epoch)
    except SealKeyMissingError as error:
        return str(error)
    except SealBrokenError:
        return ""
    return ""
