"""The page's retrying client, in a browser, against a scripted server and a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.demo.service import Demo

pytestmark = pytest.mark.xdist_group("demo")

SCRIPT = """
async ({ script, settings, fraction }) => {
  const { send } = await import("/client.js");
  let now = 0;
  const sent = [];
  const waited = [];
  const outcome = await send({ url: "/charges", key: "key-1", body: '{"amount":1}' }, {
    ...settings,
    clock: () => now,
    random: () => fraction,
    sleep: async (milliseconds) => { waited.push(milliseconds); now += milliseconds; },
    fetch: async (url, init) => {
      const step = script[Math.min(sent.length, script.length - 1)];
      sent.push({ key: init.headers["idempotency-key"], body: init.body, number: init.headers["twicesafe-attempt"] });
      now += step.takes ?? 0;
      if (step.drop) throw new TypeError("dropped");
      if (step.hang) {
        return new Promise((_, gone) => init.signal.addEventListener("abort", () => gone(init.signal.reason)));
      }
      const body = step.status === 304 ? null : step.body ?? "";
      const answer = new Response(body, { status: step.status, headers: step.headers ?? {} });
      if (step.cut) answer.text = async () => { throw new TypeError("cut"); };
      return answer;
    },
  });
  const { kind, stop, attempts, replayed, status } = outcome;
  return { kind, stop, attempts, replayed, status, key: outcome.key, sent, waited };
}
"""

DROP = {"drop": True}
CREATED = {"status": 201, "body": "{}"}
REPLAYED = {"status": 201, "headers": {"idempotent-replayed": "true"}}


def problem(status: int, kind: str, *, retryable: bool, **headers: str) -> dict[str, Any]:
    """A problem document as twicesafe's servers write it."""
    body = f'{{"type":"urn:twicesafe:problem:{kind}","status":{status},"retryable":{str(retryable).lower()}}}'
    return {"status": status, "body": body, "headers": {"content-type": "application/problem+json", **headers}}


IN_PROGRESS = problem(409, "in-progress", retryable=True, **{"retry-after": "1"})


@pytest.fixture
def page(browser: Browser, service: Demo) -> Iterator[Page]:
    """A page of the demo's origin with nothing going on."""
    opened = browser.new_page()
    opened.goto(service.url + "/favicon.svg")
    yield opened
    opened.close()


def send(page: Page, *script: dict[str, Any], fraction: float = 0.5, **settings: object) -> dict[str, Any]:
    """One operation; the last step of the script is repeated for as long as the client asks."""
    found: dict[str, Any] = page.evaluate(SCRIPT, {"script": script, "settings": settings, "fraction": fraction})
    return found


def test_one_key_and_the_same_bytes_for_every_attempt(page: Page) -> None:
    """I8, R33: what is sent again is what was sent; only the attempt's number grows."""
    outcome = send(page, DROP, {"status": 502}, IN_PROGRESS, CREATED)
    assert outcome["sent"] == [{"key": "key-1", "body": '{"amount":1}', "number": str(n)} for n in (1, 2, 3, 4)]
    assert (outcome["kind"], outcome["attempts"], outcome["key"]) == ("succeeded", 4, "key-1")


def test_a_replayed_answer_is_final(page: Page) -> None:
    """R37, K: a stored 500 marked as replayed is the outcome, not a reason to ask again."""
    outcome = send(page, {"status": 500, "headers": {"idempotent-replayed": "true"}})
    assert len(outcome["sent"]) == 1
    assert (outcome["kind"], outcome["replayed"]) == ("rejected", True)
    outcome = send(page, DROP, REPLAYED)
    assert len(outcome["sent"]) == 2
    assert (outcome["kind"], outcome["replayed"]) == ("succeeded", True)


def test_an_answer_in_progress_is_waited_out(page: Page) -> None:
    """I3, R36: 409 in progress is no failure; it is asked again after Retry-After until the real result comes."""
    outcome = send(page, *[IN_PROGRESS] * 6, REPLAYED, attempts=2)
    assert len(outcome["sent"]) == 7
    assert outcome["kind"] == "succeeded"
    assert all(wait >= 1000 for wait in outcome["waited"])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
def test_a_refusal_is_not_repeated(page: Page, status: int) -> None:
    """R36: authentication, validation and permission failures are answers."""
    outcome = send(page, {"status": status})
    assert len(outcome["sent"]) == 1
    assert outcome["kind"] == "rejected"


def test_a_conflict_of_the_application_is_final(page: Page) -> None:
    """R36: a 409 that does not ask to wait is about the resource, not about another attempt."""
    outcome = send(page, {"status": 409})
    assert (len(outcome["sent"]), outcome["kind"]) == (1, "rejected")


def test_a_refusal_after_an_unknown_stays_unknown(page: Page) -> None:
    """R37: 422 for a key whose first attempt got no answer does not say that nothing was charged."""
    outcome = send(page, DROP, problem(422, "key-reused", retryable=False))
    assert (outcome["kind"], outcome["status"]) == ("unknown", 422)


