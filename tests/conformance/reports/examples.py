"""Reports as a check makes them, of targets that are harmless and of such as are not."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

from twicesafe.conformance.findings import Answer, Effects, Exchange, Finding, Lines, Report, Request, Verdict

SECRET = "sk_live_51/ab+c=é"
PASSWORD = "correct horse"
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
BASIC = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
BODY = b'{"amount": 4200, "currency": "eur"}'

HOSTILE = (
    "</script><script>document.title='pwned'</script>",
    "</pre></details></style><style>*{display:none}</style>",
    '"><img src=x onerror="document.title=1">',
    "' onmouseover='alert(1)",
    "{{ report.exit_status }}{% include 'report.css' %}",
    "javascript:alert(1)",
    "<!--<![CDATA[]]>&amp;&#60;b>",
    "\x1b[2J\x1b]0;pwned\x07\r\0\x9b31m",
    "\u202egnp.exe\u2066\u200b\ufeff\ud800\ufffe\U000e0041",
    "[red]rich[/red] :warning:",
)
"""What a target would like to do to the person who reads of it."""


def request(lines: Lines = (), body: bytes = BODY, url: str = "http://127.0.0.1:8000/charges") -> Request:
    """A request with a credential and a key."""
    usual = (("Authorization", f"Bearer {SECRET}"), ("Idempotency-Key", KEY), ("Content-Type", "application/json"))
    return Request("POST", url, (*usual, *lines), body)


def answer(body: bytes = b'{"id": "ch_1"}', status: int = 201, lines: Lines = ()) -> Answer:
    """An answer of JSON."""
    return Answer(status, (("Content-Type", "application/json"), *lines), body)


def exchange(asked: Request | None = None, answered: Answer | None = None, note: str = "") -> Exchange:
    """An exchange that took 30 milliseconds."""
    return Exchange(asked or request(), answered, 0.01, 0.03, note)


def finding(
    trial: str = "replay",
    verdict: Verdict = Verdict.PASS,
    meaning: str = "Retries got 201 and the same 14 bytes; the work was done once.",
    evidence: tuple[Exchange, ...] = (),
    effects: Effects | None = None,
) -> Finding:
    """What a trial found."""
    return Finding(trial, f"What {trial} asks", verdict, meaning, evidence, effects, 0.25)


def report(*findings: Finding, target: str = "Charges", profile: str = "ietf", secrets: tuple[str, ...] = ()) -> Report:
    """A check that found this."""
    return Report(
        target=target,
        url="http://127.0.0.1:8000/charges",
        profile=profile,
        findings=findings,
        seconds=12.3456,
        requests=1143,
        version="1.2.3",
        secrets=frozenset(secrets or (f"Bearer {SECRET}",)),
        began=datetime(2026, 11, 30, 20, 31, tzinfo=UTC),
        carrier="Idempotency-Key",
    )


def usual() -> Report:
    """One finding of each verdict."""
    failed = "8 duplicates at the same moment, and the work was done 8 times: a double click is charged twice."
    return report(
        finding(evidence=(exchange(answered=answer()),) * 2, effects=Effects(1, 1)),
        finding(
            "parallel-duplicates",
            Verdict.FAIL,
            failed,
            (exchange(answered=answer()), exchange(note="no answer within 15 s")),
            Effects(8, 1),
        ),
        finding("other-caller", Verdict.INCONCLUSIVE, "No other caller is known: give one as `other_caller`."),
        finding("replay-marker", Verdict.UNSUPPORTED, "Replays look like first answers."),
    )


def hostile() -> Report:
    """Each hostile text in each place that a target, or who describes one, can write to."""
    findings = [
        finding(
            f"trial-{number}",
            tuple(Verdict)[number % 4],
            f"It said {text}",
            (
                exchange(
                    request(((text, text),), text.encode("utf-8", "replace"), f"http://127.0.0.1/{text}?{text}={text}"),
                    answer(text.encode("utf-8", "replace"), 299, ((text, text), ("Location", text))),
                    text,
                ),
                exchange(answered=None, note=text),
            ),
        )
        for number, text in enumerate(HOSTILE)
    ]
    return report(*findings, target="".join(HOSTILE), profile=HOSTILE[0])
