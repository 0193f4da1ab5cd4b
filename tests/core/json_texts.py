"""JSON texts for property tests: a value, and ways to write it that must not make a difference."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st

EXACTLY = Context(prec=400)

decimals = st.builds(
    lambda digits, exponent: Decimal(digits).scaleb(exponent, EXACTLY),
    st.integers(-(10**50), 10**50),
    st.integers(-60, 60),
)
strings = st.text(max_size=8)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(10**45), 10**45), decimals, strings)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=12,
)
"""None, bool, int, Decimal, str, list and dict: everything JSON can say, numbers exactly."""


def identity(value: Any) -> Any:
    """`value` such that == is equality of JSON values: 1 is 1.0 but not true."""
    match value:
        case bool() | None:
            return ("literal", value)
        case int() | Decimal():
            sign, digits, exponent = Decimal(value).as_tuple()
            text = "".join(map(str, digits)).lstrip("0")
            stripped = text.rstrip("0")
            assert isinstance(exponent, int)
            return (
                "number",
                sign if stripped else 0,
                stripped,
                exponent + len(text) - len(stripped) if stripped else 0,
            )
        case str():
            return ("string", value)
        case list():
            return ("array", [identity(item) for item in value])
        case dict():
            return ("object", {name: identity(member) for name, member in value.items()})
    raise AssertionError(value)


def neighbours(value: Any) -> Iterator[Any]:
    """Values that differ from `value` in one thing."""
    yield [value]
    match value:
        case None:
            yield from (False, 0, "", "null")
        case bool():
            yield from (not value, int(value), None, str(value).lower())
        case int() | Decimal():
            exact = Decimal(value)
            yield from (
                EXACTLY.add(exact, step) for step in (1, -1, Decimal("1e-9"), Decimal("-1e-60"), Decimal("1e60"))
            )
            yield from (str(value), bool(value), None)
            if value:
                yield from (EXACTLY.minus(exact), exact.scaleb(1, EXACTLY), exact.scaleb(-1, EXACTLY))
        case str():
            yield from (value + " ", value + "\0", "é" + value, None)
        case list():
            yield [*value, None]
            for place, item in enumerate(value):
                yield value[:place] + value[place + 1 :]
                for other in neighbours(item):
                    yield [*value[:place], other, *value[place + 1 :]]
            if [identity(item) for item in value] != [identity(item) for item in reversed(value)]:
                yield value[::-1]
        case dict():
            yield list(value)
            for name in value:
                yield {other: member for other, member in value.items() if other != name}
                for other in neighbours(value[name]):
                    yield {**value, name: other}
            for name in ("", "a"):
                if name not in value:
                    yield {**value, name: None}


@st.composite
def spellings(draw: st.DrawFn, value: Any) -> str:
    """One of the ways to write `value`."""
    blank = draw(st.sampled_from(["", " ", "\n\t", "\r\n  "]))
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return draw(numbers(Decimal(value)))
        case str():
            return draw(quotations(value))
        case list():
            items = [draw(spellings(item)) for item in value]
            return f"[{blank}" + f"{blank},{blank}".join(items) + f"{blank}]"
        case dict():
            names = draw(st.permutations(sorted(value)))
            members = [f"{draw(quotations(name))}{blank}:{blank}{draw(spellings(value[name]))}" for name in names]
            return f"{{{blank}" + f"{blank},{blank}".join(members) + f"{blank}}}"
    raise AssertionError(value)


@st.composite
def numbers(draw: st.DrawFn, value: Decimal) -> str:
    """`value` with its point and its exponent moved about."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    more = draw(st.integers(0, 3))
    text = "".join(map(str, digits)).lstrip("0") + "0" * more
    exponent -= more
    point = draw(st.integers(0, len(text)))
    whole, fraction = text[:point].lstrip("0") or "0", text[point:]
    if not fraction and draw(st.booleans()):
        fraction = "0"
    exponent += len(text) - point
    written = ("-" if sign else "") + whole + ("." + fraction if fraction else "")
    if exponent or draw(st.booleans()):
        power = draw(st.sampled_from(["e", "E"])) + ("-" if exponent < 0 else draw(st.sampled_from(["", "+"])))
        written += power + draw(st.sampled_from(["", "0"])) + str(abs(exponent))
    return written


@st.composite
def quotations(draw: st.DrawFn, value: str) -> str:
    """`value` with some of its characters escaped."""
    return '"' + "".join([draw(st.sampled_from(_escapes(character))) for character in value]) + '"'


def _escapes(character: str) -> list[str]:
    units = character.encode("utf-16-be")
    hexadecimal = "".join([f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)])
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    ways = [hexadecimal, hexadecimal.upper().replace("\\U", "\\u")]
    if character in short:
        ways.append(short[character])
    if character not in '"\\' and character >= " ":
        ways.append(character)
    return ways
