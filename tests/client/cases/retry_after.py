"""Every form of Retry-After, and the waits that follow."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.client.bindings import WALL
from tests.client.cases.acts import DOWN, OK
from tests.client.cases.case import CHARGE, DEADLINE, LIMITS, Case, done, refused, unknown
from tests.client.scripted import Act, answer

HOUR = 3600.0
FULL_JITTER = (0.0, 0.5)
"""As if nothing had been said."""

IMF, RFC_850, ASCTIME = "%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"


def at(seconds: float, form: str = IMF) -> str:
    """So many seconds from now, by the client's calendar."""
    return datetime.fromtimestamp(WALL + seconds, UTC).strftime(form)


def after(line: str, *lines: str, status: int = 503) -> Act:
    """Come back then."""
    return answer(status, f"Retry-After: {line}", *lines)


def form(name: str, act: Act, wait: tuple[float, float], why: str) -> Case:
    """A 503 with it, and then the charge."""
    return Case(CHARGE, f"Retry-After, {name}", [act, OK], 2, done(), why, waits=[wait])


SECONDS = [
    form("seconds", after("2"), (2, 3), "asked for at least that, in lockstep with nobody"),
    form("nothing", after("0"), FULL_JITTER, "at once is what everybody else does now"),
    form("zeros before it", after("0002"), (2, 3), "digits are digits"),
    form("a fraction", after("1.5"), (1.5, 2.25), "against the standard, and plain"),
    form("in lower case", answer(503, "retry-after: 2"), (2, 3), "names of headers have no case"),
    form("negative", after("-5"), FULL_JITTER, "makes no sense"),
    form("with a sign", after("+5"), FULL_JITTER, "makes no sense to the standard, and sense to parsers"),
    form("a word", after("soon"), FULL_JITTER, "makes no sense, and raises nothing"),
    form("empty", after(""), FULL_JITTER, "is not nought"),
    form("an exponent", after("1e3"), FULL_JITTER, "makes no sense to the standard, and sense to parsers"),
    form("hexadecimal", after("0x10"), FULL_JITTER, "makes no sense to the standard, and sense to parsers"),
    form("infinity", after("Infinity"), FULL_JITTER, "makes no sense to the standard, and sense to parsers"),
    Case(
        CHARGE, "Retry-After, five thousand digits", [after("9" * 5000)], 1, refused(503, DEADLINE),
        "a very long time, and raises nothing",
    ),
]  # fmt: skip

NOW = f"Date: {at(0)}"
DATES = [
    form("a date", after(at(4), NOW), (4, 6), "the standard's own form"),
    form("a date of RFC 850", after(at(4, RFC_850), NOW), (4, 6), "obsolete, and to be understood"),
    form("a date of asctime", after(at(4, ASCTIME), NOW), (4, 6), "obsolete, and to be understood"),
    form("of a server that is fast", after(at(HOUR + 4), f"Date: {at(HOUR)}"), (4, 6), "its clock moves nothing"),
    form("of a server that is slow", after(at(4 - HOUR), f"Date: {at(-HOUR)}"), (4, 6), "its clock moves nothing"),
    form("of a server without a clock", after(at(4)), (4, 6), "the client's calendar stands in"),
    form("of a server without sense", after(at(4), "Date: today"), (4, 6), "the client's calendar stands in"),
    form("a date in the past", after(at(-60), NOW), FULL_JITTER, "it is over already"),
    form("no day of any month", after("Sun, 32 Mar 2026 12:00:04 GMT", NOW), FULL_JITTER, "makes no sense"),
    Case(
        CHARGE, "Retry-After, a date that is far off", [after(at(HOUR), NOW)], 1, refused(503, DEADLINE),
        "nobody waits in vain",
    ),
]  # fmt: skip

LINES = [
    form("two lines", answer(503, "Retry-After: 1", "Retry-After: 3"), (3, 4.5), "the longer one satisfies both"),
    form("two lines, one of sense", answer(503, "Retry-After: soon", "Retry-After: 3"), (3, 4.5), "that one counts"),
    form("two dates", answer(503, f"Retry-After: {at(4)}", f"Retry-After: {at(2)}", NOW), (4, 6), "the longer one"),
]

STATUSES = [
    Case(CHARGE, "Retry-After, of a 429", [after("2", status=429), OK], 2, done(), "as of a 503", waits=[(2, 3)]),
    Case(
        CHARGE, "Retry-After, of a 500", [after("2", status=500), answer(402)], 2, unknown(402),
        "it is honoured, and still may have been done", waits=[(2, 3)],
    ),
]  # fmt: skip

WAITS = [
    Case(
        CHARGE, "asked for longer each time", [after("1"), after("2"), after("4"), OK], 4, done(),
        "each time the jitter goes above it", waits=[(1, 1.5), (2, 3), (4, 6)],
    ),
    Case(
        CHARGE, "asked the second time only", [DOWN, after("1"), OK], 3, done(),
        "the window that has grown goes above it", waits=[(0, 0.5), (1, 2)],
    ),
    Case(
        CHARGE, "asked for longer than is ever waited", [after("30"), OK], 2, done(), "the jitter alone is limited",
        waits=[(30, 40)], limits=LIMITS._replace(deadline=60.0),
    ),
    Case(
        CHARGE, "the longest delay", [DOWN] * 4 + [OK], 5, done(), "capped before drawing: the jitter stays full",
        waits=[(0, 0.5), (0, 0.6), (0, 0.6), (0, 0.6)], limits=LIMITS._replace(attempts=5, longest_delay=0.6),
    ),
    Case(
        CHARGE, "asked for what barely fits", [after("15"), OK], 2, done(), "the jitter ends where the time ends",
        waits=[(15, 20)],
    ),
    Case(CHARGE, "asked for too much", [after("60")], 1, refused(503, DEADLINE), "told at once, not after a minute"),
    Case(
        CHARGE, "asked for too much by a gateway", [after("60", "Via: 1.1 varnish")], 1, unknown(503, DEADLINE),
        "its connection to the server may have broken after the charge",
    ),
    Case(
        CHARGE, "asked for too much by a 429", [after("60", status=429)], 1, refused(429, DEADLINE),
        "told at once, not after a minute",
    ),
    Case(
        CHARGE, "asked for too much the second time", [after("12"), after("12")], 2, refused(503, DEADLINE),
        "the time that has passed counts", waits=[(12, 18)],
    ),
]  # fmt: skip

CASES = [*SECONDS, *DATES, *LINES, *STATUSES, *WAITS]
