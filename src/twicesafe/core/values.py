"""Arguments and results as bytes, and back with value and type (R32, A6).

JSON, in which whatever JSON has no word for is an object with one member whose name begins with `$`: `{"$decimal":
"1.10"}`. Kept are the plain types of the standard library, and of classes those that the function's annotations name:
enumerations, dataclasses, named tuples, and models that list their own fields, as pydantic's, msgspec's and attrs' do.
A class that nobody named is never looked up, so stored bytes can make no object of the reader's choosing.

What cannot be kept exactly is refused, subclasses of the plain types included: a result that comes back as another type
is another result.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import typing
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from twicesafe.core.annotations import hints_of_class
from twicesafe.errors import ConfigurationError, ValueNotKeptError

LARGE: Final = 4096
"""Bits above which a number is written in base 16: Python refuses decimal digits in thousands."""

_PLAIN: Final = (
    type(None), bool, int, float, str, bytes, bytearray, list, tuple, set, frozenset, dict, Decimal, Fraction, UUID,
    date, datetime, time, timedelta,
)  # fmt: skip
_PYDANTIC: Final = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode
_UNCHECKED: Final = (Any, object, typing.NoReturn, typing.Never, None)


class Values:
    """The values that functions with these annotations take and give. ConfigurationError for what can never be kept."""

    def __init__(self, *annotations: object) -> None:
        self._classes: dict[str, type] = {}
        self._passed: list[object] = []
        """Annotations that may hold themselves."""
        for annotation in annotations:
            self._know(annotation)

    def encode(self, value: object, *, canonical: bool = False) -> bytes:
        """ValueNotKeptError where decoding could not give the same again. `canonical`: equal mappings, equal bytes."""
        try:
            shaped = self._shaped(value, canonical)
            return _ENCODE(shaped).encode("ascii")
        except ValueNotKeptError:
            raise
        except RecursionError:
            raise ValueNotKeptError("the value is nested too deeply, or holds itself") from None
        except Exception as error:  # noqa: BLE001 - objects may raise whatever they like when they are read
            raise ValueNotKeptError(f"the value cannot be read ({type(error).__name__})") from None

    def decode(self, kept: bytes) -> Any:
        """What was encoded. ValueNotKeptError where the bytes are of another function, or of an older definition."""
        try:
            return json.loads(kept, object_hook=self._made)
        except ValueNotKeptError:
            raise
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
            raise ValueNotKeptError(
                f"the kept result cannot be read ({type(error).__name__}): the function's types have changed since"
            ) from error

    # --- classes ------------------------------------------------------------------------------------------------------

    def _know(self, annotation: object) -> None:
        if annotation in _UNCHECKED or isinstance(annotation, str | typing.ForwardRef):
            return
        if typing.get_origin(annotation) is typing.Annotated:
            self._know(typing.get_args(annotation)[0])
            return
        stands_for = _stands_for(annotation)
        if stands_for is not None:
            if not any(passed is annotation for passed in self._passed):
                self._passed.append(annotation)
                for one in stands_for:
                    self._know(one)
            return
        if typing.get_origin(annotation) is typing.Literal:
            for value in typing.get_args(annotation):
                self._know(type(value))
            return
        for argument in typing.get_args(annotation):
            # Callable's list of arguments is no type.
            if not isinstance(argument, list):
                self._know(argument)
        cls = typing.get_origin(annotation) or annotation
        if isinstance(cls, type) and cls not in _PLAIN:
            self._know_class(cls)

    def _know_class(self, cls: type) -> None:
        if cls.__module__ in ("collections.abc", "typing", "types"):
            # What comes under an abstract name is judged when it is there.
            return
        if typing.is_typeddict(cls):
            self._know(cls)
            return
        name = _name_of(cls)
        if name in self._classes:
            return
        if not (issubclass(cls, enum.Enum) or _fields_of(cls) is not None):
            raise ConfigurationError(
                f"a {cls.__qualname__} cannot be kept: take and give plain values, dataclasses, enumerations, named "
                "tuples or models, or leave the parameter out of the comparison by `without`"
            )
        self._classes[name] = cls
        if not issubclass(cls, enum.Enum):
            for hint in _hints(cls):
                self._know(hint)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _shaped(self, value: object, canonical: bool) -> object:  # noqa: FBT001 - as it came
        kind = type(value)
        if value is None or kind is bool:
            return value
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(value)
        if kind is list:
            return [self._shaped(one, canonical) for one in typing.cast("list[object]", value)]
        if kind is tuple:
            return {"$tuple": [self._shaped(one, canonical) for one in typing.cast("tuple[object, ...]", value)]}
        if kind is set or kind is frozenset:
            members = [self._shaped(one, canonical) for one in typing.cast("set[object]", value)]
            return {f"${kind.__name__}": sorted(members, key=_written)}
        if kind is dict:
            return self._mapping(typing.cast("dict[object, object]", value), canonical)
        return self._object(value, canonical)

    def _mapping(self, value: Mapping[object, object], canonical: bool) -> object:  # noqa: FBT001 - as it came
        pairs = [(self._shaped(key, canonical), self._shaped(one, canonical)) for key, one in value.items()]
        if canonical:
            pairs.sort(key=lambda pair: _written(pair[0]))
        if all(type(key) is str and not key.startswith("$") for key, _ in pairs):
            return dict(typing.cast("list[tuple[str, object]]", pairs))
        return {"$dict": [list(pair) for pair in pairs]}

    def _object(self, value: object, canonical: bool) -> object:  # noqa: FBT001 - as it came
        cls = type(value)
        name = _name_of(cls)
        if self._classes.get(name) is not cls:
            raise ValueNotKeptError(f"a {cls.__qualname__} cannot be kept: no annotation of the function names it")
        if isinstance(value, enum.Enum):
            # Several flags at once are a member without a name of its own.
            return {"$enum": [name, None, value.value] if isinstance(value, enum.Flag) else [name, value.name]}
        fields = _fields_of(cls)
        assert fields is not None, cls
        _check_nothing_else(value, fields)
        shaped = {field: self._shaped(getattr(value, field), canonical) for field in fields}
        if not hasattr(cls, "__pydantic_fields_set__"):
            return {"$object": [name, shaped]}
        model: Any = value
        extra = self._shaped(model.__pydantic_extra__, canonical)
        if canonical:
            # Which fields were left to their defaults makes no other model of it.
            return {"$object": [name, shaped, extra]}
        private = self._shaped(model.__pydantic_private__, canonical)
        return {"$object": [name, shaped, extra, private, sorted(model.__pydantic_fields_set__)]}

    # --- reading ------------------------------------------------------------------------------------------------------

    def _made(self, found: dict[str, Any]) -> object:
        if len(found) != 1:
            return found
        ((word, inside),) = found.items()
        if not word.startswith("$"):
            return found
        if word == "$object":
            name, fields, *more = inside
            return _remade(self._class(name), fields, more)
        if word == "$enum":
            cls: Any = self._class(inside[0])
            return cls[inside[1]] if inside[1] is not None else cls(inside[2])
        return _READERS[word](inside)

    def _class(self, name: str) -> type:
        cls = self._classes.get(name)
        if cls is None:
            raise ValueNotKeptError(f"the kept result holds a {name}, which no annotation of the function names")
        return cls


class AnyValues(Values):
    """Writes objects of whatever class comes. For those who give a result that others, who know the classes, read."""

    def _object(self, value: object, canonical: bool) -> object:  # noqa: FBT001 - as it came
        try:
            self._know_class(type(value))
        except ConfigurationError as error:
            raise ValueNotKeptError(str(error)) from None
        return super()._object(value, canonical)

    def check(self, kept: bytes) -> None:
        """ValueNotKeptError for what nobody could read. Of objects only those can tell who know their classes."""
        if b'"$object"' not in kept and b'"$enum"' not in kept:
            self.decode(kept)


def _written(shaped: object) -> str:
    return json.dumps(shaped)


def _int(value: Any) -> object:
    return value if value.bit_length() <= LARGE else {"$int": hex(value)}


def _float(value: Any) -> object:
    return value if value - value == 0 else {"$float": repr(value)}


def _str(value: Any) -> object:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        # Two halves of a pair would come back as the whole of it.
        return {"$str": b64encode(value.encode("utf-8", "surrogatepass")).decode("ascii")}
    return value


def _moment(value: Any) -> list[object]:
    """A date with a time, or a time: in words, its fold, and its zone where that says more than an offset."""
    zone = value.tzinfo
    if type(zone) is ZoneInfo and zone.key is not None:
        return [value.replace(tzinfo=None).isoformat(), value.fold, "zone", zone.key]
    if type(zone) is timezone:
        name = zone.tzname(None)
        if name != timezone(zone.utcoffset(None)).tzname(None):
            return [value.isoformat(), value.fold, "name", name]
    elif zone is not None:
        raise ValueNotKeptError(f"a time whose zone is a {type(zone).__qualname__} cannot be kept: use zoneinfo's")
    return [value.isoformat(), value.fold]


def _moment_of(cls: Any) -> Callable[[Any], object]:
    def made(inside: list[Any]) -> object:
        found, zone = cls.fromisoformat(inside[0]), None
        if len(inside) > 2:
            zone = ZoneInfo(inside[3]) if inside[2] == "zone" else timezone(found.utcoffset(), inside[3])
        return found.replace(tzinfo=zone or found.tzinfo, fold=inside[1])

    return made


_WRITERS: Final[Mapping[type, Callable[[Any], object]]] = {
    str: _str,
    int: _int,
    float: _float,
    bytes: lambda value: {"$bytes": b64encode(value).decode("ascii")},
    bytearray: lambda value: {"$bytearray": b64encode(value).decode("ascii")},
    Decimal: lambda value: {"$decimal": str(value)},
    Fraction: lambda value: {"$fraction": [hex(value.numerator), hex(value.denominator)]},
    UUID: lambda value: {"$uuid": value.hex},
    datetime: lambda value: {"$datetime": _moment(value)},
    date: lambda value: {"$date": value.isoformat()},
    time: lambda value: {"$time": _moment(value)},
    timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
}

_READERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "$str": lambda inside: b64decode(inside).decode("utf-8", "surrogatepass"),
    "$int": lambda inside: int(inside, 16),
    "$float": float,
    "$bytes": b64decode,
    "$bytearray": lambda inside: bytearray(b64decode(inside)),
    "$decimal": Decimal,
    "$fraction": lambda inside: Fraction(int(inside[0], 16), int(inside[1], 16)),
    "$uuid": lambda inside: UUID(hex=inside),
    "$datetime": _moment_of(datetime),
    "$date": date.fromisoformat,
    "$time": _moment_of(time),
    "$timedelta": lambda inside: timedelta(*inside),
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": dict,
}


def _name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _fields_of(cls: type) -> Collection[str] | None:
    """The names of what an object of this class holds; None where it is no class that says so."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    for listing in ("__struct_fields__", "model_fields", "_fields"):
        # msgspec's, pydantic's, a named tuple's.
        listed = getattr(cls, listing, None)
        if isinstance(listed, tuple | Mapping):
            return list(listed)
    attributes = getattr(cls, "__attrs_attrs__", None)
    return None if attributes is None else [attribute.name for attribute in attributes]


