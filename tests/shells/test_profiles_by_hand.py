"""Profiles against what a reader of the vendors' documentation expects, written down without a look at the data."""

from __future__ import annotations

import asyncio
import json

from tests.shells.probe import Probe, Reply, post
from tests.shells.rig import Rig
from twicesafe import Effects, Policy

NOW = 784111777.0
DATE = b"Sun, 06 Nov 1994 08:49:37 GMT"
A_UUID = b"8e03978e-40d5-43e8-bc93-6894a57f9324"


async def ask(rig: Rig, *headers: tuple[bytes, bytes], body: bytes = b"{}", **how: str) -> Reply:
    """One request as it stands here."""
    return await post(rig.safe, key=None, headers=headers, body=body, **how)


def test_stripe_v1() -> None:
    """R5, R15, R21: 255 characters on POST; a 500 is the answer for ever; 400 for another body; a marker, and a header
    that says whether to ask again; 24 hours."""

    async def trial() -> None:
        rig = Rig(Policy.profile("stripe-v1"), Probe(status=500))
        key = (b"idempotency-key", b"k" * 255)
        first, again = await ask(rig, key), await ask(rig, key)
        assert rig.effects == 1
        assert (first.status, again.status, again.header(b"idempotent-replayed")) == (500, 500, b"true")
        assert again.header(b"idempotency-key-retention") == b"86400"
        other = await ask(rig, key, body=b'{"a": 1}')
        assert (other.status, other.header(b"stripe-should-retry")) == (400, b"false")
        assert (await ask(rig, (b"idempotency-key", b"k" * 256))).status == 400
        for _ in range(2):
            await ask(rig, key, method="DELETE")
        assert rig.effects == 3

    asyncio.run(trial())


def test_stripe_v2() -> None:
    """R2, R15: DELETE takes keys too, for 30 days, and what failed is tried again under them."""

    async def trial() -> None:
        probe = Probe(status=400)
        rig = Rig(Policy.profile("stripe-v2"), probe)
        key = (b"idempotency-key", b"k")
        assert (await ask(rig, key, method="DELETE")).status == 400
        probe.status = 200
        again = await ask(rig, key, method="DELETE")
        assert (again.status, again.replayed, rig.effects) == (200, False, 2)
        assert again.header(b"idempotency-key-retention") == b"2592000"
        assert (await ask(rig, key, method="DELETE")).replayed
        assert rig.effects == 2

    asyncio.run(trial())


def test_square() -> None:
    """R5: the key is a member of the body, of 45 characters, required; an empty one is none; headers do not count."""

    async def trial() -> None:
        rig = Rig(Policy.profile("square"))

        def body(key: str) -> bytes:
            return json.dumps({"idempotency_key": key, "amount_money": {"amount": 1, "currency": "USD"}}).encode()

        first, again = await ask(rig, body=body("s" * 45)), await ask(rig, body=body("s" * 45))
        assert (rig.effects, first.status, again.body) == (1, 201, first.body)
        assert (await ask(rig, body=body("s" * 46))).kind == "key-invalid"
        assert (await ask(rig, body=body(""))).kind == "key-missing"
        assert (await ask(rig, (b"idempotency-key", b"k"))).kind == "key-missing"
        assert rig.effects == 1
        assert Policy.profile("square-payment-link").key.max_length == 192

    asyncio.run(trial())


def test_azure() -> None:
    """R5, R15, R21: both headers or 400; a GUID; 412 outside of 5 minutes; a mismatch is 400; every answer says
    accepted or rejected; a 5xx is executed again where that is safe."""

    async def trial() -> None:
        clock = [NOW]
        rig = Rig(Policy.profile("azure", clock=lambda: clock[0]))
        identity, sent = (b"repeatability-request-id", A_UUID), (b"repeatability-first-sent", DATE)
        result = b"repeatability-result"
        first, again = await ask(rig, identity, sent), await ask(rig, identity, sent)
        assert (rig.effects, first.header(result), again.header(result)) == (1, b"accepted", b"accepted")
        assert again.replayed
        for lines, status in (
            ((identity,), 400),
            ((sent,), 400),
            (((b"repeatability-request-id", b"no-guid"), sent), 400),
            ((identity, (b"repeatability-first-sent", b"yesterday")), 400),
            ((identity, (b"repeatability-first-sent", b"Sun, 06 Nov 1994 08:49:38 GMT")), 400),
        ):
            refused = await ask(rig, *lines)
            assert (refused.status, refused.header(result)) == (status, b"rejected"), lines
        clock[0] += 301
        late = await ask(rig, identity, sent)
        assert (late.status, late.header(result), late.problem["safe_new_key"]) == (412, b"rejected", False)
        assert rig.effects == 1

        keyed = Rig(Policy.profile("azure", clock=lambda: NOW, effects=Effects.KEYED), Probe(status=502))
        await ask(keyed, identity, sent)
        keyed.now += 1
        assert (await ask(keyed, identity, sent)).status == 502
        assert keyed.effects == 2

    asyncio.run(trial())


