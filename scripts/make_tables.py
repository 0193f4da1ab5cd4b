"""Writes the tables of the documents from code and data, between marks, so that none says what the other does not.

python scripts/make_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from twicesafe.conformance.profiles import profiles as checked
from twicesafe.conformance.scores import EVERY, Level, demands, harm, needs
from twicesafe.conformance.trials import ALL as TRIALS
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.lifecycle import TRANSITIONS, Event, Standing, Verdict, decide, standing
from twicesafe.core.limits import Limits
from twicesafe.core.policy import Policy
from twicesafe.core.problems import PROBLEMS
from twicesafe.core.profiles import AXES, profiles
from twicesafe.core.record import Effects, Record, RecordState, StoredResponse
from twicesafe.core.replay import HOP_BY_HOP, PER_EXCHANGE
from twicesafe.doctor import CATALOGUE

DOCS: Final = Path(__file__).parents[1] / "docs"

NOW: Final = 1_000_000
SOON: Final = NOW + 1
MINE: Final = b"\x01" * 33
OTHER: Final = b"\x02" * 33
ME: Final = b"m" * 16
THEM: Final = b"t" * 16

ANSWERS: Final = {
    Verdict.FREE: "run it",
    Verdict.OWN: "run it: the claim is mine, only its answer was lost",
    Verdict.TAKE_OVER: "run it",
    Verdict.HOLD: "record the outcome as unknown, then `outcome-unknown`",
    Verdict.SETTLE: "record it as done without a body, then `result-not-kept`",
    Verdict.REPLAY: "the stored answer, `Idempotent-Replayed: true`",
    Verdict.GONE: "`result-not-kept`, `Idempotent-Replayed: true`",
    Verdict.IN_PROGRESS: "`in-progress` with `Retry-After`, or a bounded wait and a second look",
    Verdict.UNKNOWN: "`outcome-unknown`",
    Verdict.MISMATCH: "`key-reused`",
}


FACTS: Final = {
    "carrier": "the key stands in",
    "key": "a key is",
    "methods": "methods",
    "required": "a key is required",
    "empty": "an empty key",
    "namespace": "a key belongs to",
    "comparison": "the same request",
    "window": "remembered for",
    "stored": "stored",
    "duplicates": "who asks again",
    "mismatch": "another request",
    "in_flight": "in the meantime",
    "replay": "a replay says",
    "echo": "answers echo the key",
    "directive": "problems say in",
    "result": "answers say in",
    "first_sent": "first sent",
}
"""What a reader calls the facts of a profile."""


def wrapped(text: str, indent: str = "") -> str:
    """Prose at the width of the code."""
    return fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as Markdown writes it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def transitions() -> str:
    """Events down, standings across; a dot is a refusal that changes nothing."""
    rows = ([f"**{event}**", *(TRANSITIONS[where].get(event, "·") for where in Standing)] for event in Event)
    return table(["", *Standing], rows)


def record(where: Standing, effects: Effects) -> Record:
    """A record that stands so at NOW, made by somebody else for the request MINE."""
    state = {
        Standing.COMPLETED: RecordState.COMPLETED,
        Standing.TOMBSTONE: RecordState.COMPLETED,
        Standing.UNKNOWN: RecordState.UNKNOWN,
    }.get(where, RecordState.CLAIMED)
    body = None if where in (Standing.TOMBSTONE, Standing.ANSWERED) else b""
    answered = state is RecordState.COMPLETED or where is Standing.ANSWERED
    made = Record(
        digest=b"",
        scope="",
        operation="",
        key_hint="",
        fingerprint=MINE,
        effects=effects,
        state=state,
        owner=THEM,
        epoch=1,
        created_at=0,
        lease_until=SOON if where is Standing.CLAIMED else NOW,
        key_until=SOON,
        body_until=SOON,
        response=StoredResponse(200, (), body) if answered else None,
    )
    assert standing(made, NOW) is where
    return made


def decisions() -> str:
    """What an attempt finds, and what it does."""
    rows = [[Standing.FREE.value, "any", "any", Verdict.FREE.value, ANSWERS[Verdict.FREE]]]
    found = [where for where in Standing if where is not Standing.FREE]
    refusals = {
        decide(record(where, effects), GivenFingerprint(OTHER), ME, NOW) for where in found for effects in Effects
    }
    assert refusals == {Verdict.MISMATCH}
    rows.append(["any other", "another", "any", Verdict.MISMATCH.value, ANSWERS[Verdict.MISMATCH]])
    cases = [(where.value, [record(where, effects) for effects in Effects]) for where in found]
    forgotten = [record(Standing.STALE, effects)._replace(key_until=NOW) for effects in Effects]
    cases.insert(2, ("stale, its key's retention over too", forgotten))
    for name, left in cases:
        verdicts: dict[Verdict, list[str]] = {}
        for row in left:
            verdicts.setdefault(decide(row, GivenFingerprint(MINE), ME, NOW), []).append(row.effects)
        for verdict, declared in verdicts.items():
            declaration = "any" if len(declared) == len(Effects) else ", ".join(declared)
            rows.append([name, "the same", declaration, verdict.value, ANSWERS[verdict]])
    return table(["the record is", "the request is", "declared effects", "verdict", "what happens"], rows)


def problems() -> str:
    """Every problem type."""
    rows = (
        [f"`{kind}`", str(shape.status), shape.title, yes(shape.retryable), yes(shape.safe_new_key)]
        for kind, shape in PROBLEMS.items()
    )
    return table(["type", "status", "title", "retryable", "safe_new_key"], rows)


def policy() -> str:
    """Every setting and its default."""
    default = Policy()
    rows = [[f"`{field.name}`", shown(getattr(default, field.name))] for field in fields(Policy) if field.init]
    return table(["setting", "default"], rows)


def headers() -> str:
    """The header lines that are not remembered."""
    kinds = (("belong to one connection", HOP_BY_HOP), ("belong to one exchange", PER_EXCHANGE))
    rows = [[why, ", ".join(f"`{name.decode()}`" for name in sorted(names))] for why, names in kinds]
    rows += [
        ["named by `Connection`", "whatever it names"],
        ["may open a session of the past", "`set-cookie`, unless the policy says `store_cookies=True`"],
    ]
    return table(["why not", "lines"], rows)


def yes(value: bool) -> str:  # noqa: FBT001 - a word for a truth value
    """As JSON writes it."""
    return "true" if value else "false"


def shown(value: object) -> str:
    """A default as a reader writes it."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return yes(value)
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds:g} s"
    if isinstance(value, frozenset):
        return ", ".join(map(str, sorted(value))) or "none"
    if isinstance(value, Limits):
        parts = [(one.name, getattr(value, one.name)) for one in fields(value) if one.init]
        return ", ".join(f"{name} {shown(part)}" for name, part in parts)
    if isinstance(value, tuple):
        names = getattr(value, "_fields", ())
        return ", ".join(f"{name} {shown(part) or 'none'}" for name, part in zip(names, value, strict=False)) or "none"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else f"{value}" or "none"