def _stands_for(annotation: Any) -> Collection[object] | None:
    """What an annotation that is no class stands for; None for all others."""
    if isinstance(annotation, typing.TypeVar):
        return annotation.__constraints__ or (annotation.__bound__,)
    if isinstance(annotation, typing.NewType):
        return (annotation.__supertype__,)
    if typing.is_typeddict(annotation):
        return hints_of_class(annotation).values()
    if type(annotation).__name__ == "TypeAliasType":
        return (annotation.__value__,)
    return None


def _check_nothing_else(value: object, fields: Collection[str]) -> None:
    """ValueNotKeptError where an object holds what is none of its fields, and would come back without it."""
    for name in getattr(value, "__dict__", {}).keys() - set(fields):
        # Python's own, and what is worked out again when it is asked for.
        if not name.startswith("__") and not isinstance(getattr(type(value), name, None), cached_property):
            raise ValueNotKeptError(
                f"a {type(value).__qualname__} that holds {name!r} beside its fields cannot be kept: make it a field"
            )


def _hints(cls: type) -> Iterator[object]:
    hints = hints_of_class(cls)
    fields = _fields_of(cls) or ()
    for name in fields:
        if name in hints:
            yield hints[name]


def _remade(cls: type, fields: dict[str, Any], more: list[Any]) -> object:
    """An object as it was, without asking its constructor, which may want other arguments or compute something anew."""
    if set(fields) != set(_fields_of(cls) or ()):
        raise ValueNotKeptError(f"the kept {cls.__qualname__} has other fields than it has now")
    made: Any = cls
    if issubclass(cls, tuple):
        return made._make(fields[name] for name in made._fields)
    if hasattr(cls, "__pydantic_fields_set__"):
        extra, private, given = more
        found = cls.__new__(cls)
        for slot, one in zip(_PYDANTIC, (fields, set(given), extra, private), strict=True):
            object.__setattr__(found, slot, one)
        return found
    if hasattr(cls, "__struct_fields__"):
        return made(**fields)
    found = cls.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(found, name, value)
    return found
