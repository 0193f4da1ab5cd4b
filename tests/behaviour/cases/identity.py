"""Who a key belongs to, how it is written, where it stands, and what it names (E1, F5, G)."""

from __future__ import annotations

import random
import string

from tests.behaviour.case import needs
from tests.behaviour.client import Client, Ledger

PRINTABLE = string.ascii_letters + string.digits + "!#$%&'()*+-./:<=>?@[]^_`{|}~"


def without_a_key_every_request_runs(client: Client, ledger: Ledger) -> None:
    """G6: no key is no key shared by everybody: nothing is remembered."""
    replies = [client.send(key=None) for _ in range(3)]
    assert len(ledger) == 3
    assert [(reply.status, reply.replayed) for reply in replies] == [(201, False)] * 3


@needs("/required/jobs")
def a_required_key_is_missed(client: Client, ledger: Ledger) -> None:
    """G6, R3: an operation that requires a key refuses to work without."""
    reply = client.send("/required/jobs", key=None)
    assert len(ledger) == 0
    assert (reply.status, reply.problem) == (400, "key-missing")
    client.twice("/required/jobs")
    assert len(ledger) == 1


def an_empty_key_is_refused(client: Client, ledger: Ledger) -> None:
    """G6, R4: empty and blank are not the same as missing."""
    replies = [client.send(key=key) for key in (b"", b"   ", b'""')]
    assert len(ledger) == 0
    assert [(reply.status, reply.problem) for reply in replies] == [(400, "key-invalid")] * 3


def keys_are_measured_and_never_cut(client: Client, ledger: Ledger) -> None:
    """G5, R4: 1 to 255 characters of high entropy are kept whole, 256 and 5,000 are refused before any work."""
    draw = random.Random(255)
    key = "".join(draw.choices(PRINTABLE, k=5000)).encode()
    refused = [client.send(key=key[:length]) for length in (256, 5000)]
    assert len(ledger) == 0
    assert [(reply.status, reply.problem) for reply in refused] == [(400, "key-invalid")] * 2
    client.twice(key=key[:255])
    other = client.send(key=key[:254] + bytes([key[254] ^ 1]))
    assert len(ledger) == 2
    assert not other.replayed
    client.twice(key=client.tag[:1].encode(), user=client.tag)
    assert len(ledger) == 3


def keys_of_other_characters_are_refused(client: Client, ledger: Ledger) -> None:
    """G5, R4: what is no printable ASCII is refused, by twicesafe or by the server before it."""
    for key in (b"caf\xc3\xa9", b"\xff\xfe", b"a\tb", b"a\x01b"):
        assert client.send(key=key).status == 400
    assert len(ledger) == 0


def bare_and_quoted_are_one_key(client: Client, ledger: Ledger) -> None:
    """R4: the Internet-Draft's string and what everybody sends name one intent."""
    first = client.send()
    again = client.send(key=b'"' + client.key + b'"')
    assert len(ledger) == 1
    client.same(first, again)


@needs("request lines")
def two_keys_are_refused(client: Client, ledger: Ledger) -> None:
    """R4: two lines that differ name no intent; two that are equal name one."""
    reply = client.send(headers=[(b"Idempotency-Key", b"another")])
    assert len(ledger) == 0
    assert (reply.status, reply.problem) == (400, "key-invalid")
    client.twice(headers=[(b"Idempotency-Key", client.key)])
    assert len(ledger) == 1


def callers_do_not_share_keys(client: Client, ledger: Ledger) -> None:
    """G1, F5, I7: one key and one body of two users are two intents, and each gets its own answer again."""
    anns = client.send(user="ann", rows=1)
    bobs = client.send(user="bob", rows=2)
    assert [row.user for row in ledger.rows()] == ["ann", "bob", "bob"]
    assert not bobs.replayed
    client.same(anns, client.send(user="ann"))
    client.same(bobs, client.send(user="bob"))
    assert len(ledger) == 3


