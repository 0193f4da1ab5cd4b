"""Webhooks, over real connections to a server that does what a script says."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.client.scripted import Act, Exchange, Scripted, answer, redirect, reset_after_commit, serving
from tests.core.test_signatures import OTHER, SECRET
from tests.publishers.messages import made
from twicesafe.core.arrived import arrived
from twicesafe.core.message import Message
from twicesafe.core.signatures import read_secrets, verify
from twicesafe.errors import NotDeliveredError, RefusedError
from twicesafe.publishers import public_addresses
from twicesafe.publishers.public_addresses import is_public
from twicesafe.publishers.webhooks import WebhookPublisher

NOW = 1_800_000_000.0


def published(server: Scripted, message: Message, **options: object) -> BaseException | None:
    """What comes of one try."""

    async def main() -> BaseException | None:
        publisher = WebhookPublisher(
            f"{server.origin}/hooks?tenant=1", secrets=[SECRET, OTHER], clock=lambda: NOW, **options
        )
        (came,) = await asyncio.gather(publisher.publish(message), return_exceptions=True)
        await publisher.aclose()
        return came

    return asyncio.run(main())


def test_a_message_arrives_whole_and_signed() -> None:
    """R28: the receiver gets the message under its id, as an idempotency key too, signed by each secret."""
    message = made()
    with serving(answer(204)) as server:
        assert published(server, message, headers={"x-tenant": "1"}) is None
        (hit,) = server.hits
    lines = dict(hit.headers)
    assert (hit.method, hit.target, lines["x-tenant"]) == ("POST", "/hooks?tenant=1", "1")
    assert arrived(lines, hit.body) == message
    assert lines["idempotency-key"] == lines["webhook-id"] == message.id
    for secret in (SECRET, OTHER):
        assert verify(read_secrets(secret), lines, hit.body, NOW) == message.id


def test_an_id_that_no_header_can_carry_is_encoded_everywhere() -> None:
    """R28: the id is one and the same in all headers, whatever characters it has."""
    message = made()._replace(id="größe 44%")
    with serving(answer(200, body=b"thanks")) as server:
        assert published(server, message) is None
        lines = dict(server.hits[0].headers)
    assert lines["idempotency-key"] == lines["webhook-id"] == lines["ce-id"] == "gr%C3%B6%C3%9Fe%2044%25"
    assert arrived(lines, b"").id == message.id


def test_an_id_that_could_be_another_and_a_time_is_signed_encoded() -> None:
    """R28: only where it is signed; whoever receives it reads the same id in all headers."""
    message = made()._replace(id="order.1800000000")
    with serving(answer(200)) as server:
        assert published(server, message) is None
        (hit,) = server.hits
    lines = dict(hit.headers)
    assert lines["idempotency-key"] == lines["ce-id"] == message.id
    assert verify(read_secrets(SECRET), lines, hit.body, NOW) == "order%2E1800000000"


@pytest.mark.parametrize("status", [400, 410, 413, 422])
def test_what_the_receiver_will_never_want_is_refused(status: int) -> None:
    """R28: an answer that another try would get as well ends the tries."""
    with serving(answer(status)) as server:
        came = published(server, made())
    assert isinstance(came, RefusedError) and str(status) in str(came)


@pytest.mark.parametrize("status", [401, 403, 404, 408, 409, 425, 429, 500, 502, 503])
def test_what_may_change_is_tried_again(status: int) -> None:
    """R28: every other failure is no delivery, and another try may be one; the wait that is asked for is passed on."""
    with serving(answer(status, "Retry-After: 17")) as server:
        came = published(server, made())
    assert isinstance(came, NotDeliveredError) and came.retry_after == 17


def test_redirects_are_not_followed() -> None:
    """R28: a signed message goes where it was configured to go, and nowhere else."""
    with serving() as elsewhere, serving(redirect(307, f"{elsewhere.origin}/")) as server:
        came = published(server, made())
        assert elsewhere.hits == []
    assert isinstance(came, NotDeliveredError) and "redirects are not followed" in str(came)


def silent(exchange: Exchange) -> None:
    """Read, and never answer."""
    exchange.read()
    exchange.wait_until_left()


def garbled(exchange: Exchange) -> None:
    """Read, and answer what is no HTTP."""
    exchange.read()
    exchange.send(b"220 smtp.example ready\r\n\r\n")


@pytest.mark.parametrize(("act", "seconds"), [(reset_after_commit, 60), (silent, 5), (garbled, 60)])
def test_without_an_answer_nothing_is_delivered(act: Act, seconds: float) -> None:
    """I9, R28: a receiver that was reached and did not answer 2xx has not acknowledged."""
    with serving(act) as server:
        came = published(server, made(), timeout=timedelta(seconds=seconds))
        assert len(server.hits) == 1
    assert isinstance(came, NotDeliveredError)


def test_a_receiver_that_comes_back_is_delivered_to() -> None:
    """R28: refused, then reset after a first delivery: the same publisher delivers as soon as there is a receiver."""

    async def main(server: Scripted) -> None:
        publisher = WebhookPublisher(server.origin, secrets=SECRET)
        with pytest.raises(NotDeliveredError, match="ConnectError"):
            await publisher.publish(made())
        server.listen()
        await publisher.publish(made())
        await publisher.publish(made())
        await publisher.aclose()

    with serving(answer(200), answer(200), listening=False) as server:
        asyncio.run(main(server))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"])
def test_private_receivers_are_refused_where_asked(host: str) -> None:
    """R28: with `public_only` no message goes to this machine or its network, however the URL writes it."""

    async def main(server: Scripted) -> None:
        publisher = WebhookPublisher(f"http://{host}:{server.port}/", secrets=SECRET, public_only=True)
        with pytest.raises(RefusedError, match="private address"):
            await publisher.publish(made())
        await publisher.aclose()

    with serving() as server:
        asyncio.run(main(server))
        assert server.hits == []


def test_what_was_looked_up_is_what_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: with `public_only` the connection goes to the address that was judged, and the request to the URL's host."""
    judged = []
    monkeypatch.setattr(public_addresses, "is_public", lambda address: judged.append(address) or True)

    async def main(server: Scripted) -> None:
        publisher = WebhookPublisher(f"http://2130706433:{server.port}/hooks", secrets=SECRET, public_only=True)
        await publisher.publish(made())
        await publisher.aclose()

    with serving(answer(204)) as server:
        asyncio.run(main(server))
        assert server.hits[0].header("host") == f"2130706433:{server.port}"
    assert judged == ["127.0.0.1"]


