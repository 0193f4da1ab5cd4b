"""No secret leaves with a report, by whatever name and in whatever writing it is in there."""

from __future__ import annotations

import base64
import json
from io import StringIO
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.reports.examples import BASIC, KEY, PASSWORD, SECRET, answer, exchange, finding, report, request
from twicesafe.conformance.findings import Exchange, Lines, Verdict
from twicesafe.conformance.reports import Form, write
from twicesafe.conformance.reports.masking import MASK, Masking, hint


def written(evidence: Exchange, form: Form, *secrets: str, meaning: str = "It failed.") -> str:
    """A report with this exchange."""
    stream = StringIO()
    found = finding("replay", Verdict.FAIL, meaning, (evidence,))
    write(report(found, secrets=secrets), stream, form, evidence=True)
    return stream.getvalue()


WRITINGS = {
    "plain": SECRET,
    "percent": quote(SECRET, safe=""),
    "percent, lower case": quote(SECRET, safe="").lower(),
    "form": quote_plus(SECRET),
    "every byte": "".join(f"%{byte:02X}" for byte in SECRET.encode()),
    "JSON": json.dumps(SECRET)[1:-1],
    "JSON with slashes": json.dumps(SECRET)[1:-1].replace("/", "\\/"),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(SECRET.encode()).decode(),
    "base64 in a URL": quote(base64.b64encode(SECRET.encode()).decode(), safe=""),
    "base64 after one more byte": base64.b64encode(b":" + SECRET.encode() + b"!").decode(),
    "base64 after two more bytes": base64.b64encode(b"a:" + SECRET.encode() + b"!!").decode(),
}


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("way", WRITINGS)
def test_what_the_description_calls_secret_is_nowhere(way: str, form: Form) -> None:
    """R43: a credential is masked in URL, header, body, note and meaning, as it is, percent-encoded or in base64."""
    shown = WRITINGS[way]
    echoed = f"x {shown} y"
    evidence = exchange(
        request((("X-Seen", echoed),), echoed.encode(), f"http://127.0.0.1/{quote(shown, safe='%')}"),
        answer(json.dumps({"said": echoed}, ensure_ascii=False).encode(), 500, (("X-Echo", echoed),)),
        note=f"got {echoed}",
    )
    text = written(evidence, form, f"Bearer {SECRET}", meaning=f"It said {echoed}.")
    assert MASK in text
    for part in {shown[2:-2], shown[3:-3], "live_51"} - {""}:
        assert part not in text, way


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=8, max_size=40),
    st.binary(max_size=4),
)
@settings(max_examples=30, deadline=None)
def test_no_writing_of_any_secret_is_left(secret: str, before: bytes) -> None:
    """R43: whatever a secret consists of, its writings are found wherever they stand."""
    secret = f"a{secret}z"
    masking = Masking([secret])
    for shown in (
        secret,
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    ):
        assert masking.text(f"<{shown}>") == f"<{MASK}>"
    encoded = base64.b64encode(before + secret.encode()).decode()
    assert len(masking.text(encoded)) <= len(MASK) + len(before) * 2 + 2


LINES: tuple[tuple[str, str, str], ...] = (
    ("Authorization", "Bearer abc", "Bearer ***"),
    ("authorization", "Basic YW5uOmFiYw==", "Basic ***"),
    ("Proxy-Authorization", "abc", "***"),
    ("Cookie", "session=1; theme=dark", "session=***; theme=***"),
    ("Set-Cookie", "session=1; Path=/; HttpOnly", "session=***; Path=/; HttpOnly"),
    ("X-API-Key", "abc", "***"),
    ("apikey", "abc", "***"),
    ("X-Auth-Token", "abc", "***"),
    ("Stripe-Signature", "t=1,v1=abc", "***"),
    ("X-Amz-Security-Token", "abc", "***"),
    ("Location", "https://a:b@shop.example/x?access_token=abc&page=2", "https://a:***@shop.example/x?access_token=***&page=2"),
    ("Idempotency-Key", KEY, "8e03…9324"),
    ("Idempotency-Key", f'"{KEY}"', '"8e03…9324"'),
    ("Idempotency-Key", f"  {KEY} \t", "  8e03…9324 \t"),
    ("X-Payout-Idempotency", "0123456789", "…6789"),
    ("Idempotency-Key", "short", "…"),
    ("Idempotency-Key", "", ""),
    ("Idempotent-Replayed", "true", "true"),
    ("Idempotency-Key-Retention", "86400", "86400"),
    ("X-Request-Id", "0123456789abcdef", "0123456789abcdef"),
    ("Content-Type", "application/json", "application/json"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "value", "seen"), LINES)
def test_secrets_are_known_by_the_names_of_header_lines(name: str, value: str, seen: str) -> None:
    """R43: credentials, cookies and API keys are masked by the names of their lines, and idempotency keys are hints."""
    assert Masking().line(name, value) == seen


