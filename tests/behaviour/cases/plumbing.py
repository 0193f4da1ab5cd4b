"""The application gets what was sent, and what it does besides answering happens as ever (H, G8)."""

from __future__ import annotations

from tests.behaviour.case import everywhere, needs
from tests.behaviour.client import Client, Ledger
from tests.behaviour.knobs import LATER, ORIGIN


@everywhere
def the_application_gets_the_bytes_that_were_sent(client: Client, ledger: Ledger) -> None:
    """H1: JSON, a form, a file, nothing, three chunks: read by twicesafe, then by the application."""
    form = b"multipart/form-data; boundary=b"
    file = (
        b'--b\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n' + bytes(range(256)) + b"\r\n--b--\r\n"
    )
    bodies = [
        (b"application/json", b'{ "amount" :1}'),
        (b"application/x-www-form-urlencoded", b"a=1&b=%C3%A9"),
        (form, file),
        (b"", b""),
    ]
    for number, (content_type, body) in enumerate(bodies):
        client.twice(key=client.key + b"%d" % number, content_type=content_type, body=body)
    assert [row.body for row in ledger.rows()] == [body for _, body in bodies]


def a_chunked_body_arrives_whole(client: Client, ledger: Ledger) -> None:
    """H1: in three pieces, and after 100 Continue."""
    client.twice(pieces=[b"one ", b"two ", b"three"], key=client.key + b"1")
    client.twice(body=b"one two three", expect=True, key=client.key + b"2")
    assert [row.body for row in ledger.rows()] == [b"one two three"] * 2


@needs("/small/jobs")
def a_body_over_the_limit_is_refused(client: Client, ledger: Ledger) -> None:
    """R9, E1: 413, with a length or in pieces, and the key is still free; the limit itself is within it."""
    refused = [
        client.send("/small/jobs", body=b"x" * 1001),
        client.send("/small/jobs", pieces=[b"x" * 900, b"x" * 101]),
    ]
    assert len(ledger) == 0
    assert [reply.status for reply in refused] == [413, 413]
    client.twice("/small/jobs", body=b"x" * 1000)
    assert len(ledger) == 1


def a_connection_is_used_again(client: Client, ledger: Ledger) -> None:
    """H1: an answer, its replay and two refusals leave their connection fit for the next request."""
    exchange = client.begin(keep=True)
    replies = [exchange.reply()]
    for how in ({}, {"body": b"another"}, {"key": b""}, {"key": client.tag.encode()}):
        exchange = client.begin(keep=True, on=exchange, **how)
        replies.append(exchange.reply())
    exchange.hang_up()
    assert len(ledger) == 2
    assert [reply.status for reply in replies] == [201, 201, 422, 400, 201]
    client.same(replies[0], replies[1])


@needs("background tasks")
def background_tasks_run_once(client: Client, ledger: Ledger) -> None:
    """H1, R17: the client leaves at once; the tasks run after the answer, and not again with its replay."""
    gate = client.gate("later")
    with_tasks = {"background": 2, "later": gate}
    first = client.send(**with_tasks)
    assert ledger.rows(LATER) == []
    gate.open()
    gate.open()
    assert len(ledger.after_the_answer(2)) == 2
    again = client.send(**with_tasks)
    assert len(ledger) == 1
    client.same(first, again)
    assert len(ledger.rows(LATER)) == 2


def options_claim_nothing(client: Client, ledger: Ledger) -> None:
    """G8: OPTIONS under a key never touches the store, whatever answers it."""
    assert client.send(method="OPTIONS").status < 500
    first, _ = client.twice()
    assert len(ledger) == 1
    assert first.status == 201


@needs("cross-origin")
def a_page_of_another_origin_may_send_a_key(client: Client, ledger: Ledger) -> None:
    """G8: the preflight passes without credentials and without the store; the marker can be read."""
    origin = (b"Origin", ORIGIN.encode())
    preflight = client.send(
        method="OPTIONS",
        user=None,
        key=None,
        headers=[
            origin,
            (b"Access-Control-Request-Method", b"POST"),
            (b"Access-Control-Request-Headers", b"authorization,content-type,idempotency-key,probe"),
        ],
    )
    assert preflight.status < 300
    allowed = b",".join(preflight.all(b"access-control-allow-headers")).lower().replace(b" ", b"").split(b",")
    assert b"idempotency-key" in allowed
    first, again = client.send(headers=[origin]), client.send(headers=[origin])
    assert len(ledger) == 1
    assert again.replayed and again.body == first.body
    for reply in (first, again):
        assert reply.all(b"access-control-allow-origin") == [ORIGIN.encode()]
        exposed = reply.one(b"access-control-expose-headers").lower().replace(b" ", b"").split(b",")
        assert {b"idempotent-replayed", b"retry-after", b"location"} <= set(exposed)
