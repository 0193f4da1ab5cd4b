"""What a resumable operation has done so far: one entry for each step, in the order the steps were taken.

An operation is run again from its first line, and each step that has an entry gives what the entry says. So the steps
have to come in the order they came in before; one that does not means that the code has changed under the record, and
that is for a human to judge. Entries are only added, and only the last may still be open (I10).

Written it is a line for each entry, in the order in which they were added; one that takes the place of an open entry
stands behind it. So a step adds one line to its record, however many steps were taken before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, cast

from twicesafe.core.record import Instant
from twicesafe.errors import ConfigurationError, DefinitionChangedError

PHASE: Final = "phase"
CALL: Final = "call"

OPEN, DONE, REJECTED, LOST = "open", "done", "rejected", "lost"
"""Standings of an entry. Open: a call that may have been sent. Lost: done, and its result could not be kept."""
UNSENT: Final = "unsent"
"""Result of an open entry: the last attempt at it provably never left."""


class Entry(NamedTuple):
    """One step. `result` is what `core.values` made of it; of a call that was rejected, why."""

    name: str
    kind: str
    standing: str
    result: str = ""
    at: Instant = 0
    """Of a call: no later than when it was first sent, by the store's clock."""

    @property
    def unsettled(self) -> bool:
        """Whether somebody has to say what it gave: it may have been carried out, or was and its result is lost."""
        return self.standing in (OPEN, LOST)


class Move(NamedTuple):
    """What one more entry changes in a record."""

    point: str
    """The recovery point from then on."""
    addition: bytes
    """What comes behind the data that is there. A newline and a line of ASCII."""


class Journal:
    """The entries that were found, and how far this run has come among them."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: list[Entry] = []
        for entry in entries:
            self.add(entry)
        self._reached = 0
        self._named: set[str] = set()

    @classmethod
    def read(cls, data: bytes | None, point: str | None) -> Journal:
        """What was written, up to a record's recovery point.

        DefinitionChangedError where it is of another release, or does not end at that point: then some of it is lost.
        """
        if point is None:
            # None was taken; or a human has said that they are to be taken anew, and what is there is of before.
            return cls()
        try:
            journal = cls(Entry(*entry) for entry in _lines(data or b""))
        except (ValueError, TypeError) as error:
            raise DefinitionChangedError("the steps that were taken before cannot be read by this release") from error
        if journal.point != point:
            raise DefinitionChangedError(
                f"the steps that were taken before are not all there: they end at {journal.point!r}, not at {point!r}"
            )
        return journal

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All of them, the oldest first."""
        return tuple(self._entries)

    def next(self, name: str, kind: str) -> Entry | None:
        """The entry of the step that is about to be taken; None for the first that has none.

        ConfigurationError for a name that this run has used, DefinitionChangedError for a step out of its order.
        """
        given: object = name
        if not isinstance(given, str) or not given or not _written_out(given):
            raise ConfigurationError(f"a step needs a name, not {name!r}")
        if name in self._named:
            raise ConfigurationError(
                f"two steps of one run are called {name!r}: in a loop, put what differs into the name"
            )
        self._named.add(name)
        if self._reached == len(self._entries):
            return None
        entry = self._entries[self._reached]
        if (entry.name, entry.kind) != (name, kind):
            raise DefinitionChangedError(
                f"step {self._reached + 1} was the {entry.kind} {entry.name!r} and is now the {kind} {name!r}: the "
                "operation was changed while this one was under way. It is held for a human"
            )
        self._reached += 1
        return entry

    def check_end(self) -> None:
        """DefinitionChangedError where the operation ends before it has come to what was done already."""
        if self._reached < len(self._entries):
            left = self._entries[self._reached]
            raise DefinitionChangedError(
                f"the operation ended without its {left.kind} {left.name!r}, which was taken before: it was changed "
                "while this one was under way. It is held for a human"
            )

    def move(self, entry: Entry) -> Move:
        """What puts this entry at its end, in place of an open one of its name. Once that is written: `add`."""
        return Move(_point(len(self._entries) + (not self._replaces(entry)), entry), _line(entry))

    def add(self, entry: Entry) -> None:
        """This entry stands at its end."""
        if self._replaces(entry):
            self._entries[-1] = entry
        else:
            self._entries.append(entry)
        self._reached = len(self._entries)

    def having(self, entry: Entry) -> Journal:
        """Another with this entry at its end."""
        return Journal((*self._entries, entry))

    def _replaces(self, entry: Entry) -> bool:
        return bool(self._entries) and self._entries[-1].name == entry.name

    @property
    def point(self) -> str | None:
        """The recovery point: which of two journals of one operation is further is told by nothing else."""
        return _point(len(self._entries), self._entries[-1]) if self._entries else None

    def written(self) -> bytes:
        """The whole of it, for a record."""
        return b"".join(map(_line, self._entries))


def _point(number: int, last: Entry) -> str:
    standing = UNSENT if last.standing == OPEN and last.result == UNSENT else last.standing
    # The name is for people: in ASCII and short, so that every database keeps it as it is.
    return f"{number} {standing} {json.dumps(last.name)[1:-1][:200]}"


def is_unsent(point: str | None) -> bool:
    """Whether the last step at this recovery point is a call that is known not to have been carried out."""
    return point is not None and point.partition(" ")[2].startswith(f"{UNSENT} ")


_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode
"""`json.dumps` would make an encoder for each."""


def _line(entry: Entry) -> bytes:
    return b"\n" + _ENCODE(entry).encode("ascii")


def _lines(data: bytes) -> list[Any]:
    """The entries as they were written. ValueError, TypeError where they were not."""
    whole, *lines = data.split(b"\n")
    entries = json.loads(b"[%b]" % b",".join(lines))
    if whole:
        # Written by a release that wrote all of them anew at each step.
        version, before = json.loads(whole)
        if version != 1:
            raise ValueError(version)
        entries = [*before, *entries]
    return cast("list[Any]", entries)


def _written_out(name: str) -> bool:
    """Whether it is text: half a surrogate pair is none."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