BODIES: tuple[tuple[str, str, str], ...] = (
    ('{"apiKey" : "a\\"b", "n": 1.0}', "application/json", '{"apiKey" : "***", "n": 1.0}'),
    ('{"card": {"cvc": 123, "number": 1}}', "application/json", '{"card": {"cvc": "***", "number": 1}}'),
    ('{"credentials": {"a": ["b"]}, "n": 1}', "application/json", '{"credentials": "***", "n": 1}'),
    ('{"credentials": {"a": ["b"', "application/json", '{"credentials": "***"'),
    ('{"pass\\u0077ord": "x"}', "application/json", '{"pass\\u0077ord": "***"}'),
    ('{"password": "cut of', "application/json", '{"password": "***"'),
    (f'{{"idempotency_key": "{KEY}"}}', "application/json", '{"idempotency_key": "8e03…9324"}'),
    ("amount=1&client_secret=x%20y&a=", "application/x-www-form-urlencoded", "amount=1&client_secret=***&a="),
    ("<a><s:Password x='1'>p</s:Password><b/></a>", "text/xml", "<a><s:Password x='1'>***</s:Password><b/></a>"),
    ('--b\r\nContent-Disposition: form-data; name="token"\r\n\r\nabc\r\n--b--', "multipart/form-data; boundary=b",
     '--b\r\nContent-Disposition: form-data; name="token"\r\n\r\n***\r\n--b--'),
    ('{"author": "me", "tokenize": "no", "monkey": 1}', "application/json",
     '{"author": "me", "tokenize": "no", "monkey": 1}'),
)  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "seen"), BODIES)
def test_secrets_are_known_by_the_names_of_members_and_fields(body: str, kind: str, seen: str) -> None:
    """R43: members of JSON, fields of forms and elements of XML are masked by name; all else stays to the blank."""
    assert Masking().body(body, kind) == seen


def test_the_password_in_a_basic_credential_is_a_secret_by_itself() -> None:
    """R43: a server that repeats the password alone gives nothing away."""
    masking = Masking([BASIC])
    assert masking.text(f"for {PASSWORD} and ann:{PASSWORD}, {quote_plus(PASSWORD)}") == "for *** and ***, ***"


def test_what_was_seen_under_a_secrets_name_is_masked_elsewhere() -> None:
    """R43: a session that a cookie set is masked where a body repeats it."""
    lines: Lines = (("Set-Cookie", "session=0123456789abcdef; Path=/"),)
    evidence = exchange(answered=answer(b'{"sid": "x", "debug": "session 0123456789abcdef"}', lines=lines))
    for form in Form:
        assert "0123456789abcdef" not in written(evidence, form)


def test_the_key_is_a_hint_wherever_it_appears() -> None:
    """R43: a key that comes back in a URL, a header or a body is no longer there than it is in its own line."""
    echoed = answer(f"key {KEY}".encode(), lines=(("Idempotency-Key", KEY), ("Location", f"/by-key/{KEY}")))
    for form in Form:
        text = written(exchange(answered=echoed, note=f"sent {KEY}"), form)
        assert KEY not in text and "8e03…9324" in text


def test_a_key_under_a_name_of_its_own_is_a_hint_too() -> None:
    """R43: the line that the target's description puts the key into is known as the key's."""
    masking = Masking(carriers=["X-Order-Once"])
    assert masking.line("x-order-once", KEY) == "8e03…9324"


def test_short_secrets_leave_the_rest_readable() -> None:
    """R43: a secret of a few characters is masked as a word, and not within others."""
    assert Masking(["on"]).text("on one condition: on") == "*** one condition: ***"


def test_hints_tell_keys_apart_and_say_how_long_long_ones_are() -> None:
    """R43: a hint has the case, the quotes and the length that a trial was about, and not the key."""
    assert hint("aBcD0000000000000XyZw") != hint("AbCd0000000000000xYzW")
    assert hint("k" * 5000) == "kkkk…kkkk (5,000 characters)"


ENDLESS = {
    "quotes that are escaped": '"' + '\\"' * 30_000,
    "backslashes": "\\" * 60_000,
    "percent signs that are escaped": "%25" * 20_000,
    "parts of a form without an end": 'name="token"\r\nx\r\n' * 4_000,
    "names without values": '"token" :' * 8_000,
    "arrays in arrays": '"token":[' * 8_000,
    "elements that begin": "<token" * 10_000,
    "quotes around nothing": "a" + "'" * 60_000 + "b",
    "one parameter": "a=" * 30_000,
    "users without an end": "//a:" * 15_000,
    "a secret that nearly comes": SECRET[:-1] * 4_000,
}
"""What a target answers with that wants its report never to be finished."""


@pytest.mark.timeout(40)
@pytest.mark.parametrize("which", ENDLESS)
def test_a_search_for_secrets_comes_to_an_end(which: str) -> None:
    """R43: what is made to be slow to search takes its length in time, not its square, and is masked all the same."""
    text = ENDLESS[which]
    lines: Lines = (("Idempotency-Key", text), ("Set-Cookie", f"s={text}"), ("Location", text))
    shown = written(exchange(answered=answer(f"{SECRET} {text}".encode(), lines=lines)), Form.JSON, SECRET)
    assert SECRET not in shown and len(shown) < 40_000


def test_a_long_session_is_masked_to_its_end() -> None:
    """R43: a token of kilobytes that was seen under its name is masked elsewhere, and what stands around it is not."""
    session = "eyJ" + "aB3." * 600
    evidence = exchange(
        answered=answer(f'{{"debug": "{session}", "n": 1}}'.encode(), lines=(("Set-Cookie", f"s={session}"),))
    )
    shown = written(evidence, Form.JUNIT)
    assert "aB3." not in shown and '{"debug": "***", "n": 1}' in shown.replace("&quot;", '"')
