"""What a store is made of: the pool, the file, the servers behind it, however many wrappers stand around."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

LOOKED_AT: Final = 500


def parts_of(store: Any) -> Iterator[Any]:
    """The store, and what it holds, nearest first: objects of twicesafe's, and pools and engines that these hold."""
    seen, left = {id(store)}, deque([store])
    for _ in range(LOOKED_AT):
        if not left:
            return
        one = left.popleft()
        yield one
        for held in _held_by(one):
            if id(held) not in seen:
                seen.add(id(held))
                left.append(held)


def _held_by(one: Any) -> Iterator[Any]:
    if isinstance(one, FunctionType):
        cells = one.__closure__ or ()
        yield from filter(_matters, [cell.cell_contents for cell in cells if _is_filled(cell)])
    elif isinstance(one, partial):
        yield from filter(_matters, [one.func, *one.args, *one.keywords.values()])
    elif isinstance(one, MethodType):
        yield from filter(_matters, [one.__self__])
    elif type(one).__module__.startswith("twicesafe."):
        slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
        values = [getattr(one, name, None) for name in slots if name != "__dict__"]
        yield from filter(_matters, [*getattr(one, "__dict__", {}).values(), *values])


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty one raises
    except ValueError:
        return False
    return True


def _matters(held: Any) -> bool:
    if isinstance(held, FunctionType | MethodType | partial):
        return str(getattr(getattr(held, "func", held), "__module__", "")).startswith("twicesafe.")
    if isinstance(held, type):
        return False
    return str(type(held).__module__).startswith(("twicesafe.", "asyncpg.", "psycopg_pool.", "asyncmy.", "sqlalchemy."))


def pool_size(store: Any) -> int | None:
    """How many connections it has for transactions at most; None where that is unknown, or there is no pool."""
    for part in parts_of(store):
        theirs = _size_of(part)
        if theirs is not None:
            return theirs
    for part in parts_of(store):
        ours = getattr(part, "_pool_size", None)
        if isinstance(ours, int):
            return ours
        places = getattr(part, "_places", None)
        if places is not None:
            return len(places._free)  # noqa: SLF001 - of the house, and nothing is taken yet
    return None


def _size_of(part: Any) -> int | None:
    """Of a pool or an engine of the application's own."""
    module = type(part).__module__.partition(".")[0]
    if module == "sqlalchemy":
        pool = getattr(part, "pool", None)
        if pool is None or not hasattr(pool, "size"):
            return None
        overflow = getattr(pool, "_max_overflow", 0)
        return None if overflow < 0 else int(pool.size()) + int(overflow)
    if module == "asyncpg" and hasattr(part, "get_max_size"):
        return int(part.get_max_size())
    if module == "psycopg_pool":
        return int(part.max_size)
    if module == "asyncmy" and hasattr(part, "maxsize"):
        return int(part.maxsize)
    return None
