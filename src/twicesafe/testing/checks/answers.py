"""What is replayed is what was answered, byte for byte."""

from __future__ import annotations

from typing import Final

from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import StoredResponse
from twicesafe.testing.check import Checks
from twicesafe.testing.trial import Trial, expect

CHAPTER = Checks()

ALL_BYTES: Final = bytes(range(256))

ANSWERS: Final = {
    "no body at all": StoredResponse(204, (), b""),
    "202 of no length": StoredResponse(202, ((b"content-length", b"0"),), b""),
    "the digit 0": StoredResponse(200, ((b"content-type", b"application/json"),), b"0"),
    "null": StoredResponse(200, ((b"content-type", b"application/json; charset=utf-8"),), b"null"),
    "a zero byte": StoredResponse(200, (), b"\x00"),
    "every byte": StoredResponse(200, ((b"content-type", b"application/octet-stream"),), ALL_BYTES),
    "the bytes of no encoding": StoredResponse(200, (), b"\xff\xfe\x80\xed\xa0\x80"),
    "a gzip body": StoredResponse(200, ((b"content-encoding", b"gzip"),), b"\x1f\x8b\x08" + ALL_BYTES),
    "an error": StoredResponse(500, ((b"content-type", b"application/problem+json"),), b"{}"),
    "a redirection": StoredResponse(303, ((b"location", b"/charges/1?a=1,2;b=%2F"),), b""),
    "lines that came twice": StoredResponse(
        201,
        (
            (b"Set-Cookie", b"a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT"),
            (b"link", b'</a>; rel="next", </b>; rel="last"'),
            (b"Set-Cookie", b"b=2; Expires=Tue, 22 Oct 2030 07:28:00 GMT"),
            (b"link", b"</c>; rel=prev"),
            (b"content-disposition", b'attachment; filename="a, b; c.txt"'),
            (b"x-latin", b"caf\xe9 \xa3"),
            (b"x-empty", b""),
            (b"x-blank", b"  padded  "),
            (b"x-nul", b"\x00\x01\xff: \r\n"),
            (b"", b"no name"),
        ),
        b"body",
    ),
    "a megabyte": StoredResponse(200, (), ALL_BYTES * 4096),
    "a hundred lines": StoredResponse(200, tuple((b"x-%d" % n, b"v" * n) for n in range(100)), b"."),
    "a long line": StoredResponse(200, ((b"x-long", b"l" * 70_000),), b"."),
}


@CHAPTER.check("D1 D2 D4 D6 A3")
async def answers_come_back_byte_for_byte(trial: Trial) -> None:
    """Status, header lines and body come back as they were, order, doubles, emptiness and strange bytes included."""
    for name, answer in ANSWERS.items():
        await trial.completed(name, answer)
    for name, answer in ANSWERS.items():
        found = await trial.refused(Verdict.REPLAY, name, when=f"after {name}")
        assert found.record is not None and found.record.response is not None
        kept = found.record.response
        expect(kept.status == answer.status, f"{name}: status {answer.status} came back as {kept.status}")
        expect(kept.headers == answer.headers, f"{name}: header lines came back as {str(kept.headers)[:500]}")
        expect(kept.body == answer.body, f"{name}: the body came back as {str(kept.body)[:100]}")
        expect(type(kept.body) is bytes, f"{name}: the body came back as {type(kept.body).__name__}")


@CHAPTER.check("A4 R18")
async def a_body_that_is_not_kept_is_done_all_the_same(trial: Trial) -> None:
    """Completed without a body, retries are told that it is done, with status and header lines; b"" is a body."""
    answer = StoredResponse(200, ((b"content-type", b"text/csv"), (b"x-rows", b"5000000")), None)
    await trial.completed("large", answer)
    found = await trial.refused(Verdict.GONE, "large", when="after an answer too large to keep")
    assert found.record is not None
    expect(found.record.response == answer, f"it was kept as {found.record.response}")
    await trial.completed("empty", answer._replace(body=b""))
    await trial.refused(Verdict.REPLAY, "empty", when="after an empty answer")
