"""The data of the profiles: each fact has a source or a reason, and each profile makes a policy."""

from __future__ import annotations

import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import twicesafe.core
from twicesafe.core.policy import Policy
from twicesafe.core.profiles import AXES, profiles, settings_of, statuses
from twicesafe.core.record import Effects
from twicesafe.errors import ConfigurationError

FILE = Path(twicesafe.core.__file__).with_name("profiles.toml")
DATA: dict[str, dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))
PROMISED = {
    "ietf", "acp", "adcp", "stripe-v1", "stripe-v2", "paypal", "square", "square-payment-link", "adyen", "azure",
    "dwolla", "razorpay", "gocardless", "increase", "checkout", "worldline", "qonto", "solidgate", "whop", "ppro",
    "truelayer", "helcim", "mercado-pago", "flutterwave", "amazon-pay", "moov", "mangopay", "iceberg", "openbanking",
}  # fmt: skip
PROSE = {"title", "sources", "not_reproduced", "unsafe"}


FACTS = [(name, axis, fact) for name, row in DATA.items() for axis, fact in row.items() if axis not in PROSE]


def test_every_promised_profile_is_there() -> None:
    """R5: the vendors and specifications that the documentation names have a profile."""
    assert set(DATA) >= PROMISED
    assert profiles() == DATA


def test_a_fact_has_a_source_or_a_reason() -> None:
    """R5: what is known names a public source of the profile's; what is not says why it was chosen; nothing is both."""
    for name, axis, fact in FACTS:
        assert axis in AXES, (name, axis)
        if "from" in fact:
            assert fact["from"] in DATA[name]["sources"] and "chosen" not in fact, (name, axis)
        else:
            assert len(fact["chosen"].split()) >= 2, (name, axis)
        assert len(fact.keys() - {"from", "chosen", "note"}) >= 1, (name, axis)


@pytest.mark.parametrize("name", DATA)
def test_sources_are_public_and_used(name: str) -> None:
    """R5: each source is an address that a reader can open, and some fact leans on it."""
    sources = DATA[name]["sources"]
    assert all(address.startswith("https://") and " " not in address for address in sources.values())
    assert {fact["from"] for row, _, fact in FACTS if row == name and "from" in fact} == set(sources)


@pytest.mark.parametrize("name", DATA)
def test_every_profile_makes_a_policy(name: str) -> None:
    """R5, R15: a profile is a policy like any other, to be changed in the call or afterwards."""
    clock = {"clock": lambda: 0.0} if "first_sent" in DATA[name] else {}
    policy = Policy.profile(name, effects="transactional", **clock)
    assert policy.effects is Effects.TRANSACTIONAL
    assert policy.but(required=True).required
    longer = timedelta(days=36_525)
    assert policy.but(key_retention=longer).key_retention == longer
    assert set(DATA[name]) >= {"title", "carrier", "window", "sources"}


class Watched(dict[str, Any]):
    """A fact that remembers what was read of it."""

    def __init__(self, fact: dict[str, Any]) -> None:
        super().__init__(fact)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


def test_no_fact_is_ignored() -> None:
    """R5: every value of a fact is read by the setting that follows from it; a slip of the pen is not passed over."""
    for name, axis, fact in FACTS:
        watched = Watched(fact)
        assert AXES[axis](watched), (name, axis)
        assert fact.keys() - watched.read - {"from", "chosen", "note", "all"} == set(), (name, axis)


def test_an_unknown_profile_is_refused_by_name() -> None:
    """R5: a name that is none is told which there are."""
    with pytest.raises(ConfigurationError, match=r"no profile 'strpe'; there are acp, adcp, .*stripe-v1, stripe-v2"):
        Policy.profile("strpe")


def test_a_profile_that_compares_times_needs_a_clock() -> None:
    """R5, I12: the application passes its clock for what its callers say of theirs; there is no hidden one."""
    with pytest.raises(ConfigurationError, match=r"clock=time\.time"):
        Policy.profile("azure")


def test_a_failure_that_is_run_again_is_never_taken_for_nothing_done() -> None:
    """R13, R15, I6: what a vendor does not store of 5xx is no released key here, apart from what says that nothing was
    done, and an exception counts as the 500 that it is."""
    for name in DATA:
        settings = settings_of(name)
        released, rerun = settings.get("released", frozenset()), settings.get("rerun", frozenset())
        assert {status for status in released if status >= 500} <= {503}
        assert not released & rerun
        assert settings.get("unknown_on_error", False) == (500 in rerun)


def test_how_statuses_are_named() -> None:
    """R15: one status, a class of them, or a range."""
    assert statuses(["404", "5xx"]) == {404, *range(500, 600)}
    assert statuses(["501-503"]) == {501, 502, 503}
    assert statuses([]) == frozenset()
