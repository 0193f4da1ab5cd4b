"""Operations of several steps: what their code may be, and what may become of it while they are under way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.functions.shop import K, Shop
from twicesafe.errors import (
    ConfigurationError,
    DefinitionChangedError,
    OutcomeUnknownError,
    ValueNotKeptError,
)
from twicesafe.once import Once, current
from twicesafe.stores.memory import MemoryStore

ALL = ["reserve", "charged ch_1", "paid ch_2", "end"]


# --- definitions -----------------------------------------------------------------------------------------------------


def steps_of(shop: Shop, once: Once, names: list[str], fail_after: int | None = None) -> Any:
    def write(connection: Any, name: str) -> None:
        connection.execute("INSERT INTO steps VALUES (?)", (name,))

    @once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> str:
        for number, name in enumerate(names):
            if number == fail_after:
                raise RuntimeError("stop here")
            current().phase(name, write, name)
        return "done"

    return op


@pytest.mark.parametrize("changed", [["b", "a", "c"], ["x", "b", "c"], ["a"], [], ["c"]])
def test_a_changed_definition_is_held_for_a_human(shop: Shop, changed: list[str]) -> None:
    """R24, I6: steps renamed, reordered or left out are never guessed about."""
    with pytest.raises(RuntimeError):
        steps_of(shop, shop.another(), ["a", "b", "c"], fail_after=2)()
    shop.clock.advance(timedelta(seconds=1))
    op = steps_of(shop, shop.another(), changed)
    with pytest.raises(DefinitionChangedError, match="held for a human"):
        op()
    with pytest.raises(OutcomeUnknownError):
        op()
    assert shop.rows() == ["a", "b"]


def test_steps_may_be_added_behind(shop: Shop) -> None:
    """R24: what was not reached yet is free to change."""
    with pytest.raises(RuntimeError):
        steps_of(shop, shop.another(), ["a", "b", "c"], fail_after=2)()
    shop.clock.advance(timedelta(seconds=1))
    assert steps_of(shop, shop.another(), ["a", "b", "d", "e"])() == "done"
    assert shop.rows() == ["a", "b", "d", "e"]


def test_two_steps_of_one_name_are_refused(shop: Shop) -> None:
    """R24: the error names the step."""
    with pytest.raises(ConfigurationError, match="'a'"):
        steps_of(shop, shop.once, ["a", "a"])()


def test_a_result_that_cannot_be_kept_rolls_its_phase_back(shop: Shop) -> None:
    """A6: found out inside the transaction, so nothing was done."""

    def write(connection: Any) -> Any:
        connection.execute("INSERT INTO steps VALUES ('x')")
        return object()

    def declared(connection: Any) -> complex:
        raise AssertionError("refused before it is called")

    for number, (function, refusal) in enumerate([(write, ValueNotKeptError), (declared, ConfigurationError)]):

        @shop.once.operation(key=lambda number: f"{K}-{number}", effects="resumable", name=f"op {number}")
        def op(number: int, function: Any = function) -> None:
            current().phase("a", function)

        op_of: Any = op
        shop.once._resumables.clear()
        with pytest.raises((refusal, ValueNotKeptError)):
            op_of(number)
    assert shop.rows() == []


def test_steps_are_for_resumable_operations(shop: Shop) -> None:
    """R13: elsewhere they would promise what nobody keeps."""
    with pytest.raises(LookupError, match="resumable"):
        shop.once(K, lambda: current().phase("a", lambda connection: None))


def test_a_store_without_recovery_points_is_refused() -> None:
    """R24: where the operation is declared, not when it is under way."""

    class Bare:
        transactional = False

        def close(self) -> None: ...

    bare: Any = Bare()
    with pytest.raises(ConfigurationError, match="recovery points"):
        Once(bare, scope="s").operation(key=lambda: K, effects="resumable")(lambda: None)


def test_the_memory_store_keeps_calls() -> None:
    """R25: without transactions there are no phases, but calls are written down all the same."""
    once = Once(MemoryStore(), scope="s")

    @once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> str:
        return current().call("charge", lambda key: key)

    assert op() == op()

    @once.operation(key=lambda: "another", effects="resumable", name="op 2")
    def two() -> None:
        current().phase("a", lambda connection: None)

    with pytest.raises(ConfigurationError, match="transaction"):
        two()
