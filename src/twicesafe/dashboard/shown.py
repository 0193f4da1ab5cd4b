"""What each page shows, from what was read; and what each form does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from twicesafe.core.delivery import MessageState
from twicesafe.core.keys import PUBLIC, scoped_key
from twicesafe.core.lifecycle import Standing, standing
from twicesafe.core.record import StoredResponse
from twicesafe.dashboard import reading
from twicesafe.dashboard.desk import Desk, RefusedError
from twicesafe.dashboard.life import life
from twicesafe.dashboard.looking import Sight
from twicesafe.dashboard.plots import in_steps, of_latency, over_time
from twicesafe.dashboard.tally import MINUTES, Kind, Tally

Facts = Mapping[str, Any]

A_PAGE: Final = 50
"""Rows."""
FEW: Final = 8
"""Rows on the overview."""
BARS: Final = 96
"""Of a day."""

WINDOWS: Final = {"hour": 60, "day": MINUTES}
ACTS: Final = ("settle", "release", "resume", "ask", "retry", "discard")
STALE: Final = (Standing.STALE, Standing.ANSWERED)

DONE: Final[Mapping[str, Mapping[str, str]]] = {
    "settled": {"look": "good", "text": "Settled: every retry gets this answer."},
    "released": {"look": "good", "text": "Released: the next attempt runs."},
    "resumed": {"look": "good", "text": "It goes on: by a worker, or by the next attempt."},
    "asked-done": {"look": "good", "text": "The reconciler says that it was done, and it is settled so."},
    "asked-not-done": {"look": "good", "text": "The reconciler says that it was not done: the key is free."},
    "asked-unclear": {"look": "warn", "text": "The reconciler cannot tell yet. The outcome stays unknown."},
    "asked-failed": {"look": "bad", "text": "The reconciler failed; the log says how. The outcome stays unknown."},
    "asked-no-answer-in-time": {
        "look": "bad",
        "text": "The reconciler gave no answer in time, and is not waited for. The outcome stays unknown.",
    },
    "asked-refused": {"look": "warn", "text": "Somebody was quicker: look at it again."},
    "retried": {"look": "good", "text": "It is tried again at once."},
    "discarded": {"look": "good", "text": "It was given up."},
}
"""What is said after something was done, by the word in the address."""


def overview(sight: Sight, tally: Tally | None, query: Mapping[str, str]) -> Facts:
    """The first page."""
    window = query.get("window", "hour")
    if window not in WINDOWS:
        window = "hour"
    operation = query.get("operation", "")
    minutes = WINDOWS[window]
    each = -(-minutes // BARS) if minutes > BARS else 1
    latency = sight.latency(operation)

    def counted(kind: Kind, name: str) -> list[int] | None:
        return None if tally is None else tally.numbers(kind, name or None, minutes)

    plots = [{"name": "First runs", "look": "runs", "plot": _plot(sight.minutes(operation, minutes), each)}]
    for kind, look in ((Kind.REPLAY, "good"), (Kind.CONFLICT, "warn"), (Kind.MISMATCH, "bad")):
        plots.append({"name": str(kind).capitalize(), "look": look, "plot": _plot(counted(kind, operation), each)})
    names = sorted({*sight.operations(), *([] if tally is None else tally.operations())})
    operations = [
        {
            "name": name,
            "runs": _plot(sight.minutes(name, minutes), each, 18.0),
            "replays": _sum(counted(Kind.REPLAY, name)),
            "conflicts": _sum(counted(Kind.CONFLICT, name)),
            "mismatches": _sum(counted(Kind.MISMATCH, name)),
            "latency": sight.latency(name),
            "open": sight.count(Standing.UNKNOWN, *STALE, operation=name),
        }
        for name in names
    ]
    waiting = [one for stands in (Standing.UNKNOWN, *STALE) for one in sight.listed(stands)[:FEW]][:FEW]
    tiles = {
        "unknown": sight.count(Standing.UNKNOWN),
        "stale": sight.count(*STALE),
        "claimed": sight.count(Standing.CLAIMED),
    }
    more = tiles["unknown"] + tiles["stale"]
    return {
        "here": "Overview",
        "sight": sight,
        "tiles": tiles,
        "oldest": sight.oldest(),
        "waiting": waiting,
        "more_waiting": more if more > len(waiting) else 0,
        "window": window,
        "step": "minute" if each == 1 else f"{each} minutes",
        "operation": operation,
        "of": _of(operation),
        "plots": plots,
        "latency": latency,
        "latency_plot": of_latency(latency),
        "operations": operations,
        "counted_since": None if tally is None else int(tally.since * 1_000_000),
    }


def _plot(numbers: list[int] | None, each: int, height: float = 56.0) -> Any:
    if numbers is None:
        return None
    return over_time(numbers if each == 1 else in_steps(numbers, BARS), each, height)


def _sum(numbers: list[int] | None) -> int | None:
    return None if numbers is None else sum(numbers)


def records(sight: Sight, query: Mapping[str, str]) -> Facts:
    """A page of those that are not settled."""
    chosen = query.get("standing", "")
    operation = query.get("operation", "")
    groups = {"unknown": (Standing.UNKNOWN,), "stale": STALE, "claimed": (Standing.CLAIMED,)}
    numbers = {name: sight.count(*stands, operation=operation) for name, stands in groups.items()}
    if chosen not in groups:
        # Where nothing is said, whatever there is.
        chosen = next((name for name in ("unknown", "stale") if numbers[name]), "unknown")
    found = [one for stands in groups[chosen] for one in sight.listed(stands, operation)]
    start = _whole(query.get("from", "")) or 0
    return {
        "here": "Records",
        "sight": sight,
        "standing": chosen,
        "title": {"claimed": "in progress"}.get(chosen, chosen),
        "operation": operation,
        "of": _of(operation),
        "choices": [(name, {"claimed": "In progress"}.get(name, name.capitalize()), numbers[name]) for name in groups],
        "records": found[start : start + A_PAGE],
        "earlier": max(0, start - A_PAGE) if start else None,
        "later": start + A_PAGE if len(found) > start + A_PAGE else None,
    }


def record(desk: Desk, digest: bytes, tally: Tally | None) -> Facts:
    """One record."""
    found = desk.find(digest)
    about = found.record or (found.trail[-1] if found.trail else None)
    if about is None:
        raise RefusedError("Nothing is known of this key: it was never used, or is forgotten.")
    met = [] if tally is None or found.record is None else tally.met(about.operation, about.key_hint)
    return {
        "here": "Records",
        "now": found.now,
        "record": found.record,
        "found": found,
        "standing": standing(found.record, found.now),
        "name": about.operation,
        "hint": about.key_hint,
        "digest": digest.hex(),
        "moments": life(found.record, found.now, found.trail, met),
    }


def messages(store: Any, query: Mapping[str, str]) -> Facts:
    """A page of messages in one state."""
    state = query.get("state", "")
    state = state if state in ("pending", "skipped") else "parked"
    found = reading.MessagesPage([], None)
    if store.transactional:
        found = reading.messages(store, MessageState(state), _whole(query.get("from", "")), A_PAGE)
    return {"here": "Messages", "state": state, "messages": found.messages, "more": found.more}


def message(desk: Desk, message_id: str) -> Facts:
    """One message."""
    if desk.messages is None:
        raise RefusedError("This store has no outbox.")
    found, trail = desk.messages.find(message_id), desk.messages.trail(message_id)
    if found is None and not trail:
        raise RefusedError("There is no such message: it was never added, or is delivered and deleted.")
    name = trail[-1].operation if found is None else found.type
    return {"here": "Messages", "message": found, "trail": trail, "id": message_id, "name": name}


# --- forms -----------------------------------------------------------------------------------------------------------


def digest_of(form: Mapping[str, str]) -> bytes:
    """What a record is found by that somebody named by its key."""
    key, scope, operation = (form.get(name, "").strip() for name in ("key", "scope", "operation"))
    if not scope and len(key) == 64 and set(key.lower()) <= set("0123456789abcdef"):
        return bytes.fromhex(key)
    return scoped_key(scope or PUBLIC, key, operation or None).digest


def act(desk: Desk, digest: bytes, name: str, who: str, form: Mapping[str, str]) -> str:
    """Do what a form about a record asks for; the word of DONE that tells of it. RefusedError where it is not done."""
    seen, why = form.get("seen", ""), form.get("why", "")
    match name:
        case "settle":
            desk.settle(digest, seen, who, why, _response(form))
            return "settled"
        case "release":
            desk.release(digest, seen, who, why)
            return "released"
        case "resume":
            done = {"done": True, "not-done": False}.get(form.get("call", ""))
            desk.resume(digest, seen, who, why, form.get("result"), done=done)
            return "resumed"
        case "ask":
            return f"asked-{desk.ask(digest, seen, who, why).replace(' ', '-')}"
    raise RefusedError("That is nothing to do about a record.")


def act_on_message(desk: Desk, message_id: str, name: str, who: str, form: Mapping[str, str]) -> str:
    """The same for a message."""
    match name:
        case "retry":
            desk.retry_message(message_id, who, form.get("why", ""))
            return "retried"
        case "discard":
            desk.discard_message(message_id, who, form.get("why", ""))
            return "discarded"
    raise RefusedError("That is nothing to do about a message.")


def _response(form: Mapping[str, str]) -> StoredResponse:
    status = _whole(form.get("status", ""))
    if status is None or not 200 <= status <= 599:
        raise RefusedError("A status is between 200 and 599.")
    # A form's lines end in CR LF, whatever was typed.
    body = form.get("body", "").replace("\r\n", "\n").encode()
    kind = form.get("type", "").strip()
    if not kind.isascii() or not kind.isprintable():
        raise RefusedError("A content type is printable ASCII.")
    # 204 says that there is none, and allows no line that says so again.
    lines = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
    if kind and body:
        lines.insert(0, (b"content-type", kind.encode("ascii")))
    return StoredResponse(status, tuple(lines), body)


def _of(operation: str) -> str:
    return f"&operation={quote(operation, safe='')}" if operation else ""


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
