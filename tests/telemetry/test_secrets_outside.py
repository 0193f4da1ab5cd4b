"""Clients, addresses of databases, commands and reports show no secret that they were given."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import niquests
import pytest
import requests
from psycopg_pool import ConnectionPool

from tests.cli.running import twicesafe_within
from tests.client.scripted import answer, reset_after_commit, serving
from tests.client.ways import NO_TLS, QUICK, Hours
from tests.doctor import served
from tests.gateway.scripted import Service
from tests.planted import told
from tests.shells.probe import Probe, post
from tests.telemetry.searched import BODY, KEY, PASSWORD, Caused, Searched, planted
from twicesafe import PUBLIC, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.client import Budgets, Intent, IntentStore, Outcome, Watch
from twicesafe.client.aiohttp import asend
from twicesafe.client.httpx import send
from twicesafe.client.opentelemetry import Tracing
from twicesafe.client.requests import send as send_by_requests
from twicesafe.errors import (
    TwicesafeError,
)
from twicesafe.once import Once, current
from twicesafe.stores.sqlite import SqliteStore
from twicesafe.stores.urls import open_async_store, open_store


def by_httpx2(intent: Intent, how: dict[str, Any]) -> Outcome[Any]:
    with httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
        return send(client, intent, **how, ambient=Hours().ambient)


def by_requests(intent: Intent, how: dict[str, Any]) -> Outcome[Any]:
    with requests.Session() as session:
        return send_by_requests(session, intent, **how, ambient=Hours().ambient)


def by_niquests(intent: Intent, how: dict[str, Any]) -> Outcome[Any]:
    with niquests.Session() as session:
        return send_by_requests(session, intent, **how, ambient=Hours().ambient)


def by_aiohttp(intent: Intent, how: dict[str, Any]) -> Outcome[Any]:
    async def sending() -> Outcome[Any]:
        async with aiohttp.ClientSession() as session:
            return await asend(session, intent, **how, ambient=Hours().async_ambient)

    return asyncio.run(sending())


@pytest.mark.parametrize("by", [by_httpx2, by_requests, by_niquests, by_aiohttp])
def test_clients(searched: Searched, by: Callable[..., Outcome[Any]]) -> None:
    """R22, R33: a client's key, body, lines, query and credentials are in no event, span, outcome or error."""
    watch = Watch(observer=searched, tracing=Tracing(searched.recorded.tracers))
    how = {"policy": QUICK, "watch": watch}
    for acts in ([answer(201)], [reset_after_commit] * 4, [answer(422)], [answer(503), answer(201)], [answer(307)]):
        with serving(*acts) as server:
            where = f"{server.origin.replace('://', f'://ada:{PASSWORD}@')}/charges/{KEY}?code={planted('query')}"
            lines = {} if by is by_aiohttp else {"Authorization": planted("token")}
            intent = Intent.new("POST", where, json={"card": BODY}, headers=lines, key=KEY)
            searched.saw("an intent", repr(intent))
            outcome = by(intent, {**how, "budgets": Budgets()})
            # The library's own response says where it came from.
            searched.saw("an outcome", repr(outcome).replace(repr(getattr(outcome, "response", None)), ""))
            try:
                outcome.raise_for_outcome()
            except TwicesafeError as error:
                searched.error("an outcome", error)