def test_receivers_at_one_address_share_neither_connection_nor_cookies(monkeypatch: pytest.MonkeyPatch) -> None:
    """R22, R28: with `public_only` what is one receiver's is not shown to another that has the same address."""
    monkeypatch.setattr(public_addresses, "is_public", lambda address: True)
    requests: list[list[bytes]] = []
    served: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append([])
        served.append(asyncio.current_task())
        while head := await reader.readline():
            requests[-1].append(head)
            while (line := await reader.readline()).strip():
                requests[-1] += [line] * line.lower().startswith(b"cookie:")
            await reader.readexactly(len(made().data))
            writer.write(b"HTTP/1.1 204 No Content\r\nSet-Cookie: whose=first\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            publisher = WebhookPublisher(
                lambda message: f"http://{message.type}:{port}/", secrets=SECRET, public_only=True
            )
            for host in ("2130706433", "127.1"):
                await publisher.publish(made()._replace(type=host))
            await publisher.aclose()
            await asyncio.gather(*filter(None, served))

    asyncio.run(main())
    assert requests == [[b"POST / HTTP/1.1\r\n"]] * 2


def test_public_addresses_are_told_from_others() -> None:
    """R28: private, local, shared, reserved and multicast addresses are not public in any notation."""
    private = (
        "10.0.0.1 192.168.1.1 172.16.0.1 169.254.169.254 127.0.0.1 0.0.0.0 100.64.0.1 224.0.0.1 ::1 :: fe80::1%eth0"
    )
    translated = "fc00::1 ff02::1 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1:: fec0::1 ::7f00:1 ::ffff:0:7f00:1"
    assert [address for address in (*private.split(), *translated.split()) if is_public(address)] == []
    assert all(is_public(address) for address in ("1.1.1.1", "2606:4700:4700::1111", "64:ff9b::101:101"))


def test_a_url_that_is_none_is_refused() -> None:
    """R28: a message whose function gives no URL that can be called ends its tries at once."""

    async def main() -> None:
        for url in ("ftp://example.com/", "no url", "http://shop:port/"):
            publisher = WebhookPublisher(lambda message, url=url: url, secrets=SECRET)
            with pytest.raises(RefusedError):
                await publisher.publish(made())
            await publisher.aclose()

    asyncio.run(main())
