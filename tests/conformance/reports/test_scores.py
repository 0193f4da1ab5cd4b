"""Scores against profiles: what is demanded is data with sources, and agrees with what twicesafe itself follows."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from tests.conformance.reports.examples import finding
from twicesafe.conformance.findings import Verdict
from twicesafe.conformance.profiles import profiles
from twicesafe.conformance.scores import EVERY, Level, Missing, demands, harm, needs, score
from twicesafe.conformance.target_file import from_toml
from twicesafe.conformance.trials import ALL
from twicesafe.core.profiles import profiles as followed

TABLE: dict[str, Any] = tomllib.loads(
    files("twicesafe.conformance").joinpath("demands.toml").read_text(encoding="utf-8")
)
TRIALS = list(TABLE["every"]["trials"])
OWN = sorted(TABLE.keys() - {EVERY})
NAMES = {"stripe": "stripe-v1"}
"""What a profile is called here, and what where twicesafe follows it."""


def facts(name: str) -> dict[str, Any]:
    """What is published of a profile, as it stands where twicesafe follows it; what it chose itself is no fact."""
    row = followed()[NAMES.get(name, name)]
    return {axis: fact for axis, fact in row.items() if isinstance(fact, dict) and "from" in fact}


def test_every_trial_has_its_demand_and_its_harm() -> None:
    """R43: each trial that is made is demanded or left open by all, and a failure of it has a meaning for users."""
    assert sorted(TRIALS) == sorted(trial.name for trial in ALL)
    assert list(demands("no such profile")) == TRIALS
    for trial in TRIALS:
        assert harm(trial).endswith(".") and len(harm(trial)) > 20


@pytest.mark.parametrize("table", sorted({needs(trial) for trial in TRIALS} - {""}))
def test_what_a_trial_needs_can_be_described(table: str) -> None:
    """R43: the part of the description that a trial needs is one that a description may have."""
    described = f'[request]\nurl = "http://127.0.0.1/"\n[{table}]\n'
    assert from_toml(described).request.url == "http://127.0.0.1/"


@pytest.mark.parametrize("name", OWN)
def test_what_a_profile_demands_has_a_source(name: str) -> None:
    """R43: each demand of a profile's own says what is demanded, of a trial that there is, with a page that says so."""
    assert name in profiles()
    assert TABLE[name]["trials"].keys() <= set(TRIALS)
    for trial, demand in demands(name).items():
        own = trial in TABLE[name]["trials"]
        assert demand.profile == (name if own else EVERY)
        assert demand.source is not None or (demand.level is Level.OPTIONAL and not demand.says)
        assert demand.says or not own
    used = {said.get("from", next(iter(TABLE[name]["sources"]))) for said in TABLE[name]["trials"].values()}
    assert used <= TABLE[name]["sources"].keys()


@pytest.mark.parametrize("name", OWN)
def test_sources_are_those_that_twicesafe_follows(name: str) -> None:
    """R43: a profile's pages here are pages of the same profile there."""
    assert set(TABLE[name]["sources"].values()) <= set(followed()[NAMES.get(name, name)]["sources"].values())


def test_profiles_are_the_same_on_both_sides() -> None:
    """R43: what can be demanded can be followed, and every profile has demands of its own; `any` has none."""
    assert set(OWN) == profiles().keys() - {"any"}
    assert {NAMES.get(name, name) for name in OWN} <= followed().keys()


@pytest.mark.parametrize("name", OWN)
def test_published_statuses_and_markers_are_the_same_on_both_sides(name: str) -> None:
    """R43: the checker shares no line with what it checks, and yet both hold a vendor to the same facts."""
    here, there = profiles()[name], facts(name)

    def status(axis: str) -> frozenset[int]:
        return frozenset({there[axis]["status"]}) if axis in there else frozenset()

    assert here.mismatch == status("mismatch")
    assert here.in_progress == status("in_flight")
    assert here.marker == (there["replay"]["marker"] if "replay" in there else "")


@pytest.mark.parametrize("name", OWN)
def test_demands_follow_from_the_facts(name: str) -> None:
    """R43: where a fact decides what a trial is to a profile, the demand says so."""
    there, demanded = facts(name), demands(name)
    by_address = there.get("comparison", {}).get("by") == "address"
    assert (demanded["changed-body"].level is Level.DIFFERENT) == by_address
    if there.get("duplicates", {}).get("refused"):
        assert demanded["replay"].level is Level.DIFFERENT
    if there.get("comparison", {}).get("by") == "json":
        assert demanded["json-member-order"].level is Level.REQUIRED
    if "max" in there.get("key", {}):
        assert str(there["key"]["max"]) in demanded["overlong-key"].says
    if "4xx" in there.get("stored", {}).get("released", ()):
        assert demanded["rejected-then-corrected"].level is Level.REQUIRED
    if there.get("required", {}).get("always"):
        assert demanded["missing-key"].level is Level.REQUIRED and demanded["missing-key"].profile == name


def test_a_score_is_the_share_of_what_is_required() -> None:
    """R43: passes of required trials count; failures, what showed nothing and what was not tried are missing."""
    required = [trial for trial, demand in demands("ietf").items() if demand.level is Level.REQUIRED]
    verdicts = [Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE]
    found = [finding(trial, verdict) for trial, verdict in zip(required, verdicts, strict=False)]
    found.append(finding("replay-marker", Verdict.PASS))
    made = score("ietf", found)
    assert (made.passed, made.required) == (1, len(required))
    assert made.missing[:2] == tuple(map(Missing, required[1:3], verdicts[1:]))
    assert {one.verdict for one in made.missing[2:]} == {None}
    assert [one.trial for one in made.missing] == [trial for trial in TRIALS if trial in required[1:]]


def test_what_is_not_offered_is_missing_only_where_the_profile_itself_asks_for_it() -> None:
    """R43: a key in the body has no header line to be empty; a marker that a vendor promises has to be there."""
    found = [finding(trial) for trial in TRIALS]
    for trial in ("empty-key", "replay-marker"):
        found[TRIALS.index(trial)] = finding(trial, Verdict.UNSUPPORTED)
    assert score("ietf", found).percent == 100
    assert score("stripe", found).missing == (Missing("replay-marker", Verdict.UNSUPPORTED),)


@pytest.mark.parametrize("name", [*OWN, "any"])
def test_a_hundred_is_for_all_of_it_only(name: str) -> None:
    """R43: with all trials passed nothing is missing and the score is 100; with one failure it is less."""
    found = [finding(trial) for trial in TRIALS]
    assert (score(name, found).percent, score(name, found).missing) == (100, ())
    required = next(trial for trial, demand in demands(name).items() if demand.level is Level.REQUIRED)
    one_failed = [finding(trial, Verdict.FAIL if trial == required else Verdict.PASS) for trial in TRIALS]
    assert score(name, one_failed).percent < 100


def test_what_a_profile_does_otherwise_is_not_held_against_it() -> None:
    """R43: a vendor that gives the first answer to another body is told apart from one that promised not to."""
    found = [finding(trial, Verdict.FAIL if trial.startswith("changed-") else Verdict.PASS) for trial in TRIALS]
    assert score("worldline", found).percent == 100
    assert score("ietf", found).percent < 100
