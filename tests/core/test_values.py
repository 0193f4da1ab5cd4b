"""Values as bytes and back: the same value, of the same type, or refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.values import AnyValues, Values
from twicesafe.errors import ConfigurationError, ValueNotKeptError


class Colour(Enum):
    RED = ("a", 1)


class Rights(Flag):
    READ = 1
    WRITE = 2


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


class Point(NamedTuple):
    x: int
    y: Decimal


@dataclass(frozen=True, slots=True)
class Money:
    amount: Decimal
    currency: str = "EUR"


@dataclass
class Receipt:
    money: Money
    lines: list[Point] = field(default_factory=list)
    total: Decimal = field(init=False, default=Decimal(0))

    def __post_init__(self) -> None:
        self.total += sum(point.y for point in self.lines)


class Model(pydantic.BaseModel):
    id: UUID
    at: datetime
    inner: Money | None = None


class Struct(msgspec.Struct):
    a: int
    b: tuple[str, ...] = ()


class Typed(TypedDict):
    amount: Decimal


def same(kept: object, given: object) -> bool:
    """Equal, and of one type all the way down."""
    if type(kept) is not type(given):
        return False
    if isinstance(given, float) and math.isnan(given):
        return math.isnan(kept)  # type: ignore[arg-type]
    if isinstance(given, list | tuple):
        return len(kept) == len(given) and all(map(same, kept, given))  # type: ignore[arg-type]
    if isinstance(given, dict):
        return same(list(kept.items()), list(given.items()))  # type: ignore[attr-defined]
    return kept == given and (isinstance(given, int | set | frozenset) or repr(kept) == repr(given))


NAIVE = datetime.fromisoformat("2026-10-25T02:30:00.000006")

PLAIN = [
    None, True, False, 0, -1, 10**5000, -(10**5000), 0.0, -0.0, 1.5, 1e300, math.inf, -math.inf, math.nan, "", "é",
    "\ud800", "\0", b"", bytes(range(256)), bytearray(b"x"), [], {}, [[]], (), (1,), set(), {1, "a"}, frozenset({b"x"}),
    {"a": 1, "$b": 2}, {1: "one", (1, 2): None}, {"$decimal": "1"}, {"$tuple": [1]}, [(1, [2, (3,)])],
    Decimal("1.10"), Decimal("-0"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1E+3"),
    Fraction(1, 3), UUID(int=7), date(2026, 1, 2), time(1, 2, 3, 4), time(1, tzinfo=UTC), time(1, fold=1),
    NAIVE, datetime(2026, 1, 2, tzinfo=UTC), NAIVE.replace(fold=1),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    timedelta(days=-1, microseconds=3),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_values_come_back_as_they_were(value: object) -> None:
    """A6, D6: value and type are kept, falsy and strange ones too."""
    values = Values()
    back = values.decode(values.encode(value))
    if isinstance(value, Decimal) and value.is_nan():
        assert str(back) == str(value)
    else:
        assert same(back, value)


OBJECTS = [
    (Colour.RED, Colour),
    (Rights.READ | Rights.WRITE, Rights),
    (Rights(0), Optional[Rights]),  # noqa: UP045 - as older code writes it
    (Level.HIGH, Level | None),
    (Word.YES, Annotated[Word, "a note"]),
    (Point(1, Decimal("2.50")), Point),
    ([Money(Decimal("1.10"))], Sequence[Money]),
    ({"a": Money(Decimal(1))}, dict[str, Money]),
    (Receipt(Money(Decimal(1)), [Point(1, Decimal(2))]), Receipt),
    (Model(id=UUID(int=1), at=datetime(2026, 1, 1, tzinfo=UTC), inner=Money(Decimal(1))), Model),
    (Model(id=UUID(int=1), at=NAIVE), Model),
    (Struct(1, ("a",)), Struct),
    ({"amount": Decimal(1)}, Typed),
    ("x", Literal["x", "y"]),
]


@pytest.mark.parametrize(("value", "annotation"), OBJECTS, ids=lambda value: type(value).__name__)
def test_objects_that_annotations_name_come_back(value: object, annotation: object) -> None:
    """A6: dataclasses, enumerations, named tuples and models are kept where an annotation names their class."""
    values = Values(annotation)
    back = values.decode(values.encode(value))
    assert back == value
    assert type(back) is type(value)
    if isinstance(value, Receipt):
        assert isinstance(back, Receipt)
        assert back.total == Decimal(2), "made anew it would be computed twice"


def test_a_class_that_nobody_named_is_refused() -> None:
    """A6, S: stored bytes make no object but of the function's own types."""
    with pytest.raises(ValueNotKeptError, match="no annotation"):
        Values().encode(Money(Decimal(1)))
    kept = Values(Money).encode(Money(Decimal(1)))
    with pytest.raises(ValueNotKeptError, match="no annotation"):
        Values().decode(kept)


