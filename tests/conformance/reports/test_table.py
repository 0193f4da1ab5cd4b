"""A table for people, and a line per finding for pipes."""

from __future__ import annotations

import re
from io import BytesIO, StringIO, TextIOWrapper

import pytest

from tests.conformance.reports.examples import HOSTILE, finding, hostile, report, usual
from twicesafe.conformance.findings import Effects, Report, Verdict
from twicesafe.conformance.reports.shown import shown
from twicesafe.conformance.reports.table import write_table


class Terminal(StringIO):
    """A stream at whose other end somebody looks."""

    def isatty(self) -> bool:
        return True


def piped(made: Report) -> list[str]:
    """The lines in a pipe."""
    stream = StringIO()
    write_table(shown(made), stream)
    return stream.getvalue().splitlines()


def drawn(made: Report, monkeypatch: pytest.MonkeyPatch, width: int = 100, **environment: str) -> str:
    """What a terminal shows."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    write_table(shown(made), stream, width=width)
    return stream.getvalue()


def test_a_pipe_gets_one_line_for_each_finding() -> None:
    """R43: verdict and trial are the first two words of a line, and the last line is the result."""
    lines = piped(usual())
    assert [line.split()[:2] for line in lines[:-1]] == [
        ["pass", "replay"],
        ["fail", "parallel-duplicates"],
        ["inconclusive", "other-caller"],
        ["unsupported", "replay-marker"],
    ]
    assert lines[1].endswith("is charged twice. (8 effects, 1 wanted)")
    assert re.match(
        r"fail  1 of \d+ that ietf requires \(not fresh-key, parallel-duplicates, .*\); 1,143 requests in 12\.3 s$",
        lines[-1],
    )


def test_a_meaning_of_several_lines_is_one_line_in_a_pipe() -> None:
    """R43: a line feed in what a target said begins no line of a report."""
    assert len(piped(hostile())) == len(HOSTILE) + 1
    assert len(piped(report(finding(meaning="one\nfail  replay  two\r\nthree")))) == 2


def test_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """R43: each trial has its row, effects beyond what was wanted stand out, and the score is below."""
    text = drawn(usual(), monkeypatch)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for word in ("Charges", "verdict", "parallel-duplicates", "8 of 1", "One trial failed", "that ietf requires"):
        assert word in plain, word
    assert "\x1b[1;31mfail" in text and "\x1b[32mpass" in text


def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """R43: NO_COLOR is obeyed, and words tell what colours would have."""
    text = drawn(usual(), monkeypatch, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", text) and "fail" in text and "pass" in text


def test_a_narrow_terminal_loses_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """R43: what does not fit goes on in the next line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", drawn(usual(), monkeypatch, width=70))
    assert max(map(len, plain.splitlines())) <= 70
    for word in ("parallel-duplicates", "moment,", "double", "charged", "twice.", "requires"):
        assert word in plain, word


def test_hostile_text_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """R43: what a target answers is neither markup nor an order to the terminal."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", drawn(hostile(), monkeypatch, width=200))
    assert "[red]rich[/red] :warning:" in plain and "\\x1b[2J" in plain
    assert "\x1b" not in plain and "\x07" not in plain


def test_a_stream_of_few_characters_gets_escapes() -> None:
    """R43: a log in ASCII breaks off no report."""
    raw = BytesIO()
    stream = TextIOWrapper(raw, encoding="ascii")
    write_table(shown(report(finding(meaning="key 8e03…9324", effects=Effects(1, 1)), target="Käufe")), stream)
    stream.flush()
    assert b"key 8e03\\u20269324 (1 effect, 1 wanted)" in raw.getvalue()


def test_the_headline_counts() -> None:
    """R43: one failure, several, none, and nothing shown at all are told apart in words."""
    said = [
        shown(report(*(finding(verdict=verdict) for verdict in verdicts))).headline
        for verdicts in (
            [Verdict.FAIL], [Verdict.FAIL, Verdict.FAIL], [Verdict.PASS], [Verdict.INCONCLUSIVE], []
        )
    ]  # fmt: skip
    assert said == ["One trial failed", "2 trials failed", "Nothing failed", "Nothing was shown", "Nothing was shown"]