def fact_shown(axis: str, fact: Mapping[str, Any]) -> str:
    """What a fact says, in a few words."""
    match axis:
        case "carrier":
            return f"JSON member `{fact['json']}`" if "json" in fact else f"`{fact['header']}`"
        case "key":
            return _key(fact)
        case "methods":
            return ", ".join(fact["only"])
        case "required" | "echo":
            return "yes"
        case "empty":
            return "is none"
        case "namespace":
            return "its operation"
        case "comparison":
            compared = {"raw": "equal bytes", "json": "an equal JSON value", "address": "any body"}[fact["by"]]
            return compared + "".join(f", equal `{name}`" for name in fact.get("headers", ()))
        case "window":
            return _time(fact)
        case "stored":
            return _stored(fact)
        case "duplicates":
            return "is refused, 409"
        case "mismatch" | "in_flight":
            return str(fact["status"])
        case "replay":
            return f"`{fact['marker']}: true`"
        case "first_sent":
            return f"`{fact['header']}`, within {_time(fact)}"
        case _:
            return f"`{fact['header']}`"


def _key(fact: Mapping[str, Any]) -> str:
    if "syntax" in fact:
        return "a UUID"
    least, most, marks = fact.get("min", 1), fact.get("max", 255), fact.get("punctuation")
    text = f"{least} to {most} characters"
    if marks is not None and len(marks) < 10:
        text += ": letters, digits" + "".join(", blank" if mark == " " else f", `{mark}`" for mark in marks)
    return text


def _time(fact: Mapping[str, Any]) -> str:
    for unit, short in (("minutes", "min"), ("hours", "h"), ("days", "d")):
        if unit in fact:
            return f"{fact[unit]:,} {short}"
    raise KeyError(fact)


def _stored(fact: Mapping[str, Any]) -> str:
    parts = []
    if "released" in fact:
        parts.append(", ".join(fact["released"]) + " (released)")
    if "rerun" in fact:
        parts.append(", ".join(fact["rerun"]) + " (run again)")
    return "all but " + " and ".join(parts) if parts else "all"


