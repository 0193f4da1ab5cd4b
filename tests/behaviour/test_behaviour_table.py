"""The table at the end of a run, and what is known of applications without importing them."""

from __future__ import annotations

from tests.behaviour.behaviour_table import table
from tests.behaviour.case import cases
from tests.behaviour.serving import probes
from tests.house.test_tests import cited


def test_the_table_tells_what_held_what_failed_and_what_cannot_be() -> None:
    """R42: one server that fails is a failure; what is not offered has its reason below; what was not tried, none."""
    columns = {
        "flask": {"gthread": {"a": True, "b": True, "c": True}, "sync": {"a": True, "b": False}},
        "asgi": {"uvicorn": {"a": True}},
    }
    lines = table(["a", "b", "c", "d"], columns, {"flask": {"d": "there are none"}, "asgi": {}})
    assert [line.split() for line in lines[:5]] == [
        ["1", "2"], ["a", "ok", "ok"], ["b", "NO"], ["c", "ok"], ["d", "n/a"]
    ]  # fmt: skip
    assert lines[5:] == [
        "",
        "   1  asgi under uvicorn: 1 held",
        "   2  flask under gthread: 3 held, sync: 1 held, 1 FAILED",
        "      n/a: there are none",
    ]


def test_an_application_lacks_only_what_some_case_needs() -> None:
    """R42: a feature that no case needs, or that comes without a reason, would be an excuse that nobody sees."""
    needed = {feature for case in cases() for feature in case.needs}
    for probe in probes():
        assert probe.commands, probe.name
        assert probe.not_offered.keys() <= needed, probe.name
        assert all(probe.not_offered.values()), probe.name


def test_every_case_says_what_it_proves() -> None:
    """R42: each case begins with the demands or faults that it is about, as tests do, and asserts the effect."""
    for case in cases():
        said = str(case.check.__doc__)
        assert list(cited(said.partition(":")[0])), case.name
        assert "ledger" in case.check.__code__.co_varnames, case.name
