"""An exchange as it may be shown: masked, cut at a limit, with what is no text only named."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from itertools import pairwise
from typing import Final, NamedTuple

from twicesafe.conformance.findings import Answer, Exchange, Lines, values
from twicesafe.conformance.reports.masking import Masking
from twicesafe.conformance.reports.visible import on_one_line, visible

LIMIT: Final = 4096
"""Characters of a body that are shown."""

LINE: Final = 512
"""Characters of a header's value, or of a URL, that are shown."""

LINES: Final = 100
"""Header lines that are shown."""

_CHARSETS: Final = {"utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252", "utf-16", "utf-16le", "utf-16be"}


class Body(NamedTuple):
    """What there is to see of a body."""

    size: int
    """Bytes that it has."""
    text: str = ""
    remark: str = ""
    """Why not all of it is there: `binary`, `gzip`, `the first 4,096 of 70,000 characters`."""


class Message(NamedTuple):
    """A request or an answer."""

    first: str
    """`POST https://…` or `201 Created`."""
    lines: Lines
    body: Body


class Transcript(NamedTuple):
    """An exchange. Every text in it is masked and visible."""

    request: Message
    answer: Message | None
    status: int | None
    began: float
    seconds: float
    note: str
    again: bool = False
    """Whether it is the request of the exchange before, byte for byte."""

    @property
    def silence(self) -> str:
        """What to say in place of the answer that did not come."""
        return self.note or "no answer"

    def __str__(self) -> str:
        """As plain text: what was sent after `>`, what came after `<`, and the times."""
        shown = [f"* {self.began:.3f} s", *_plain(self.request, ">")]
        if self.answer is not None:
            shown += [f"* after {self.seconds:.3f} s", *_plain(self.answer, "<")]
        if self.note or self.answer is None:
            shown.append(f"* {self.silence}")
        return "\n".join(shown)


def transcripts(evidence: Sequence[Exchange], masking: Masking) -> tuple[Transcript, ...]:
    """Exchanges with `masking` over them."""
    shown = [transcript(exchange, masking) for exchange in evidence]
    pairs = enumerate(pairwise(evidence), 1)
    again = {place for place, (before, exchange) in pairs if before.request == exchange.request}
    return tuple(one._replace(again=place in again) for place, one in enumerate(shown))


def transcript(exchange: Exchange, masking: Masking) -> Transcript:
    """An exchange with `masking` over it."""
    request, answer = exchange.request, exchange.answer
    asked = f"{on_one_line(request.method)} {_cut(on_one_line(masking.url(request.url)))}"
    return Transcript(
        request=Message(asked, _lines(request.lines, masking), _body(request.lines, request.body, masking)),
        answer=None if answer is None else _answer(answer, masking),
        status=None if answer is None else answer.status,
        began=exchange.began,
        seconds=exchange.seconds,
        note=on_one_line(masking.text(exchange.note)),
    )


def _answer(answer: Answer, masking: Masking) -> Message:
    try:
        phrase = f" {HTTPStatus(answer.status).phrase}"
    except ValueError:
        phrase = ""
    lines = _lines(answer.lines, masking)
    return Message(f"{answer.status}{phrase}", lines, _body(answer.lines, answer.body, masking))


def _lines(lines: Lines, masking: Masking) -> Lines:
    shown = [
        (_cut(on_one_line(masking.text(name))), _cut(visible(masking.line(name, _text(value))).replace("\n", "\\x0a")))
        for name, value in lines[:LINES]
    ]
    if len(lines) > LINES:
        shown.append(("…", f"{len(lines) - LINES:,} more lines"))
    return tuple(shown)


def _text(value: str) -> str:
    """A header's value as UTF-8 where its bytes are that."""
    try:
        return value if value.isascii() else value.encode("iso-8859-1").decode("utf-8")
    except UnicodeError:
        return value


def _body(lines: Lines, body: bytes, masking: Masking) -> Body:
    size = len(body)
    if not body:
        return Body(0)
    coding = ", ".join(on_one_line(value)[:40] for value in values(lines, "content-encoding"))
    if coding and coding.lower() != "identity":
        return Body(size, remark=f"{coding}, {size:,} bytes")
    kind = next(iter(values(lines, "content-type")), "")
    text = _decoded(body, kind.lower())
    if text is None:
        named = on_one_line(masking.text(kind.partition(";")[0]))[:60]
        return Body(size, remark=f"binary, {size:,} bytes{f' of {named}' if named else ''}")
    # Masked first, and cut then: half a secret would be none to find. Where not even all of it is masked, what may be
    # half a secret at the end goes as well.
    read = text[: LIMIT + 4 * masking.longest]
    shown = masking.body(read, kind.lower())
    if len(read) < len(text):
        shown = shown[: max(0, len(shown) - masking.longest)]
    if len(shown) > LIMIT or len(read) < len(text):
        shown = shown[:LIMIT]
        return Body(size, visible(shown), f"cut after {len(shown):,} characters; there are {size:,} bytes")
    return Body(size, visible(shown))


def _decoded(body: bytes, kind: str) -> str | None:
    """The body's text; None where it is none."""
    declared = kind.partition("charset=")[2].partition(";")[0].strip(" \"'")
    if declared not in _CHARSETS:
        declared = "utf-8"
    try:
        text = body.decode(declared)
    except UnicodeDecodeError as error:
        # The last character of a body that was cut on its way is no reason to hide the rest.
        if declared not in ("utf-8", "utf8") or error.start < len(body) - 3:
            return None
        text = body[: error.start].decode(declared)
    return None if "\0" in text else text


def _cut(text: str) -> str:
    return text if len(text) <= LINE else f"{text[:LINE]}… ({len(text):,} characters)"


def _plain(message: Message, mark: str) -> list[str]:
    shown = [f"{mark} {message.first}", *(f"{mark} {name}: {value}" for name, value in message.lines)]
    if message.body.size:
        shown.append(mark)
        shown += [f"{mark} {line}" for line in message.body.text.splitlines()]
    if message.body.remark:
        shown.append(f"* {message.body.remark}")
    return shown
