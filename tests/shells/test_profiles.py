"""What can be observed of each profile, against its row of the data, which is read here by itself."""

from __future__ import annotations

import asyncio
import json
import string
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import twicesafe.core
from tests.shells.probe import Probe, Reply, Wire, post
from tests.shells.rig import Rig
from twicesafe import Effects, Policy

DATA: dict[str, dict[str, Any]] = tomllib.loads(
    Path(twicesafe.core.__file__).with_name("profiles.toml").read_text("utf-8")
)
NOW = 784111777.0
DATE = b"Sun, 06 Nov 1994 08:49:37 GMT"
A_UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
every = pytest.mark.parametrize("name", DATA)


class Vendor:
    """A server that follows a profile, and a caller who knows the vendor's documentation."""

    def __init__(self, name: str, probe: Probe | None = None, **changes: Any) -> None:
        self.row = DATA[name]
        clock = {"clock": lambda: NOW} if "first_sent" in self.row else {}
        self.policy = Policy.profile(name, **clock, **changes)
        self.rig = Rig(self.policy, probe)

    def said(self, axis: str, what: str, default: Any) -> Any:
        """What the row says, or how the library does it."""
        return self.row.get(axis, {}).get(what, default)

    @property
    def key(self) -> str:
        """One that is taken."""
        if self.said("key", "syntax", "opaque") == "uuid":
            return A_UUID
        return "k" * self.said("key", "max", 255)

    @property
    def methods(self) -> list[str]:
        return list(self.said("methods", "only", ["POST", "PATCH"]))

    def request(self, key: str | None, **how: Any) -> dict[str, Any]:
        """How a request with this key is sent."""
        document = dict(how.pop("document", {"amount": 1, "to": "me"}))
        headers = list(how.pop("headers", ()))
        carrier = self.row["carrier"]
        if key is not None and "json" in carrier:
            document[carrier["json"]] = key
        elif key is not None:
            headers.append((carrier["header"].lower().encode(), key.encode()))
        if "first_sent" in self.row and key is not None:
            headers.append((self.row["first_sent"]["header"].lower().encode(), DATE))
        return {
            "method": self.methods[0],
            "body": json.dumps(document).encode(),
            **how,
            "key": None,
            "headers": headers,
        }

    async def ask(self, key: str | None, **how: Any) -> Reply:
        return await post(self.rig.safe, **self.request(key, **how))

    def is_again(self, first: Reply, again: Reply) -> None:
        """Assert that `again` is what a second asker gets of a stored `first`."""
        marker = self.said("replay", "marker", "Idempotent-Replayed").lower().encode()
        if self.said("duplicates", "refused", False) and first.status < 400:
            assert (again.status, again.kind) == (409, "already-done")
            assert again.header(marker) is None
        else:
            assert (again.status, again.body) == (first.status, first.body)
            assert again.header(marker) == b"true"
        assert first.header(marker) is None


def expanded(named: list[str]) -> set[int]:
    """The statuses that a row means."""
    found: set[int] = set()
    for text in named:
        low, high = (text.replace("xx", "00"), text.replace("xx", "99")) if "xx" in text else text.split("-")
        found |= set(range(int(low), int(high) + 1))
    return found


@every
def test_a_request_is_carried_out_once(name: str) -> None:
    """R4, R5, R11: the row's carrier is taken, the second attempt runs nothing and gets what the vendor gives."""

    async def trial() -> None:
        vendor = Vendor(name)
        first, again = await vendor.ask(vendor.key), await vendor.ask(vendor.key)
        assert vendor.rig.effects == 1
        assert first.status == 201
        vendor.is_again(first, again)

    asyncio.run(trial())


@every
def test_a_key_elsewhere_is_no_key(name: str) -> None:
    """R3, R5: what another vendor calls its key is not looked at."""

    async def trial() -> None:
        vendor = Vendor(name)
        for place in (b"x-other-key", b"idempotency-key", b"x-idempotency-key"):
            if place == vendor.said("carrier", "header", "").lower().encode():
                continue
            reply = await vendor.ask(None, headers=[(place, vendor.key.encode())], document={"other_key": "k"})
            if vendor.said("required", "always", False):
                assert (reply.status, reply.kind, vendor.rig.effects) == (400, "key-missing", 0)
            else:
                assert reply.status == 201 and vendor.rig.effects > 0

    asyncio.run(trial())