ADDRESSES = (
    f"postgresql://app:{PASSWORD}@127.0.0.1:1/shop",
    f"mysql://app:{PASSWORD}@127.0.0.1:1/shop",
    f"redis://app:{PASSWORD}@127.0.0.1:1/0",
    f"postgresql://app:{PASSWORD}@[::1/shop",
    f"nothing://app:{PASSWORD}@127.0.0.1/shop",
    f"{PASSWORD}",
)


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: address.partition(":")[0][:10] + str(len(address)))
def test_stores_out_of_reach(searched: Searched, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R22, R42: a database's password is in no error, whether its address is wrong or nobody answers there."""
    wait = ConnectionPool.getconn
    monkeypatch.setattr(ConnectionPool, "getconn", lambda pool, timeout: wait(pool, 0.1))
    try:
        with closing(open_store(address)) as store:
            store.check_schema()
    except TwicesafeError as error:
        searched.error("a store", error)

    async def trial() -> None:
        store = open_async_store(address)
        try:
            app = IdempotencyMiddleware(Probe(), store, scope=PUBLIC, observer=searched)
            searched.problem("a request without its store", await post(app, key=KEY, body=BODY.encode()))
        finally:
            await store.aclose()

    try:
        asyncio.run(trial())
    except TwicesafeError as error:
        searched.error("a store under asyncio", error)
    for command in (("reap", "--once"), ("keys", "show", KEY, "--scope", "ada"), ("schema", "check")):
        ran = twicesafe_within(*command, "--store", address)
        assert ran.status == 2, ran
        # The key that somebody types is theirs to see again.
        searched.saw(f"twicesafe {command[0]}", (ran.out + ran.err).replace(KEY, ""))


def test_commands_on_records(searched: Searched, tmp_path: Path) -> None:
    """R22: what people see of records and of unknown outcomes holds a key's hint, and neither request nor answer."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with closing(SqliteStore(tmp_path / "shop.db")) as store:
        store.apply_schema()
        once = Once(store, scope="shop", policy=Policy(unknown_on_error=True), observer=searched)
        with pytest.raises(Caused):
            once.operation(key=lambda card: KEY, name="charge")(_raised)(BODY)
        buy = once.operation(key=lambda card: KEY + "-2", name="buy", effects="resumable")(_stepping)
        with pytest.raises(Caused):
            buy(BODY)
    listed = twicesafe_within("keys", "list", "--store", url, "--json")
    found = json.loads(listed.out)
    assert {one["operation"] for one in found} == {"charge", "buy"}
    searched.saw("twicesafe keys list", listed.out)
    for one in found:
        for arguments in (
            ("show",),
            ("show", "--json"),
            ("resume", "--why", "deployed"),
            ("release", "--why", "nobody saw it"),
        ):
            ran = twicesafe_within("keys", arguments[0], one["digest"], "--store", url, *arguments[1:])
            searched.saw(f"twicesafe keys {arguments[0]}", ran.out + ran.err)
    for command in (("reap", "--once"), ("reap", "--once", "--json"), ("keys", "list"), ("outbox", "list")):
        ran = twicesafe_within(*command, "--store", url)
        assert ran.status == 0, ran.err
        searched.saw(f"twicesafe {command[0]}", ran.out + ran.err)


def test_commands_that_settle(searched: Searched, tmp_path: Path) -> None:
    """R22, R26: what is settled as done, with the answer that a file holds, is told without it, as is what is wrong."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with closing(SqliteStore(tmp_path / "shop.db")) as store:
        store.apply_schema()
        once = Once(store, scope="shop", policy=Policy(unknown_on_error=True), observer=searched)
        with pytest.raises(Caused):
            once.operation(key=lambda card: KEY, name="charge")(_raised)(BODY)
        (record,) = store.outstanding().records
    for name, text in (("body", json.dumps(BODY)), ("broken", BODY)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    target = record.digest.hex()
    for more in (
        ("--header", f"card: {BODY}", "--header", f"no line {BODY}"),
        ("--body", str(tmp_path / "body"), "--header", f"x-card: {BODY}"),
        ("--body", str(tmp_path / "body")),
    ):
        ran = twicesafe_within("keys", "settle", target, "--store", url, "--why", "seen", *more)
        searched.saw("twicesafe keys settle", ran.out + ran.err)
    for verb in (("show", target), ("show", target, "--json"), ("list", "--json")):
        ran = twicesafe_within("keys", *verb, "--store", url)
        searched.saw(f"twicesafe keys {verb[0]}", ran.out + ran.err)


def test_commands_on_intents(searched: Searched, tmp_path: Path) -> None:
    """R22, R33: of an intent that is kept, sent again and settled, people see no body, line, query or whole key."""
    file = tmp_path / "intents.db"
    store = IntentStore(file)
    with serving(answer(422)) as server:
        for name, origin in (("here", server.origin), ("away", "http://127.0.0.1:1")):
            lines = {"x-card": planted("line")}
            where = f"{origin}/charges?code={planted('query')}"
            store.reserve(
                name,
                Intent.new("POST", where, json={"card": BODY}, headers=lines, key=f"{KEY}-{name}"),
                remembers=timedelta(1),
            )
        for verb, *more in (
            ("list",), ("list", "--json"), ("show", "here"), ("show", "here", "--json"),
            ("resume", "--unsent", "--deadline", "1"), ("resume", "--unsent", "--deadline", "1", "--json"),
            ("list", "--all"), ("settle", "away", "--done", "--why", "seen"), ("forget", "here"),
        ):  # fmt: skip
            ran = twicesafe_within("intents", verb, str(file), *more)
            searched.saw(f"twicesafe intents {verb} {more}", ran.out + ran.err)


def test_commands_that_look(searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R22, R44: neither `doctor` nor `stores check` shows the password of a store that it cannot reach."""
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setattr(served, "FOLDER", tmp_path)
    wait = ConnectionPool.getconn
    monkeypatch.setattr(ConnectionPool, "getconn", lambda pool, timeout: wait(pool, 0.1))
    for address in (f"postgresql://app:{PASSWORD}@127.0.0.1:1/shop", f"redis://app:{PASSWORD}@127.0.0.1:1/0", PASSWORD):
        for arguments in (
            ("doctor", "tests.doctor.served:honest()", "--store", address),
            ("stores", "check", address, "--check", "a_claim_is_kept_as_asked"),
        ):
            ran = twicesafe_within(*arguments)
            assert ran.status > 0
            searched.saw(f"twicesafe {arguments[0]}", ran.out + ran.err)


def _raised(card: str) -> str:
    raise Caused


def _stepping(card: str) -> str:
    def charge(key: str, what: str) -> str:
        raise Caused

    return current().call("charge", charge, card)


@pytest.mark.parametrize("form", ["table", "json", "html", "junit"])
def test_reports_of_a_check(searched: Searched, form: str) -> None:
    """R22, R43: what authenticates somebody at the API under check is in no form of the report, nor on the terminal."""
    with closing(Service()) as service:
        ran = twicesafe_within(
            "check", "--curl", f"curl {service.url}/orders -H 'Authorization: Bearer {PASSWORD}' -d x", "--only",
            "replay", "--format", form,
        )  # fmt: skip
        assert service.connections > 0
    assert ran.out
    searched.saw(f"twicesafe check --format {form}", ran.out + ran.err)
    for _ in range(5):
        searched.saw("nothing", "")


def test_the_search_would_find_it(searched: Searched) -> None:
    """R22: each form of a secret that is looked for is found, in an event as in a log's traceback."""

    for text in (KEY, KEY.encode().hex(), *[base64.b64encode(b"x" * n + KEY.encode()).decode() for n in range(3)]):
        before = len(searched.leaks)
        searched.saw("a text", f"before {text} after")
        assert len(searched.leaks) > before, text
    try:
        raise LookupError from Caused()
    except LookupError:
        before = len(searched.leaks)
        logging.getLogger("twicesafe").exception("wrong")
        assert len(searched.leaks) > before
    searched.leaks.clear()
    assert "the log" in told()
