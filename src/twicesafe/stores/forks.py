"""What a process inherits by a fork and must not touch: two processes on one connection read each other's answers."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Somebody who has connections."""

    def forked(self) -> None:
        """This is a child of the process that opened them: let go of them without a word, and of every lock."""


_MINDED: Final[WeakSet[Forked]] = WeakSet()
_INHERITED: Final[list[object]] = []


def mind_forks(one: Forked) -> None:
    """Have it told in each child. It costs nothing before there is one."""
    _MINDED.add(one)


def keep_for_ever(inherited: object) -> None:
    """What holds a connection that was inherited by a fork: to close it could end the parent's."""
    _INHERITED.append(inherited)


def _tell() -> None:
    for one in list(_MINDED):
        one.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)