@every
def test_lengths_and_characters(name: str) -> None:
    """R4: the shortest and the longest key are taken; one character less or more, or one that is not named, is 400."""

    async def trial() -> None:
        vendor = Vendor(name)
        shortest, longest = vendor.said("key", "min", 1), vendor.said("key", "max", 255)
        marks = vendor.said("key", "punctuation", None)
        uuid = vendor.said("key", "syntax", "opaque") == "uuid"
        good = [A_UUID, A_UUID[:-1] + "5"] if uuid else ["s" * shortest, "l" * longest]
        bad = [A_UUID[:-1], A_UUID + "4", "x" * 36] if uuid else ["b" * (longest + 1), "b" * (shortest - 1)]
        if marks is not None:
            allowed = [mark for mark in marks if mark != " "]
            good += [f"a{mark}".rjust(shortest, "k") + "z" * (shortest == 1) for mark in allowed]
            bad += [f"a{mark}z".rjust(shortest, "k") for mark in string.punctuation + " " if mark not in marks]
        for key in dict.fromkeys(good):
            reply = await vendor.ask(key)
            assert reply.status == 201, (key, reply.body)
        done = vendor.rig.effects
        assert done == len(dict.fromkeys(good))
        for key in bad:
            reply = await vendor.ask(key)
            wanted = "key-missing" if key == "" and vendor.said("empty", "none", False) else "key-invalid"
            if wanted == "key-missing" and not vendor.said("required", "always", False):
                assert reply.status == 201
                done += 1
            else:
                assert (reply.status, reply.kind) == (400, wanted), key
        assert vendor.rig.effects == done

    asyncio.run(trial())


@every
def test_methods(name: str) -> None:
    """R2: the row's methods take keys, all others pass through untouched."""

    async def trial() -> None:
        for method in ("POST", "PATCH", "PUT", "DELETE"):
            vendor = Vendor(name)
            for _ in range(2):
                reply = await vendor.ask(vendor.key, method=method)
                assert reply.status in (201, 409)
            assert vendor.rig.effects == (1 if method in vendor.methods else 2), method

    asyncio.run(trial())


@every
def test_another_request_under_the_key(name: str) -> None:
    """R11, I4: another address is a mismatch with the row's status; another body too, unless the row ignores bodies."""

    async def trial() -> None:
        vendor = Vendor(name)
        first = await vendor.ask(vendor.key)
        status = vendor.said("mismatch", "status", 422)
        elsewhere = await vendor.ask(vendor.key, path="/other")
        assert (elsewhere.status, elsewhere.kind) == (status, "key-reused")
        by = vendor.said("comparison", "by", "raw")
        other = await vendor.ask(vendor.key, document={"amount": 2, "to": "me"})
        turned = await vendor.ask(vendor.key, document={"to": "me", "amount": 1})
        for reply, same in ((other, by == "address"), (turned, by in ("address", "json"))):
            if same:
                vendor.is_again(first, reply)
            else:
                assert (reply.status, reply.kind) == (status, "key-reused")
        for header in vendor.said("comparison", "headers", []):
            changed = await vendor.ask(vendor.key, headers=[(header.encode(), b"other")])
            assert changed.status == status
        assert vendor.rig.effects == 1

    asyncio.run(trial())


@every
def test_while_the_first_attempt_runs(name: str) -> None:
    """R11: a second attempt in the meantime runs nothing, and gets the row's status and a time to come back."""

    async def trial() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def before() -> None:
            started.set()
            await go_on.wait()

        vendor = Vendor(name, Probe(before=before))
        wire = Wire(vendor.rig.safe, **vendor.request(vendor.key)).start()
        await started.wait()
        second = await vendor.ask(vendor.key)
        assert (second.status, second.kind) == (vendor.said("in_flight", "status", 409), "in-progress")
        assert second.header(b"retry-after") == b"1"
        go_on.set()
        assert (await wire.end()).status == 201
        assert vendor.rig.effects == 1

    asyncio.run(trial())


