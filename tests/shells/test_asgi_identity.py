"""Which requests are one intent: the key, its owner, and what was asked for."""

from __future__ import annotations

import asyncio
import random
import string

import pytest

from tests.shells.probe import Probe, Wire, post
from tests.shells.rig import Rig
from twicesafe import PUBLIC, Effects, KeyRule, KeySyntax, Operation, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.errors import ConfigurationError
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore


def run(coroutine):
    return asyncio.run(coroutine)


def by_user(scope):
    """What an authentication layer would have found out."""
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None


def as_user(name: str):
    return [(b"x-user", name.encode())]


# --- the key (R2 to R5, G5, G6) ---------------------------------------------------------------------------------------


def test_without_a_key_nothing_changes():
    """R3, G6: requests without a key pass through, each runs, none shares an answer."""

    async def trial():
        rig = Rig()
        replies = [await post(rig.safe, key=None) for _ in range(3)]
        assert rig.effects == 3
        assert [reply.body for reply in replies] == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']

    run(trial())


def test_a_required_key_is_demanded():
    """R3, R21: where a key is required, a request without one gets the draft's 400 and nothing runs."""

    async def trial():
        rig = Rig(Policy(required=True))
        refused = await post(rig.safe, key=None)
        assert rig.effects == 0
        assert (refused.status, refused.kind) == (400, "key-missing")
        assert refused.problem["title"] == "Idempotency-Key is missing"

    run(trial())


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_other_methods_pass_through(method):
    """R2, G8: only POST and PATCH take keys by default; a preflight never touches the store."""

    async def trial():
        rig = Rig()
        for _ in range(2):
            await post(rig.safe, method=method)
        assert rig.effects == 2

    run(trial())


def test_an_operation_can_ask_for_other_methods():
    """R2: PUT under a key is protected where the policy says so."""

    async def trial():
        rig = Rig(Policy(methods=frozenset({"put"})))
        for _ in range(2):
            await post(rig.safe, method="PUT")
        assert rig.effects == 1

    run(trial())


RANDOM = random.Random(7)
LONG = "".join(RANDOM.choices(string.ascii_letters + string.digits, k=5000))


@pytest.mark.parametrize(
    "key",
    ["", " ", "\t", LONG[:256], LONG, "clé".encode(), b"a\x00b", b"a\x7fb", b"a\nb", b'"unclosed', b'"a" "b"', b'""'],
    ids=lambda key: repr(key[:12]),
)
def test_malformed_keys_are_refused_before_any_work(key):
    """R4, G5, G6: empty, blank, over-long, control and non-ASCII keys get 400; nothing runs and nothing is stored."""

    async def trial():
        rig = Rig()
        for _ in range(3):
            refused = await post(rig.safe, key=key)
            assert (refused.status, refused.kind) == (400, "key-invalid")
        assert rig.effects == 0

    run(trial())


@pytest.mark.parametrize("length", [1, 36, 255])
def test_every_admitted_key_is_told_from_its_neighbour(length):
    """R4, G5: keys up to 255 random characters are accepted and never truncated."""

    async def trial():
        rig = Rig()
        key = LONG[:length]
        other = key[:-1] + ("x" if key[-1] != "x" else "y")
        for each in (key, other, key, other):
            assert (await post(rig.safe, key=each)).status == 201
        assert rig.effects == 2

    run(trial())


def test_bare_and_quoted_forms_are_one_key():
    """R4: `abc` and `"abc"` name one intent; two equal lines do too; two differing lines are 400."""

    async def trial():
        rig = Rig()
        first = await post(rig.safe, key="abc")
        quoted = await post(rig.safe, key='"abc"')
        twice = await post(rig.safe, key="abc", headers=[(b"idempotency-key", b'"abc"')])
        differing = await post(rig.safe, key="abc", headers=[(b"idempotency-key", b"abd")])
        assert rig.effects == 1
        assert quoted.body == twice.body == first.body
        assert (differing.status, differing.kind) == (400, "key-invalid")

    run(trial())


def test_a_uuid_policy_takes_uuids_in_any_case():
    """R4: with UUID syntax other keys are 400, and upper and lower case are one key."""

    async def trial():
        rig = Rig(Policy(key=KeyRule(KeySyntax.UUID)))
        assert (await post(rig.safe, key="abc")).status == 400
        await post(rig.safe, key="8E03978E-40D5-43E8-BC93-6894A57F9324")
        await post(rig.safe, key="8e03978e-40d5-43e8-bc93-6894a57f9324")
        assert rig.effects == 1

    run(trial())


