"""What is known of one intent in a file, and how its key and bytes stand there: as they are, or encrypted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from twicesafe.client.intent_bytes import packed, unpacked
from twicesafe.client.intent_file import Kept
from twicesafe.client.intent_time import FileTime
from twicesafe.client.intents import Intent
from twicesafe.core.contract import Contract
from twicesafe.core.record import Instant
from twicesafe.core.runs import Promise, Run, Standing, standing_of
from twicesafe.errors import ConfigurationError, IntentStoreError, StoreError
from twicesafe.stores.contract import Cipher


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """An intent of an IntentStore, and what was known of it when it was asked for. `standing` says what became of it.

    Times are in microseconds since the Unix epoch, on the clock of the file's host.
    """

    name: str
    key_hint: str
    contract: Contract
    header: str
    """Where its key goes; "" where that is `member`, a member of its JSON body."""
    member: str
    remembers: timedelta | None
    """For how long its server knows the key."""
    withheld: tuple[str, ...]
    """Headers that are not kept: whoever sends after a restart brings them along."""
    reserved_at: Instant
    settled_at: Instant | None
    runs: tuple[Run, ...]
    standing: Standing
    sealed: bool
    _open: Callable[[], Intent] = field(repr=False, compare=False)

    @property
    def intent(self) -> Intent:
        """The key and the bytes. IntentStoreError where they are damaged, or sealed with a key that is not here."""
        return self._open()


def refuse_reserved(what: object) -> None:
    """ConfigurationError for an intent of a file: sent by a binding alone, the file would not know of it."""
    if isinstance(what, Reserved):
        raise ConfigurationError(
            f"{what.name!r} is kept in a file, which has to know of each run: give this function to the store, as in "
            "intents.send(client, reserved, by=send)"
        )


class Seal:
    """How the intents of one file are written. `keys` None: as they are."""

    def __init__(self, path: Path, keys: Cipher | None) -> None:
        self._path = path
        self._keys: Final = keys

    @property
    def seals(self) -> bool:
        """Whether what is written is encrypted."""
        return self._keys is not None

    def closed(self, intent: Intent, name: str) -> bytes:
        """As it is to be written, under this name and no other."""
        content = packed(intent)
        return content if self._keys is None else self._keys.encrypt(content, _context(name))

    def opened(self, row: Kept) -> Intent:
        """What was written. IntentStoreError."""
        content = row.content
        try:
            if row.sealed:
                if self._keys is None:
                    raise IntentStoreError(f"{row.name!r} in {self._path} is encrypted: give the store its keys")
                content = self._keys.decrypt(content, _context(row.name))
            return unpacked(content, Contract(row.contract))
        except (StoreError, ValueError) as error:
            raise IntentStoreError(f"{row.name!r} in {self._path} cannot be read: {error}") from error


def reserved_of(row: Kept, runs: Mapping[int, Run], time: FileTime, opened: Callable[[], Intent]) -> Reserved:
    """A row, for its users; `opened` gives its content when they want that."""
    promise = promise_of(row)
    return Reserved(
        name=row.name,
        key_hint=row.key_hint,
        contract=promise.contract,
        header=row.header,
        member=row.member,
        remembers=promise.remembers,
        withheld=tuple(row.withheld.split(",")) if row.withheld else (),
        reserved_at=row.reserved_at,
        settled_at=row.settled_at,
        runs=tuple(runs.values()),
        standing=standing_of(time.judged(runs), promise, time.now),
        sealed=bool(row.sealed),
        _open=opened,
    )


def promise_of(row: Kept) -> Promise:
    """What may be assumed about it when it arrives again."""
    remembers = None if row.remembers_us is None else timedelta(microseconds=row.remembers_us)
    return Promise(Contract(row.contract), remembers)


def _context(name: str) -> bytes:
    return b"intent\0" + name.encode("utf-8", "surrogatepass")