def test_a_mismatch_on_the_first_attempt_is_unknown(page: Page) -> None:
    """I6, R37: a key that was used for other bytes names a charge that may have been made."""
    outcome = send(page, problem(422, "key-reused", retryable=False))
    assert (len(outcome["sent"]), outcome["kind"], outcome["status"]) == (1, "unknown", 422)
    other = {"status": 422, "headers": {"content-type": "application/problem+json"}}
    for body in ('{"title": "Idempotency-Key is already used"}', '{"safe_new_key": false}'):
        assert send(page, {**other, "body": body})["kind"] == "unknown"
    assert send(page, problem(422, "invalid", retryable=False))["kind"] == "rejected"


@pytest.mark.parametrize(
    ("status", "kind"), [(301, "unknown"), (302, "unknown"), (303, "succeeded"), (304, "unknown"), (307, "rejected")]
)
def test_a_redirect_is_no_success(page: Page, status: int, kind: str) -> None:
    """I6: a redirect to a log-in page is no payment; 303 is a POST's answer, 307 sends it elsewhere."""
    outcome = send(page, {"status": status, "headers": {"location": "/login"}})
    assert (len(outcome["sent"]), outcome["kind"]) == (1, kind)


def test_an_unknown_outcome_is_reported_as_that(page: Page) -> None:
    """I6: the server itself does not know; asking again at once would not help."""
    outcome = send(page, problem(409, "outcome-unknown", retryable=True))
    assert (len(outcome["sent"]), outcome["kind"]) == (1, "unknown")


def test_a_hidden_break_of_the_body_is_no_answer(page: Page) -> None:
    """K: a body that breaks after a 201 was lost like any other answer."""
    outcome = send(page, {"status": 201, "cut": True}, REPLAYED)
    assert (len(outcome["sent"]), outcome["kind"]) == (2, "succeeded")


def test_the_servers_wish_is_a_floor_with_jitter_above_it(page: Page) -> None:
    """R38, K: whoever was told the same Retry-After does not come back in lockstep, and never early."""
    busy = {"status": 503, "headers": {"retry-after": "4"}}
    early = send(page, busy, CREATED, fraction=0.0)["waited"]
    late = send(page, busy, CREATED, fraction=0.99)["waited"]
    assert early == [4000]
    assert 5500 < late[0] < 14_000


def test_a_date_is_measured_from_the_answers_own_date(page: Page) -> None:
    """R38, K: a server clock that is off by years moves nothing."""
    headers = {"date": "Mon, 01 Jan 2001 10:00:00 GMT", "retry-after": "Mon, 01 Jan 2001 10:00:03 GMT"}
    assert send(page, {"status": 503, "headers": headers}, CREATED, fraction=0.0)["waited"] == [3000]


@pytest.mark.parametrize("value", ["soon", "-1", "", "1e3"])
def test_a_senseless_wish_is_ignored(page: Page, value: str) -> None:
    """R38, K: what Retry-After cannot mean does not lose the answer; the client's own backoff holds."""
    outcome = send(page, {"status": 503, "headers": {"retry-after": value}}, CREATED, firstDelay=500)
    assert outcome["kind"] == "succeeded"
    assert outcome["waited"] == [250]


def test_a_wait_that_does_not_fit_ends_the_call_now(page: Page) -> None:
    """R38, K: deadline 5 s and Retry-After 60 stop at once instead of sleeping or coming back early."""
    for value in ("60", "9" * 5000):
        outcome = send(page, {"status": 503, "headers": {"retry-after": value}}, deadline=5000)
        assert outcome["waited"] == []
        assert (outcome["kind"], outcome["stop"]) == ("rejected", "deadline")


def test_jitter_is_full_and_capped_before_it_is_drawn(page: Page) -> None:
    """R38, K: the window doubles up to the cap, and the draw is from all of it, however often it failed."""
    settings = {"attempts": 7, "firstDelay": 100, "longestDelay": 800, "deadline": 60_000}
    assert send(page, DROP, fraction=0.5, **settings)["waited"] == [50, 100, 200, 400, 400, 400]
    assert send(page, DROP, fraction=0.0, **settings)["waited"] == [0] * 6


def test_attempts_and_the_deadline_bound_the_call(page: Page) -> None:
    """R39: no answer at all ends as unknown when the attempts, or the time, are used up."""
    outcome = send(page, DROP, attempts=3)
    assert (len(outcome["sent"]), outcome["kind"], outcome["stop"]) == (3, "unknown", "attempts")
    outcome = send(page, {"drop": True, "takes": 900}, attempts=100, deadline=2000, firstDelay=10)
    assert (len(outcome["sent"]), outcome["kind"], outcome["stop"]) == (3, "unknown", "deadline")


def test_a_silent_server_is_given_up(page: Page) -> None:
    """R39: an attempt's time-out aborts the request itself."""
    outcome = send(page, {"hang": True}, REPLAYED, attemptTimeout=20)
    assert (len(outcome["sent"]), outcome["kind"]) == (2, "succeeded")


def test_the_deadline_clips_the_attempt(page: Page) -> None:
    """R39, K: an attempt is given what is left, and not its own time-out."""
    outcome = send(page, {"hang": True}, attemptTimeout=60_000, deadline=40, attempts=1)
    assert (outcome["kind"], outcome["stop"]) == ("unknown", "attempts")