def test_the_carrier_is_the_policys():
    """R5: the header's name is configurable; the standard one then means nothing."""

    async def trial():
        rig = Rig(Policy(header="PayPal-Request-Id"))
        for _ in range(2):
            await post(rig.safe, headers=[(b"paypal-request-id", b"a")])
        assert rig.effects == 1
        await post(rig.safe)
        assert rig.effects == 2

    run(trial())


# --- the scope (R6, R7, I7, G1, F5) -----------------------------------------------------------------------------------


def test_scope_has_no_default():
    """R6: an application that does not say who the caller is cannot be built, nor one that names a constant."""
    with pytest.raises(TypeError):
        IdempotencyMiddleware(Probe(), AsyncMemoryStore())
    with pytest.raises(ConfigurationError, match="scope"):
        IdempotencyMiddleware(Probe(), AsyncMemoryStore(), scope="everybody")
    with pytest.raises(ConfigurationError, match="asynchronous"):
        IdempotencyMiddleware(Probe(), MemoryStore(), scope=PUBLIC)
    with pytest.raises(ConfigurationError, match="transactional"):
        IdempotencyMiddleware(Probe(), AsyncMemoryStore(), scope=PUBLIC, policy=Policy(effects=Effects.TRANSACTIONAL))


def test_callers_never_share_a_record():
    """I7, R6, G1, F5: one key, one body, two users: two effects and two answers; an unknown caller is refused."""

    async def trial():
        rig = Rig(scope=by_user)
        a = await post(rig.safe, headers=as_user("a"))
        b = await post(rig.safe, headers=as_user("b"))
        again = await post(rig.safe, headers=as_user("a"))
        nobody = [await post(rig.safe) for _ in range(2)]
        assert rig.effects == 2
        assert a.body != b.body
        assert (again.body, again.replayed) == (a.body, True)
        assert [(reply.status, reply.kind) for reply in nobody] == [(403, "caller-unknown")] * 2

    run(trial())


def test_the_scope_may_be_found_out_asynchronously():
    """R6: a session look-up may be awaited; an empty identity is nobody's."""

    async def trial():
        async def look_up(scope):
            await asyncio.sleep(0)
            return dict(scope["headers"])[b"x-user"].decode()

        rig = Rig(scope=look_up)
        for _ in range(2):
            await post(rig.safe, headers=as_user("a"))
        empty = await post(rig.safe, headers=as_user(""))
        assert rig.effects == 1
        assert (empty.status, empty.kind) == (403, "caller-unknown")

    run(trial())


def test_what_changes_between_attempts_changes_nothing():
    """F5, R6: a new token, trace ids, user agent, date, signature and address of the same caller replay."""

    async def trial():
        rig = Rig(scope=by_user)
        for attempt in range(3):
            wire = Wire(
                rig.safe,
                headers=[
                    *as_user("a"),
                    (b"authorization", b"Bearer %d" % attempt),
                    (b"traceparent", b"00-%d" % attempt),
                    (b"user-agent", b"agent/%d" % attempt),
                    (b"signature", b"s%d" % attempt),
                ],
            )
            wire.scope["client"] = (f"127.0.0.{attempt + 1}", 1)
            assert (await wire.end()).status == 201
        assert rig.effects == 1

    run(trial())


def test_strangers_cannot_make_an_operation_table_grow(monkeypatch):
    """R11: names of operations that come from paths are forgotten again, the oldest first; each request still runs."""
    monkeypatch.setattr("twicesafe.exchanging.USUAL_AT_MOST", 3)

    probe = Probe()

    async def in_turns(scope, receive, send):
        await asyncio.sleep(0)
        await probe(scope, receive, send)

    async def trial():
        rig = Rig(probe=probe, app=in_turns, operation=lambda scope: Operation(scope["path"]))
        for number in range(10):
            await post(rig.safe, path=f"/w/{number}", key=f"key-{number}")
        assert rig.effects == 10
        assert list(rig.safe._shared.usual) == ["/w/7", "/w/8", "/w/9"]

    run(trial())
