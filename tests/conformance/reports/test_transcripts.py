"""An exchange as a reader sees it: whole where it is short, cut where it is long, and named where it is no text."""

from __future__ import annotations

import gzip
from io import StringIO

import pytest

from tests.conformance.reports.examples import HOSTILE, SECRET, answer, exchange, finding, hostile, report, request
from twicesafe.conformance.findings import Answer, Lines, Verdict
from twicesafe.conformance.reports import Form, write
from twicesafe.conformance.reports.masking import Masking
from twicesafe.conformance.reports.transcripts import LIMIT, LINE, LINES, Body, Message, transcript
from twicesafe.conformance.reports.visible import visible


def shown(answered: Answer, *secrets: str) -> Message:
    """What there is to see of an answer."""
    found = transcript(exchange(answered=answered), Masking(secrets)).answer
    assert found is not None
    return found


def body(content: bytes, kind: str = "application/json", *secrets: str) -> Body:
    """What there is to see of a body."""
    return shown(Answer(200, (("Content-Type", kind),), content), *secrets).body


def test_an_exchange_reads_as_it_was_sent() -> None:
    """R43: request line, header lines in order, body and answer are there, with the times and the note."""
    made = transcript(exchange(request(body=b'{"a": 1}'), answer(b'{"id": 7}'), "as told"), Masking())
    assert str(made).splitlines() == [
        "* 0.010 s",
        "> POST http://127.0.0.1:8000/charges",
        "> Authorization: Bearer ***",
        "> Idempotency-Key: 8e03…9324",
        "> Content-Type: application/json",
        ">",
        '> {"a": 1}',
        "* after 0.030 s",
        "< 201 Created",
        "< Content-Type: application/json",
        "<",
        '< {"id": 7}',
        "* as told",
    ]


def test_no_answer_is_said_in_so_many_words() -> None:
    """R43: where nothing came back a transcript does not look as if it had been forgotten."""
    assert str(transcript(exchange(), Masking())).endswith("\n* no answer")
    assert str(transcript(exchange(note="hung up after 20 of 40 bytes"), Masking())).endswith("of 40 bytes")


@pytest.mark.parametrize(
    ("content", "kind", "remark"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "image/png", "binary, 10 bytes of image/png"),
        (b"\xff\xfe\xfd" * 9, "application/json", "binary, 27 bytes of application/json"),
        (b"a\0b", "", "binary, 3 bytes"),
    ],
)
def test_what_is_no_text_is_named_and_not_shown(content: bytes, kind: str, remark: str) -> None:
    """R43: binary content is said to be that, with its size and type."""
    assert body(content, kind) == (len(content), "", remark)


def test_compressed_content_is_named_and_not_shown() -> None:
    """R43: what would have to be unpacked first is not searched for secrets, and so not shown."""
    packed = gzip.compress(SECRET.encode())
    seen = shown(Answer(200, (("Content-Encoding", "gzip"),), packed)).body
    assert seen == (len(packed), "", f"gzip, {len(packed):,} bytes")


def test_text_of_other_charsets_is_text() -> None:
    """R43: a body is read by the charset it declares, and by UTF-8 where that is none to trust."""
    assert body("é".encode("iso-8859-1"), "text/plain; charset=ISO-8859-1").text == "é"
    assert body("é".encode(), "text/plain; charset=zlib_codec").text == "é"


def test_text_that_was_cut_within_a_character_is_text() -> None:
    """R43: half an answer is shown up to where it broke off."""
    assert body("price: 5 €".encode()[:-1], "text/plain").text == "price: 5 "


def test_long_bodies_are_cut_and_say_so() -> None:
    """R43: as many characters are shown as a reader reads, and how many bytes there were."""
    seen = body(b"x" * 70_000, "text/plain")
    assert seen == (70_000, "x" * LIMIT, "cut after 4,096 characters; there are 70,000 bytes")
    assert body(b"x" * LIMIT, "text/plain") == (LIMIT, "x" * LIMIT, "")


@pytest.mark.parametrize("place", [0, *range(LIMIT - 400, LIMIT + 40, 7)])
def test_no_part_of_a_secret_is_left_where_a_body_is_cut(place: int) -> None:
    """R43: a secret across the end of what is shown is masked, or not shown, but never half of it."""
    secret = "0123456789abcdefghijklmnopqrstuvwxyz"
    for after in ("y" * 90_000, f" {secret}" * 2_000):
        seen = body(f"{'-' * place}{secret}{after}".encode(), "text/plain", secret).text
        assert "0123" not in seen and "wxyz" not in seen
        assert len(seen) <= LIMIT


def test_long_and_many_header_lines_are_cut() -> None:
    """R43: a key of 5,000 characters and an answer of a thousand lines leave a report readable."""
    lines: Lines = (("X-Long", "y" * 5_000), *((f"X-{number}", "1") for number in range(1_000)))
    seen = shown(Answer(200, lines, b"")).lines
    assert len(seen) == LINES + 1 and seen[-1] == ("…", "901 more lines")
    assert seen[0][1] == "y" * LINE + "… (5,000 characters)"


def test_header_bytes_that_are_utf_8_are_read_as_that() -> None:
    """R43: lines whose characters stand for bytes show what the bytes say."""
    assert shown(Answer(200, (("X-A", "ä".encode().decode("iso-8859-1")), ("X-B", "\xe4")), b"")).lines == (
        ("X-A", "ä"),
        ("X-B", "ä"),
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_moves_a_cursor_or_turns_a_line_is_left(text: str) -> None:
    """R43: control characters, marks of direction and surrogates are shown as escapes; other text is as it was."""
    seen = visible(text)
    assert seen.isprintable() and seen.encode("utf-8")
    if text.isascii() and text.isprintable():
        assert seen == text


@pytest.mark.parametrize("form", Form)
def test_no_form_has_what_a_terminal_obeys(form: Form) -> None:
    """R43: whatever a target answers, a report written to a terminal is text and line feeds."""
    stream = StringIO()
    write(hostile(), stream, form, evidence=True)
    text = stream.getvalue().replace("\n", "").replace("\t", "")
    assert text.isprintable()


def test_only_what_failed_is_shown_below_a_table() -> None:
    """R43: with evidence a table is followed by the exchanges of failures, each under its trial's name."""
    both = (exchange(answered=answer()),)
    stream = StringIO()
    made = report(finding("replay", Verdict.PASS, "Fine.", both), finding("fresh-key", Verdict.FAIL, "Bad.", both))
    write(made, stream, Form.TABLE, evidence=True)
    assert stream.getvalue().count("> POST") == 1 and "\n* fresh-key\n* 0.010 s\n> POST" in stream.getvalue()