def test_checkout() -> None:
    """R15: only 2xx are kept, and who asks meanwhile is told 429."""

    async def trial() -> None:
        probe = Probe(status=422)
        started, go_on = asyncio.Event(), asyncio.Event()
        rig = Rig(Policy.profile("checkout"), probe)
        key = (b"cko-idempotency-key", b"k")
        assert (await ask(rig, key)).status == 422
        probe.status = 201
        assert (await ask(rig, key)).status == 201
        assert (await ask(rig, key)).replayed
        assert rig.effects == 2

        async def before() -> None:
            started.set()
            await go_on.wait()

        probe.before = before
        running = asyncio.create_task(ask(rig, (b"cko-idempotency-key", b"other")))
        await started.wait()
        assert (await ask(rig, (b"cko-idempotency-key", b"other"))).status == 429
        go_on.set()
        assert (await running).status == 201

    asyncio.run(trial())


def test_gocardless() -> None:
    """R19: the second creation is refused with 409, and says where the first one's result is."""

    async def trial() -> None:
        probe = Probe(headers=((b"location", b"/payments/PM123"), (b"content-type", b"text/plain")))
        rig = Rig(Policy.profile("gocardless"), probe)
        key = (b"idempotency-key", b"PROCESS-ME-ONCE")
        assert (await ask(rig, key)).status == 201
        again = await ask(rig, key)
        assert (rig.effects, again.status, again.header(b"location")) == (1, 409, b"/payments/PM123")
        assert again.kind == "already-done"

    asyncio.run(trial())


def test_qonto() -> None:
    """R20, I4: whatever the body is, the first answer is given for half an hour; another address is another request."""

    async def trial() -> None:
        rig = Rig(Policy.profile("qonto"))
        key = (b"x-qonto-idempotency-key", A_UUID)
        first, again = await ask(rig, key, body=b'{"a": 1}'), await ask(rig, key, body=b'{"a": 2}')
        assert (rig.effects, again.body, again.replayed) == (1, first.body, True)
        assert again.header(b"idempotency-key-retention") == b"1800"
        assert (await ask(rig, key, path="/elsewhere")).kind == "key-reused"
        assert (await ask(rig)).kind == "key-missing"
        assert rig.effects == 1

    asyncio.run(trial())


def test_acp() -> None:
    """R8, R15, I6: 1.0 is 1 and null is not absent; a 5xx of opaque work is no licence for a second order."""

    async def trial() -> None:
        probe = Probe()
        rig = Rig(Policy.profile("acp"), probe)
        key = (b"idempotency-key", b"k")
        await ask(rig, key, body=b'{"a": 1, "b": 2}')
        again = await ask(rig, key, body=b'{"b": 2, "a": 1.0}')
        assert (again.replayed, again.header(b"idempotency-key")) == (True, b"k")
        other = await ask(rig, key, body=b'{"a": 1, "b": 2, "c": null}')
        assert (other.status, rig.effects) == (422, 1)
        probe.status = 500
        await ask(rig, (b"idempotency-key", b"failed"))
        held = await ask(rig, (b"idempotency-key", b"failed"))
        assert (held.status, held.kind, rig.effects) == (409, "outcome-unknown", 2)

    asyncio.run(trial())


def test_razorpay() -> None:
    """R4, R5: 4 to 36 letters, digits, hyphens, underscores and blanks, for 7 days; without one nothing is paid."""

    async def trial() -> None:
        rig = Rig(Policy.profile("razorpay"))
        for key, status in ((b"pay_1 a-b", 201), (b"abc", 400), (b"k" * 37, 400), (b"pay.1", 400), (None, 400)):
            lines = [] if key is None else [(b"x-payout-idempotency", key)]
            assert (await ask(rig, *lines)).status == status, key
        assert rig.effects == 1
        assert (await ask(rig, (b"x-payout-idempotency", b"pay_1 a-b"), body=b"[]")).status == 400
        assert (await ask(rig)).header(b"idempotency-key-retention") == b"604800"

    asyncio.run(trial())
