"""Plain functions that are no plain functions: what is called, what it is asked for, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.functions.ways import Ledger, Receipt, Way
from twicesafe.core.functions import Function
from twicesafe.errors import ConfigurationError, KeyReusedError

if TYPE_CHECKING:
    from nowhere import Session  # type: ignore[import-not-found]

K = "sub_123:2026-10"


@dataclass
class Order:
    number: int


@dataclass
class Doubling:
    times: int = 2

    def __call__(self, order: Order) -> Order:
        return Order(order.number * self.times)


class Task:
    """As queues have them: an object, with something of its own that is called `func`."""

    func = "the name of something"

    def __call__(self) -> int:
        return 7


class Service:
    """Nothing that could be kept."""


def unset() -> Unset:
    return Unset()


@dataclass
class Unset:
    number: int = field(init=False)


def test_what_is_given_beforehand_is_asked_for_too(ledger: Ledger) -> None:
    """I4, F8: another customer under the same key is refused, and does not get the first one's receipt."""
    way = Way()
    assert way.once(K, partial(ledger.charge, "ann"), 100).id == "ch_1"
    with pytest.raises(KeyReusedError):
        way.once(K, partial(ledger.charge, "bob"), 100)
    for same in (partial(ledger.charge, "ann", 100), partial(ledger.charge, cents=100, customer="ann")):
        assert way.once(K, same).id == "ch_1"
    assert way.once(K, ledger.charge, "ann", 100).id == "ch_1"
    assert len(ledger.rows) == 1


@pytest.mark.parametrize(
    ("function", "result"), [(Order, Order(3)), (Doubling(), Order(6)), (lambda number: Task()(), 7)]
)
def test_classes_and_objects_give_what_they_say(function: Callable[..., Any], result: object) -> None:
    """A6, R32: what is called says what it gives, whatever kind of thing it is."""
    way = Way()
    argument = Order(3) if isinstance(function, Doubling) else 3
    assert way.once(K, function, argument) == way.once(K, function, argument) == result
    assert [event.name for event in way.events if event.loud] == []


def test_an_object_is_called_by_its_class() -> None:
    """R32: whatever attributes it has."""
    way = Way()
    assert way.once(K, Task()) == way.once(K, Task()) == 7


def test_what_a_class_makes_is_refused_before_the_work() -> None:
    """A6: where it can never be kept."""
    with pytest.raises(ConfigurationError, match="Service"):
        Way().once(K, Service)


def test_a_name_for_type_checkers_hides_no_other() -> None:
    """A6, R32: one annotation that cannot be found out leaves the others as they are."""
    way = Way()

    def work(session: Session, order: Order) -> list[Order]:
        return [order]

    does = way.once.operation(key=lambda session, order: K, without=["session"])(work)
    assert does(object(), Order(1)) == does(object(), Order(1)) == [Order(1)]


def test_a_result_that_cannot_be_read_leaves_no_claim(way: Way) -> None:
    """R27, A6: an object that raises when it is read is told as not kept; its key is not in progress for ever."""
    assert isinstance(way.call(K, unset), Unset)
    with pytest.raises(Exception, match="is not kept"):
        way.call(K, unset)


def several(
    order: Order, session: object = None, /, more: int = 1, *others: Receipt, last: int = 2, **rest: int
) -> Any:
    return order, session, more, others, last, rest


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((Order(1),), {}), ((Order(1), 5, 6, 7, 8), {"last": 9, "x": 1}), ((Order(1), object()), {"more": 3})],
)
def test_a_worker_calls_it_as_it_was_called(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    """R24: whatever kinds of parameters it has, and although one of them in the middle is not kept."""
    function = Function(several, without=["session"])
    again, by_name = function.arguments(function.kept_arguments(arguments, named))
    expected = list(several(*arguments, **named))
    expected[1] = None
    assert several(*again, **by_name) == tuple(expected)
