"""Which answers are remembered (E, R15, R16), whoever makes them."""

from __future__ import annotations

from tests.behaviour.case import needs
from tests.behaviour.client import Client, Ledger
from tests.behaviour.knobs import MAPPED


def refusals_for_now_are_not_kept(client: Client, ledger: Ledger) -> None:
    """E3: 408, 425, 429 and 503 say that nothing was done; the retry runs."""
    for number, status in enumerate((408, 425, 429, 503), 1):
        key = f"{client.tag} {status}".encode()
        refused = client.send(key=key, rows=0, status=status, lines=[[b"retry-after", b"1"]])
        assert len(ledger) == number - 1
        assert (refused.status, refused.one(b"retry-after")) == (status, b"1")
        client.twice(key=key)
        assert len(ledger) == number


def refusals_raised_for_now_are_not_kept(client: Client, ledger: Ledger) -> None:
    """E3: raised as the framework's HTTP error, 429 and 503 free the key as well."""
    for number, status in enumerate((429, 503), 1):
        key = f"{client.tag} {status}".encode()
        assert client.send(key=key, raises="http", when="before", status=status).status == status
        client.twice(key=key)
        assert len(ledger) == number


def refusals_for_good_are_kept(client: Client, ledger: Ledger) -> None:
    """E2, R15: what the handler refused stays refused under this key, by the same words."""
    for status in (400, 402, 403, 404, 409, 410, 422):
        key = f"{client.tag} {status}".encode()
        first, _ = client.twice(key=key, rows=0, status=status)
        assert first.status == status
        client.same(first, client.send(key=key))
    assert len(ledger) == 0


def failures_are_kept(client: Client, ledger: Ledger) -> None:
    """R15: an answer of 500, 502 or 504 may come after an effect, so it is the answer."""
    for number, status in enumerate((500, 502, 504), 1):
        key = f"{client.tag} {status}".encode()
        first, _ = client.twice(key=key, status=status)
        assert first.status == status
        client.same(first, client.send(key=key))
        assert len(ledger) == number


def http_errors_are_kept(client: Client, ledger: Ledger) -> None:
    """E4: raised before or after the effect, the framework's own error is replayed as its caller saw it."""
    before, _ = client.twice(raises="http", when="before", status=402, key=client.key + b"1")
    assert len(ledger) == 0
    after, _ = client.twice(raises="http", when="after", status=402, key=client.key + b"2")
    assert len(ledger) == 1
    assert before.status == after.status == 402
    assert before.body == after.body


def mapped_errors_are_kept(client: Client, ledger: Ledger) -> None:
    """E4: what an exception handler of the application's made of an error is what is replayed."""
    before, _ = client.twice(raises="mapped", when="before", key=client.key + b"1")
    assert len(ledger) == 0
    after, _ = client.twice(raises="mapped", when="after", key=client.key + b"2")
    assert len(ledger) == 1
    assert before.status == after.status == 409
    assert before.document == after.document == MAPPED


def errors_that_nobody_handles_are_kept(client: Client, ledger: Ledger) -> None:
    """E4, B7, R16: opaque work that failed may have done something: one 500 for the first caller and for retries."""
    before, _ = client.twice(raises="unhandled", when="before", key=client.key + b"1")
    assert len(ledger) == 0
    after, _ = client.twice(raises="unhandled", when="after", key=client.key + b"2")
    assert len(ledger) == 1
    assert before.status == after.status == 500
    assert before.body == after.body != b""


@needs("nothing done")
def a_handler_may_say_that_nothing_was_done(client: Client, ledger: Ledger) -> None:
    """E2, R15: then whatever it answered, the corrected request runs under the same key."""
    refused = client.send(rows=0, status=422, nothing_done=True, body=b'{"code": "wrong"}')
    assert len(ledger) == 0
    assert refused.status == 422
    client.twice(body=b'{"code": "right"}')
    assert len(ledger) == 1


@needs("/keyed/jobs")
def keyed_work_runs_again_under_the_same_derived_key(client: Client, ledger: Ledger) -> None:
    """R13, R16, R25: downstream recognises the second run by the key that it is given, another one per intent."""
    broken = client.send("/keyed/jobs", raises="unhandled")
    assert broken.status == 500
    first = client.send("/keyed/jobs")
    assert len(ledger) == 2
    assert first.status == 201 and not first.replayed
    client.same(first, client.send("/keyed/jobs"))
    client.send("/keyed/jobs", key=client.tag.encode())
    one, again, other = [row.derived for row in ledger.rows()]
    assert one == again != ""
    assert other not in (one, "")