def profile_summary() -> str:
    """One row for each profile. What a profile does not say is the library's default."""
    axes = ("carrier", "key", "methods", "window", "stored", "mismatch", "in_flight")
    rows = (
        [f"[`{name}`](#{name})", row["title"], *(fact_shown(axis, row[axis]) if axis in row else "" for axis in axes)]
        for name, row in profiles().items()
    )
    return table(["profile", "of", *(FACTS[axis] for axis in axes)], rows)


def profile_details() -> str:
    """Each profile with its facts, their sources, and what it leaves out."""
    return "\n\n".join(_detail(name, row) for name, row in profiles().items())


def _detail(name: str, row: Mapping[str, Any]) -> str:
    parts = [f"### {name}", f"{row['title']}."]
    if "unsafe" in row:
        parts.append(wrapped(f"**Unsafe.** {row['unsafe']}"))
    parts.append(table(["fact", "here", "because"], _facts(row)))
    if "not_reproduced" in row:
        parts.append(
            "\n".join(["Not reproduced:", "", *(wrapped(f"- {text}", "  ") for text in row["not_reproduced"])])
        )
    return "\n\n".join(parts)


def _facts(row: Mapping[str, Any]) -> Iterable[list[str]]:
    for axis in AXES:
        if axis in row:
            fact = row[axis]
            why = f"[{fact['from']}]({row['sources'][fact['from']]})" if "from" in fact else f"chosen: {fact['chosen']}"
            if "note" in fact:
                why += f": {fact['note']}"
            yield [FACTS[axis], fact_shown(axis, fact), why]


def trials() -> str:
    """Everything that a check tries."""
    titles = {one.name: one.title for one in TRIALS}
    rows = (
        [f"`{name}`", titles[name], harm(name), f"`{needs(name)}`" if needs(name) else ""] for name in demands(EVERY)
    )
    return table(["trial", "what it asks of a target", "what a failure means for users", "needs"], rows)


def scored() -> str:
    """What each profile makes of the trials."""
    every = [name for name, demand in demands(EVERY).items() if demand.level is Level.REQUIRED]
    rows = [["every profile", *_levels(EVERY, every)]]
    for name, profile in checked().items():
        own = [trial for trial, demand in demands(name).items() if demand.profile == name]
        if own:
            rows.append([f"`{name}`<br>{profile.title}", *_levels(name, own)])
    return table(["profile", "requires", "does otherwise"], rows)


def _levels(name: str, trials: Iterable[str]) -> tuple[str, str]:
    found = {trial: demands(name)[trial] for trial in trials}
    required, different = (
        [
            f"`{trial}`" + (f": {demand.says} ([{demand.source.name}]({demand.source.url}))" if demand.says else "")
            for trial, demand in found.items()
            if demand.level is level and demand.source is not None
        ]
        for level in (Level.REQUIRED, Level.DIFFERENT)
    )
    return ("<br>" if name != EVERY else ", ").join(required), "<br>".join(different)


def findings() -> str:
    """What the doctor can find, each with what it means and what to set."""
    return "\n\n".join(
        f"### `{code}`\n\n{wrapped(f'**{kind.title}** ({kind.severity}).')}\n\n{wrapped(kind.means)}\n\n"
        f"{wrapped(f'Do: {kind.do}')}"
        for code, kind in CATALOGUE.items()
    )


PAGES: Final[dict[Path, dict[str, Callable[[], str]]]] = {
    DOCS / "protocol.md": {
        "transitions": transitions,
        "decisions": decisions,
        "problems": problems,
        "policy": policy,
        "headers": headers,
    },
    DOCS / "doctor.md": {"findings": findings},
    DOCS / "check.md": {"trials": trials, "scored": scored},
    DOCS / "profiles.md": {"summary": profile_summary, "details": profile_details},
}


def filled(page: Path) -> str:
    """The page's text with every table written anew; each has its place exactly once."""
    text = page.read_text(encoding="utf-8")
    for name, make in PAGES[page].items():
        places = re.findall(rf"<!-- made: {name} -->\n.*?<!-- end -->", text, re.DOTALL)
        if len(places) != 1:
            raise SystemExit(f"the table {name!r} has {len(places)} places in {page.name}, not one")
        text = text.replace(places[0], f"<!-- made: {name} -->\n\n{make()}\n\n<!-- end -->")
    return text


if __name__ == "__main__":
    for target in PAGES:
        target.write_text(filled(target), encoding="utf-8")
