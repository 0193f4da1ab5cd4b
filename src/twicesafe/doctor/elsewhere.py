"""twicesafe's parts in applications of a framework that is not taken apart: they are in it somewhere.

An extension, a plugin or a wrapped function leads to them. Where they stand among the layers is not known, so their
stores, scopes and operations are looked at, and nothing is said of the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from twicesafe.core.policy import Operation
from twicesafe.doctor.subject import Guard, name_of, public_or

LOOKED_AT: Final = 20_000
"""Objects. A large application has as many before it comes to what it does."""
PLAIN: Final = (str, bytes, int, float, complex, bool, type(None), type, ModuleType)


def guards_in(app: Any) -> Iterator[Guard]:
    """Each part that claims, once."""
    seen, left = {id(app)}, deque([app])
    for _ in range(LOOKED_AT):
        if not left:
            return
        one = left.popleft()
        store = getattr(getattr(one, "_shared", None), "store", None) if _is_ours(one) else None
        if store is not None:
            yield _guard(one, store)
            continue
        for held in _held_by(one):
            if id(held) not in seen and not isinstance(held, PLAIN):
                seen.add(id(held))
                left.append(held)


def _is_ours(one: Any) -> bool:
    return type(one).__module__.startswith("twicesafe.") and type(one).__name__ in (
        "Idempotency",
        "IdempotencyMiddleware",
    )


def _guard(one: Any, store: Any) -> Guard:
    held = vars(one)
    contracts = held.get("_contracts", one)
    operations: Any = getattr(contracts, "operations", None) or getattr(contracts, "_operations", None) or {}
    listed: list[Operation] = list(operations.values())
    single = held.get("_operation")
    return Guard(
        name_of(one),
        store,
        public_or(held.get("_who", held.get("_scope"))),
        [*listed, *([single] if isinstance(single, Operation) else [])],
        every_route=True,
    )


def _held_by(one: Any) -> Iterator[Any]:
    if isinstance(one, Mapping):
        yield from list(one.values())
    elif isinstance(one, list | tuple | set | frozenset | deque):
        yield from list(one)
    elif isinstance(one, partial):
        yield from (one.func, *one.args, *one.keywords.values())
    elif isinstance(one, MethodType):
        yield from (one.__self__, one.__func__)
    elif isinstance(one, FunctionType):
        for cell in one.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:
                continue
        yield from list(vars(one).values())
    else:
        yield from list(getattr(one, "__dict__", {}).values())
        for kind in type(one).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                yield getattr(one, name, None)
