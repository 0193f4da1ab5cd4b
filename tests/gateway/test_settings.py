"""The command's options: what is wrong is said under the option's name, before anything listens."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import asdict

import certifi
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tests.cli.running import twicesafe
from tests.gateway.running import free_port
from tests.house.sources import ROOT
from twicesafe.cli import app
from twicesafe.core.policy import Policy
from twicesafe.errors import ConfigurationError
from twicesafe.gateway import Gateway, settings
from twicesafe.gateway.settings import Settings

RIGHT = Settings(upstream="http://127.0.0.1:3000", store="memory:", scope_header="X-User-Id")
TOKENS = {"scope_header": "", "scope_claim": "sub", "jwks": "keys.json", "jwt_issuer": "i", "jwt_audience": "a"}

WRONG = [
    ("--upstream", {"upstream": "127.0.0.1:3000"}),
    ("--upstream", {"upstream": "ftp://a"}),
    ("--upstream", {"upstream": "http://a/base"}),
    ("--upstream", {"upstream": "http://a?b"}),
    ("--upstream", {"upstream": "http://user:secret@a"}),
    ("--upstream", {"upstream": "http://a:99999"}),
    ("--upstream", {"upstream": "http://[::1"}),
    ("--upstream-ca", {"upstream": "https://a", "upstream_ca": "nowhere.pem"}),
    ("--store", {"store": "oracle://a"}),
    ("--scope-header", {"scope_header": ""}),
    ("--scope-header", {"scope_header": "X-User Id"}),
    ("--scope-public", {"scope_public": True}),
    ("--jwks", {**TOKENS, "jwks": ""}),
    ("--jwt-issuer", {**TOKENS, "jwt_issuer": ""}),
    ("--jwt-audience", {**TOKENS, "jwt_audience": ""}),
    ("--jwt-algorithms", {**TOKENS, "jwt_algorithms": ("HS256",)}),
    ("--jwt-algorithms", {**TOKENS, "jwt_algorithms": ("none",)}),
    ("--jwt-algorithms", {**TOKENS, "jwt_algorithms": ()}),
    ("--effects", {"effects": "transactional"}),
    ("--effects", {"effects": "resumable"}),
    ("--effects", {"effects": "safe"}),
    ("--header", {"header": "Idempotency Key"}),
    ("--header", {"header": ""}),
    ("--upstream-header", {"upstream_header": "a:b"}),
    ("--key-syntax", {"key_syntax": "ulid"}),
    ("--retention", {"retention": 0.0}),
    ("--retention", {"retention": float("inf")}),
    ("--body-retention", {"retention": 60.0, "body_retention": 61.0}),
    ("--lease", {"lease": 0.01}),
    ("--wait", {"wait": 1e12}),
    ("--new-keys", {"new_keys": -1}),
    ("--new-keys-in-all", {"new_keys_in_all": 1}),
    ("--new-keys-within", {"new_keys_within": 0.5}),
    ("--connect-timeout", {"connect_timeout": 0.0}),
    ("--read-timeout", {"read_timeout": 0.0}),
    ("--write-timeout", {"write_timeout": float("inf")}),
    ("--keep-alive", {"keep_alive": -1.0}),
    ("--drain", {"drain": 1e20}),
    ("--released", {"released": (99,)}),
    ("--rerun", {"rerun": (200,)}),
    ("--host-header", {"host_header": "mine"}),
    ("--forwarded", {"forwarded": "drop"}),
    ("--health", {"health": "healthz"}),
]


@pytest.mark.parametrize(("option", "changes"), WRONG, ids=[f"{option} {list(c.values())[-1]}" for option, c in WRONG])
def test_a_wrong_option_is_named(option, changes):
    """R6, R13: what cannot be promised, and what cannot be meant, is refused where it is set."""
    with pytest.raises(ConfigurationError, match=f"^say .*{option}|^{option}"):
        Settings(**{**asdict(RIGHT), **changes}).application()


def test_no_transaction_is_promised():
    """R23: the refusal says why: the service's effects are in no transaction of the gateway's."""
    with pytest.raises(ConfigurationError, match="in no transaction"):
        Settings(**{**asdict(RIGHT), "effects": "transactional"}).application()
    with pytest.raises(ConfigurationError, match="in no transaction"):
        Gateway("http://a", store=RIGHT.application()._store, caller=None, policy=Policy(effects="transactional"))


def test_no_message_holds_a_password():
    """R22: an address that is refused is not repeated."""
    with pytest.raises(ConfigurationError) as refused:
        Settings(**{**asdict(RIGHT), "upstream": "http://user:secret@a"}).application()
    assert "secret" not in str(refused.value)


def test_settings_come_by_the_environment(monkeypatch):
    """R6: another process makes of them the same gateway."""
    given = Settings(**{**asdict(RIGHT), "effects": "keyed", "released": (503,), "retention": 60.0, "drain": 3.0})
    monkeypatch.setitem(os.environ, settings.VARIABLE, "")
    settings.to_environment(given)
    made = settings.from_environment()
    assert made._policy == given.application()._policy
    assert made._policy.rerun == {500, 502, 504} and made._policy.released == {503}
    assert made._policy.key_retention.total_seconds() == made._policy.body_retention.total_seconds() == 60


def test_tls_is_checked_by_a_file_of_ones_own():
    """R35: certificates may come from a file; one that is there is read."""
    made = Settings(**{**asdict(RIGHT), "upstream": "https://a", "upstream_ca": certifi.where()}).application()
    asyncio.run(made._upstream.aclose())
    assert made._upstream.authority == b"a"


OPTIONS = ("gateway", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9", "--scope-header", "X-User-Id")


def test_the_command_says_what_is_wrong(tmp_path):
    """R20: exit status 2 for a duration that is none, a server that is none, tables that are missing."""
    for option, value in (("--lease", "soon"), ("--rerun", "5xx")):
        ran = CliRunner().invoke(app, [*OPTIONS, "--store", "memory:", option, value])
        assert ran.exit_code == 2 and option in ran.output
    with socket.create_server(("127.0.0.1", 0)) as taken:
        here = f"127.0.0.1:{taken.getsockname()[1]}"
        for option, value in (("--server", "gunicorn"), ("--listen", "here"), ("--listen", here)):
            with pytest.raises(ConfigurationError, match=f"^{option}: "):
                app([*OPTIONS, "--store", "memory:", option, value], standalone_mode=False)
    for server in ("uvicorn", "granian"):
        options = (*OPTIONS, "--listen", f"127.0.0.1:{free_port()}", "--server", server)
        ran = twicesafe(*options, "--store", f"sqlite:///{tmp_path}/records.db")
        assert ran.status == 2 and "twicesafe schema apply" in ran.err


def test_every_option_is_documented():
    """R20: docs/gateway.md has a row for each option, and each row an option."""
    given = {name for option in get_command(app).commands["gateway"].params for name in option.opts} - {"-h", "--help"}
    table = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8").split("## Options")[1].split("\n## ")[0]
    named = {name for row in table.splitlines() if row.startswith("| `--") for name in row.split("|")[1].split("`")}
    assert {name for name in named if name.startswith("--")} == given