def a_new_token_is_the_same_caller(client: Client, ledger: Ledger) -> None:
    """F5, R6: what changes with every attempt is no part of the caller's identity, nor of the request's."""
    first = client.send(
        headers=[(b"User-Agent", b"one/1.0"), (b"X-Forwarded-For", b"192.0.2.1"), (b"Signature", b"sig1=:YQ==:")]
    )
    again = client.send(
        headers=[(b"User-Agent", b"two/2.0"), (b"X-Forwarded-For", b"192.0.2.2"), (b"Signature", b"sig1=:Yg==:")]
    )
    assert len(ledger) == 1
    client.same(first, again)


def nobody_claims_a_key(client: Client, ledger: Ledger) -> None:
    """E1, R22: an unauthenticated request leaves no record, and never sees one."""
    before = client.send(user=None)
    first = client.send()
    after = client.send(user=None)
    assert len(ledger) == 1
    assert (before.status, after.status) == (401, 401)
    assert before.one(b"www-authenticate") == after.one(b"www-authenticate") == b'Bearer realm="probe"'
    assert first.status == 201 and not first.replayed
    client.same(first, client.send())


def refusals_of_the_router_leave_no_record(client: Client, ledger: Ledger) -> None:
    """E1: what never reached the handler, 404 or 405, leaves the key free for the right request."""
    wrong = [client.send("/nowhere"), client.send("/required/jobs", method="PATCH")]
    first = client.send()
    assert len(ledger) == 1
    assert [reply.status for reply in wrong] == [404, 405]
    assert first.status == 201 and not first.replayed


def a_key_is_for_one_operation(client: Client, ledger: Ledger) -> None:
    """G2, R7: on another route the key is refused, and the first one's answer is still there."""
    first = client.send()
    elsewhere = client.send("/any/jobs")
    assert len(ledger) == 1
    assert (elsewhere.status, elsewhere.problem) == (422, "key-reused")
    client.same(first, client.send())


def a_key_is_for_one_resource(client: Client, ledger: Ledger) -> None:
    """G2: one route template, two resources: never the other one's answer."""
    first = client.send("/things/1/jobs")
    other = client.send("/things/2/jobs")
    assert len(ledger) == 1
    assert (other.status, other.problem) == (422, "key-reused")
    client.same(first, client.send("/things/1/jobs"))


def a_key_is_for_one_method(client: Client, ledger: Ledger) -> None:
    """G2, R2: PATCH under POST's key is refused; a method without keys does its own work and answers for itself."""
    first = client.send()
    patched = client.send(method="PATCH")
    assert len(ledger) == 1
    assert (patched.status, patched.problem) == (422, "key-reused")
    deleted = client.send(method="DELETE")
    assert [row.method for row in ledger.rows()] == ["POST", "DELETE"]
    assert deleted.status == 201 and not deleted.replayed
    client.same(first, client.send())


@needs("/any/jobs")
def an_operation_names_its_methods(client: Client, ledger: Ledger) -> None:
    """R2: PUT and DELETE happen once where the contract says so."""
    for number, method in enumerate(("PUT", "DELETE", "PATCH", "POST"), 1):
        client.twice("/any/jobs", method=method, key=f"{client.tag} {method}".encode())
        assert len(ledger) == number


@needs("/named/jobs")
def another_header_carries_the_key(client: Client, ledger: Ledger) -> None:
    """R5: the header is the contract's; the usual one means nothing there."""
    client.twice("/named/jobs", carrier=b"X-Idempotency-Key")
    assert len(ledger) == 1
    assert not client.send("/named/jobs").replayed
    assert not client.send("/named/jobs").replayed
    assert len(ledger) == 3


@needs("/form/jobs")
def a_form_carries_the_key(client: Client, ledger: Ledger) -> None:
    """R5: a hidden field, a JSON property and a query parameter are carriers; two that disagree are refused."""
    form = b"application/x-www-form-urlencoded"
    field = b"amount=1&idempotency_key="
    client.twice("/form/jobs", key=None, content_type=form, body=field + client.key)
    assert len(ledger) == 1
    client.twice("/form/jobs", key=None, body=b'{"idempotency_key": "%b"}' % client.tag.encode())
    assert len(ledger) == 2
    client.twice(f"/form/jobs?idempotency_key={client.tag}-query", key=None)
    assert len(ledger) == 3
    differing = client.send("/form/jobs", key=b"another", content_type=form, body=field + client.key)
    assert len(ledger) == 3
    assert (differing.status, differing.problem) == (400, "key-invalid")