def test_what_can_never_be_kept_is_refused_by_its_annotation() -> None:
    """A6: refused before the work, not after it."""
    for annotation in (complex, memoryview, list[range], dict[str, type], Exception, object()):
        if isinstance(annotation, type) or hasattr(annotation, "__origin__"):
            with pytest.raises(ConfigurationError, match="cannot be kept"):
                Values(annotation)


class Text(str):
    """Another type than its value shows."""

    __slots__ = ()


@pytest.mark.parametrize("value", [Text("x"), 1j, object(), range(3), lambda: 1, type, memoryview(b"")])
def test_what_would_come_back_as_another_type_is_refused(value: object) -> None:
    """A6: neither guessed nor turned into text."""
    with pytest.raises(ValueNotKeptError):
        Values().encode(value)
    with pytest.raises(ValueNotKeptError):
        Values().encode([{"a": value}])


def test_what_holds_itself_is_refused() -> None:
    """A6, K: endless nesting is an error of its own, not a crash."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueNotKeptError, match="nested"):
        Values().encode(endless)


@pytest.mark.parametrize(
    "kept", [b"", b"{", b'{"$decimal":"x"}', b'{"$uuid":1}', b'{"$what":1}', b'{"$enum":[]}', b"\xff"]
)
def test_bytes_that_are_no_value_are_refused(kept: bytes) -> None:
    """A6: a record of another release, or a damaged one, is an error that says so."""
    with pytest.raises(ValueNotKeptError):
        Values().decode(kept)


def test_what_somebody_wrote_by_hand_is_looked_at_as_far_as_it_can_be() -> None:
    """R26, A6: what nobody could read is refused; an object of a class that is not known here is taken."""
    for kept in (b'"ch_1"', b'{"$object": ["shop:Receipt", {"id": 1}]}', b'{"$enum": ["shop:Word", "YES"]}'):
        AnyValues().check(kept)
    for kept in (b'{"$decimal": "x"}', b'{"$nothing": 1}', b"ch_1"):
        with pytest.raises(ValueNotKeptError):
            AnyValues().check(kept)


def test_a_class_whose_fields_have_changed_is_refused() -> None:
    """A6: never an object that lacks what its class has by now."""
    kept = Values(Money).encode(Money(Decimal(1))).replace(b'"currency"', b'"country"')
    with pytest.raises(ValueNotKeptError, match="other fields"):
        Values(Money).decode(kept)


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(TREES)
def test_every_tree_of_plain_values_comes_back(value: object) -> None:
    """A6: whatever is in whatever."""
    assert same(Values().decode(Values().encode(value)), value)


@given(st.dictionaries(st.text() | st.integers(), st.integers()))
def test_equal_mappings_have_one_canonical_form(value: dict[Any, int]) -> None:
    """F2: the order in which members were put is no part of what is asked for."""
    turned = dict(reversed(value.items()))
    assert Values().encode(turned, canonical=True) == Values().encode(value, canonical=True)


def test_equal_numbers_of_other_types_are_other_values() -> None:
    """R8: 1, 1.0, True and "1" ask for different things."""
    assert len({Values().encode(value) for value in (1, 1.0, True, "1", Decimal(1))}) == 5


# --- what is easily lost ---------------------------------------------------------------------------------------------


class Open(pydantic.BaseModel, extra="allow"):
    a: int = 1
    _private: int = pydantic.PrivateAttr(default=0)


class Crossed(pydantic.BaseModel):
    a: int = pydantic.Field(alias="b")
    b: int = pydantic.Field(alias="a")


class Nested(TypedDict):
    money: Money
    more: list[Nested]


Cash = NewType("Cash", Money)
Bound = TypeVar("Bound", bound=Money)


class Page(TypedDict, Generic[Bound]):
    money: Bound


def opened() -> Open:
    model = Open.model_validate({"more": Decimal(2)})
    model._private = 5
    return model


@pytest.mark.parametrize(
    "value",
    [
        "\ud83d\ude00", {"\ud83d\ude00": 1}, ["\udc00\ud800"], time(12, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1), "CET")),
        time(1, tzinfo=timezone(timedelta(0), "here")),
    ],
    ids=ascii,
)  # fmt: skip
def test_halves_of_letters_and_zones_come_back(value: object) -> None:
    """A6: two halves are not the letter that they would make, and a zone is more than its offset."""
    back = Values().decode(Values().encode(value))
    assert same(back, value)
    assert Values().encode("\ud83d\ude00", canonical=True) != Values().encode("\U0001f600", canonical=True)


@pytest.mark.parametrize("annotation", [Cash, list[Cash], Bound, Nested, Annotated[Money, print], Page[Cash]])
def test_a_name_for_a_class_names_the_class(annotation: object) -> None:
    """A6, R32: new types, bounds and typed dictionaries say what comes."""
    value = Money(Decimal("1.10"))
    values = Values(annotation)
    assert same(values.decode(values.encode([value, {"money": value}])), [value, {"money": value}])


def test_a_model_comes_back_whole() -> None:
    """A6: with what it has beside its fields, which of them were given, and whatever their aliases."""
    values = Values(Open, Crossed)
    model, crossed = opened(), Crossed.model_validate({"a": 1, "b": 2})
    back = values.decode(values.encode(model))
    assert (back, back._private, back.model_extra, back.model_fields_set) == (model, 5, {"more": Decimal(2)}, {"more"})
    assert values.decode(values.encode(crossed)) == crossed
    assert values.encode(Open(), canonical=True) == values.encode(Open(a=1), canonical=True)


class OwnZone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1)


def beside() -> Money:
    receipt: Any = Receipt(Money(Decimal(1)))
    receipt.note = "beside its fields"
    return receipt  # type: ignore[no-any-return]


def unread() -> Receipt:
    receipt = Receipt(Money(Decimal(1)))
    del receipt.lines
    return receipt


@pytest.mark.parametrize(
    "value", [datetime(2026, 1, 2, tzinfo=OwnZone()), beside(), unread()], ids=["zone", "beside", "unread"]
)
def test_what_would_come_back_as_less_is_refused(value: object) -> None:
    """A6: and what cannot be read is refused by the same error."""
    with pytest.raises(ValueNotKeptError):
        Values(Receipt).encode(value)


def test_a_field_of_a_class_that_is_seen_here_only() -> None:
    """A6: a class inside of a function may hold itself, and each of its fields says what it says."""

    class Side(Enum):
        LEFT = 1

    @dataclass
    class Node:
        colour: Colour
        next: Node | None = None
        side: Side = Side.LEFT

    values = Values(Node)
    node = Node(Colour.RED, Node(Colour.RED), None)  # type: ignore[arg-type]
    node.next.side = None  # type: ignore[assignment, union-attr]
    assert values.decode(values.encode(node)) == node