@every
def test_what_is_stored(name: str) -> None:
    """R13, R15, I6: of each status what the row says: stored and given again; not stored because it says that nothing
    was done; or run again by keyed work, and held as unknown of opaque work, which is never silently run again."""

    async def trial(status: int, effects: Effects) -> None:
        vendor = Vendor(name, Probe(status=status), effects=effects)
        first = await vendor.ask(vendor.key)
        # A claim that was given up is free on the next tick of the store's clock.
        vendor.rig.pass_time(timedelta(microseconds=1))
        again = await vendor.ask(vendor.key)
        assert first.status == status
        nothing_done = {408, 425, 429, 503} | expanded(vendor.said("stored", "released", []))
        if status in nothing_done:
            assert (vendor.rig.effects, again.status) == (2, status)
        elif status not in expanded(vendor.said("stored", "rerun", [])):
            assert vendor.rig.effects == 1
            vendor.is_again(first, again)
        elif effects is Effects.KEYED:
            assert (vendor.rig.effects, again.status) == (2, status)
        else:
            assert (vendor.rig.effects, again.status, again.kind) == (1, 409, "outcome-unknown")

    for status in (200, 400, 402, 422, 429, 500, 501, 502, 503):
        for effects in (Effects.OPAQUE, Effects.KEYED):
            asyncio.run(trial(status, effects))


@every
def test_an_exception_is_a_500(name: str) -> None:
    """R16, I6: where the vendor stores no 500, an exception of opaque work leaves an unknown outcome and no answer."""

    async def trial() -> None:
        vendor = Vendor(name, Probe(raise_after=RuntimeError("after the effect")))
        await post(vendor.rig.safe, **vendor.request(vendor.key), raises=RuntimeError)
        again = await vendor.ask(vendor.key)
        assert vendor.rig.effects == 1
        if 500 in expanded(vendor.said("stored", "rerun", [])):
            assert (again.status, again.kind) == (409, "outcome-unknown")
        else:
            assert (again.status, again.kind) == (500, "handler-failed")

    asyncio.run(trial())


@every
def test_the_window(name: str) -> None:
    """R20: it is announced in seconds on every answer; at its end the key is new, and before it is not."""

    async def trial() -> None:
        vendor = Vendor(name)
        window = timedelta(**{k: v for k, v in vendor.row["window"].items() if k in ("minutes", "hours", "days")})
        first = await vendor.ask(vendor.key)
        assert first.header(b"idempotency-key-retention") == b"%d" % window.total_seconds()
        vendor.rig.pass_time(window - timedelta(seconds=1))
        assert (await vendor.ask(vendor.key)).header(b"idempotency-key-retention") is not None
        assert vendor.rig.effects == 1
        vendor.rig.pass_time(timedelta(seconds=1))
        assert (await vendor.ask(vendor.key)).status == 201
        assert vendor.rig.effects == 2

    asyncio.run(trial())


@every
def test_what_answers_say_in_headers(name: str) -> None:
    """R20, R21: the key is echoed, whether to ask again and whether it was accepted are said, where the row says so."""

    async def trial() -> None:
        vendor = Vendor(name)
        replies = [await vendor.ask(vendor.key), await vendor.ask(vendor.key)]
        refused = await vendor.ask(vendor.key, path="/other")
        echo = vendor.row["carrier"].get("header", "Idempotency-Key").lower().encode()
        for reply in (*replies, refused):
            assert reply.header(echo) == (vendor.key.encode() if vendor.said("echo", "always", False) else None)
        directive = vendor.said("directive", "header", "Stripe-Should-Retry").lower().encode()
        assert refused.header(directive) == (b"false" if "directive" in vendor.row else None)
        assert replies[0].header(directive) is None
        result = vendor.said("result", "header", "Repeatability-Result").lower().encode()
        told = [reply.header(result) for reply in (*replies, refused)]
        assert told == ([b"accepted", b"accepted", b"rejected"] if "result" in vendor.row else [None] * 3)

    asyncio.run(trial())
