"""How a target is described: in TOML, by a curl command, by an OpenAPI document."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing

import pytest

from tests.servers.postgresql import PostgresqlServer
from twicesafe.conformance.curl import from_curl
from twicesafe.conformance.effects import CommandCounter, HttpCounter, SqlCounter
from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.findings import Answer
from twicesafe.conformance.openapi import from_openapi
from twicesafe.conformance.target_file import from_toml
from twicesafe.conformance.templates import new_intent

URL = "http://127.0.0.1:8000/orders"
INTENT = new_intent()


def nobody(request):
    raise AssertionError("nothing is fetched")


# --- TOML -------------------------------------------------------------------------------------------------------------


def test_a_file_that_names_a_request_is_enough() -> None:
    """R43, R5: a URL and a body make a target; the key has a header of its own."""
    target = from_toml(f'[request]\nurl = "{URL}"\njson = {{ order = "{{{{unique}}}}" }}')
    request = target.request.fill(INTENT)
    assert (request.method, request.url) == ("POST", URL)
    assert json.loads(request.body) == {"order": INTENT.unique}
    assert request.lines == (("Content-Type", "application/json"), ("Idempotency-Key", INTENT.key))
    assert target.profile == "ietf" and target.counter is None


def test_the_key_goes_where_it_is_said_to() -> None:
    """R43, R5: into another header, in quotes, or into the body."""
    header = from_toml(f'[request]\nurl = "{URL}"\n[key]\nheader = "X-Key"\ntemplate = "order_{{{{number}}}}"')
    assert header.request.fill(INTENT).lines == (("X-Key", INTENT.key),)
    quoted = from_toml(f'[request]\nurl = "{URL}"\nheaders = {{ Key = \'"{{{{key}}}}"\' }}')
    assert quoted.request.fill(INTENT).lines == (("Key", f'"{INTENT.key}"'),)
    body = from_toml(f'[request]\nurl = "{URL}"\njson = {{ idempotency_key = "{{{{key}}}}", amount = 1 }}')
    assert json.loads(body.request.fill(INTENT).body)["idempotency_key"] == INTENT.key
    assert (body.header, body.carrier) == ("", "idempotency_key")


def test_a_variant_is_the_request_but_for_what_it_says() -> None:
    """R43: headers are replaced by name, an empty one is left out, a body is another one."""
    target = from_toml(
        f'[request]\nurl = "{URL}"\nheaders = {{ Cookie = "a", X-A = "1" }}\njson = {{ n = 1 }}\n'
        '[rejected]\njson = { n = -1 }\n[slow]\nheaders = { x-a = "2" }\n[other_caller]\nheaders = { Cookie = "" }'
    )
    assert target.rejected is not None and target.slow is not None and target.other_caller is not None
    assert json.loads(target.rejected.fill(INTENT).body) == {"n": -1}
    assert target.slow.fill(INTENT).values("X-A") == ["2"]
    assert json.loads(target.slow.fill(INTENT).body) == {"n": 1}
    assert target.request.with_lines(target.other_caller).fill(INTENT).values("cookie") == []


def test_a_target_moves_to_another_server_as_a_whole() -> None:
    """R43: what is on the request's own server moves with it, counters and what is sent before included."""
    target = from_toml(
        f'[request]\nurl = "{URL}"\n[effects]\nurl = "{URL}/count"\n[slow.before]\nurl = "http://127.0.0.1:9/faults"\n'
        '[failing.before]\nurl = "http://127.0.0.1:8000/faults"\n[slow.reached]\nurl = "http://127.0.0.1:8000/held"\n'
        '[expire.request]\nurl = "http://127.0.0.1:8000/later"'
    ).at("https://shop.example")
    assert target.request.url == "https://shop.example/orders"
    assert isinstance(target.counter, HttpCounter) and target.counter.url == "https://shop.example/orders/count"
    assert target.slow is not None and target.slow.before is not None and target.failing is not None
    assert target.slow.url == "https://shop.example/orders"
    assert target.slow.before.url == "http://127.0.0.1:9/faults"
    assert target.failing.before is not None and target.failing.before.url == "https://shop.example/faults"
    assert target.slow.reached is not None and target.slow.reached.url == "https://shop.example/held"
    assert target.expire_request is not None and target.expire_request.url == "https://shop.example/later"
    assert {one.url for one in target.templates} >= {"https://shop.example/held", "https://shop.example/later"}


def test_a_secret_comes_from_the_environment(monkeypatch) -> None:
    """R43, R22: a description bears no secrets; one that is not set stops the check."""
    target = from_toml(f'[request]\nurl = "{URL}"\nheaders = {{ Authorization = "Bearer {{{{env:SHOP_TOKEN}}}}" }}')
    with pytest.raises(CannotCheckError, match="SHOP_TOKEN"):
        target.request.fill(INTENT)
    monkeypatch.setenv("SHOP_TOKEN", "s3cret")
    assert target.request.fill(INTENT).values("authorization") == ["Bearer s3cret"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "request.url"),
        ("x = [", "no TOML"),
        (f'[request]\nurl = "{URL}"\nboby = "x"', "request.boby"),
        (f'[request]\nurl = "{URL}"\nbody = "x"\njson = {{}}', "two bodies"),
        (f'[request]\nurl = "{URL}"\nheaders = {{ A = 1 }}', "request.headers.A"),
        (f'[request]\nurl = "{URL}"\n[effects]\npointer = "/n"', "effects"),
        (f'[request]\nurl = "{URL}"\n[key]\nrequired = "yes"', "key.required"),
        (f'[request]\nurl = "{URL}"\n[expire]\nseconds = "soon"', "expire.seconds"),
        (f'[request]\nurl = "{URL}"\n[expire]\nseconds = nan', "expire.seconds"),
        (f'[request]\nurl = "{URL}"\n[expire]\nseconds = inf', "expire.seconds"),
        (f'[request]\nurl = "{URL}"\njson = {{ at = 2026-12-01 }}', "request.json"),
        (f'[request]\nurl = "{URL}"\njson = {{ amount = nan }}', "request.json"),
        (f'[request]\nurl = "{URL}"\n[effects]\nurl = "{URL}"\npointer = "n"', "no JSON pointer"),
        (f'secret_headers = "X-Token"\n[request]\nurl = "{URL}"', "secret_headers"),
        (f'secret_headers = [1]\n[request]\nurl = "{URL}"', "secret_headers"),
        (f'request = 1\nurl = "{URL}"', "url"),
        ('[request]\nurl = "{{uniq}}"', "uniq"),
    ],
)
def test_a_slip_in_a_file_is_named(text, said) -> None:
    """R43: whoever writes a description wrongly is told where, and nothing is sent."""
    with pytest.raises(CannotCheckError, match=said):
        from_toml(text).request.fill(INTENT)


# --- counting ---------------------------------------------------------------------------------------------------------


def test_effects_are_counted_in_an_answer() -> None:
    """R42, R43: a number, an array or each place where a text stands is what the service says it did."""
    said = Answer(200, (), b'{"a": [{"n": 3}, {"of": "x"}, {"of": "x"}]}')
    counted = [
        HttpCounter(URL, pointer=pointer, occurrences=text).count(INTENT, lambda request: said, 1.0)
        for pointer, text in (("/a/0/n", ""), ("/a", ""), ("", '"of": "x"'))
    ]
    assert counted == [3, 3, 2]
    for counter, answered in (
        (HttpCounter(URL, pointer="/b"), said),
        (HttpCounter(URL), Answer(500, (), b"1")),
        (HttpCounter(URL), Answer(200, (), b"<p>")),
        (HttpCounter(URL), Answer(200, (), b"1e999")),
        (HttpCounter(URL), Answer(200, (), b"[" * 100_000)),
        (HttpCounter(URL), Answer(200, (), b'"' + b"9" * 5000 + b'"')),
    ):
        with pytest.raises(CannotCheckError):
            counter.count(INTENT, lambda request, answered=answered: answered, 1.0)


def test_effects_are_counted_by_a_database_and_a_command(tmp_path) -> None:
    """R42, R43: a statement's first value and what a command prints are numbers of effects, or no count."""
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE orders (id TEXT)")
        connection.execute("INSERT INTO orders VALUES (?)", (INTENT.unique,))
    statement = "SELECT count(*) FROM orders WHERE id = '{{unique}}'"
    counter = SqlCounter(f"sqlite:///{file}", statement)
    assert counter.per_intent and counter.count(INTENT, nobody, 5.0) == 1
    assert counter.count(new_intent(), nobody, 5.0) == 0
    assert CommandCounter(f"{sys.executable} -c 'print(7)'").count(INTENT, nobody, 20.0) == 7
    for wrong in (
        SqlCounter(f"sqlite:///{file}", "SELECT x FROM nowhere"),
        SqlCounter("oracle://", statement),
        CommandCounter("/does/not/exist"),
        CommandCounter(f"{sys.executable} -c 'raise SystemExit(3)'"),
        CommandCounter(f"{sys.executable} -c 'print(None)'"),
    ):
        with pytest.raises(CannotCheckError):
            wrong.count(INTENT, nobody, 20.0)


def test_a_secret_of_a_counter_is_not_in_its_error(monkeypatch) -> None:
    """R22, R43: a command that fails is named as it was described, without what stood in the environment."""
    monkeypatch.setenv("SHOP_PASSWORD", "sesame-open")
    for command in (
        "/does/not/exist {{env:SHOP_PASSWORD}}",
        f"{sys.executable} -c 'exit(3)' {{{{env:SHOP_PASSWORD}}}}",
    ):
        with pytest.raises(CannotCheckError) as failed:
            CommandCounter(command).count(INTENT, nobody, 20.0)
        assert "sesame" not in str(failed.value) and "{{env:SHOP_PASSWORD}}" in str(failed.value)


def test_effects_are_counted_on_postgresql(postgresql_server: PostgresqlServer) -> None:
    """R42, R43: a PostgreSQL database is asked as a SQLite file is, and a per cent sign is one."""
    url = postgresql_server.create_database()
    statement = "SELECT count(*) FROM (VALUES ('{{unique}}'), ('x')) AS t (id) WHERE id LIKE '%-%'"
    assert SqlCounter(url, statement).count(INTENT, nobody, 20.0) == 1
    with pytest.raises(CannotCheckError, match="nowhere"):
        SqlCounter(url, "SELECT 1 FROM nowhere").count(INTENT, nobody, 20.0)


# --- curl -------------------------------------------------------------------------------------------------------------


def test_a_curl_command_is_a_target() -> None:
    """R43: what curl would send is what is sent, but for the key, which is new each time."""
    target = from_curl(
        f"curl -sS -X PUT {URL} -H 'Idempotency-Key: abc' -H 'X-A: 1' -u ann:secret -b 'c=1' "
        """--json '{"order": "{{unique}}"}' --max-time 3"""
    )
    request = target.request.fill(INTENT)
    assert (request.method, request.url, target.header) == ("PUT", URL, "Idempotency-Key")
    assert request.values("idempotency-key") == [INTENT.key]
    assert request.values("authorization") == ["Basic YW5uOnNlY3JldA=="]
    assert request.values("content-type") == ["application/json"] and request.values("cookie") == ["c=1"]
    assert json.loads(request.body) == {"order": INTENT.unique}


def test_a_curl_command_may_say_less() -> None:
    """R43: data makes a POST of a form, a key without a header gets the usual one, and a quoted one stays quoted."""
    request = from_curl("127.0.0.1:8000/x -d a=1 -d b={{unique}}").request.fill(INTENT)
    assert (request.method, request.url, request.body) == (
        "POST",
        "http://127.0.0.1:8000/x",
        f"a=1&b={INTENT.unique}".encode(),
    )
    assert request.values("content-type") == ["application/x-www-form-urlencoded"]
    assert request.values("idempotency-key") == [INTENT.key]
    quoted = from_curl(f"""curl {URL} -d x -H 'X-Idempotency-Key: "1"' """)
    assert quoted.request.fill(INTENT).values("x-idempotency-key") == [f'"{INTENT.key}"']


@pytest.mark.parametrize(
    "command", ["curl", "curl 'x", f"curl {URL} -d @file", f"curl {URL} --proxy x", f"curl {URL} -H x"]
)
def test_a_curl_command_that_is_not_understood_is_refused(command) -> None:
    """R43: an option that would change the request is never left out in silence."""
    with pytest.raises(CannotCheckError, match="curl"):
        from_curl(command)


@pytest.mark.parametrize(
    "line", ["-H 'Authorization Bearer sesame'", "--oauth2-bearer sesame", "--pinnedpubkey=sesame"]
)
def test_a_curl_command_that_is_refused_is_not_repeated(line) -> None:
    """R22, R43: what was not understood may be a token: the option is named, and not what stands behind it."""
    with pytest.raises(CannotCheckError) as refused:
        from_curl(f"curl {URL} -d x {line}")
    assert "sesame" not in str(refused.value) and line.split()[0].partition("=")[0] in str(refused.value)


# --- OpenAPI ----------------------------------------------------------------------------------------------------------

DOCUMENT = {
    "openapi": "3.1.0",
    "servers": [{"url": "http://127.0.0.1:8000/v1"}],
    "paths": {
        "/shops/{shop}/orders": {
            "parameters": [{"name": "shop", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "post": {
                "operationId": "order",
                "parameters": [
                    {"name": "x-idempotency-key", "in": "header", "required": True},
                    {"name": "X-Version", "in": "header", "required": True, "example": "2"},
                    {"name": "dry", "in": "query", "required": True, "schema": {"type": "boolean"}},
                ],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}},
            },
        }
    },
    "components": {
        "schemas": {
            "Order": {
                "type": "object",
                "required": ["cart", "lines", "amount", "kind", "who"],
                "properties": {
                    "cart": {"type": "string", "format": "uuid"},
                    "lines": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Line"}},
                    "amount": {"type": "integer", "minimum": 10, "multipleOf": 5},
                    "kind": {"enum": ["pickup", "post"]},
                    "who": {"allOf": [{"properties": {"name": {"type": "string"}}, "required": ["name"]}]},
                    "note": {"type": "string", "pattern": "^x$"},
                },
            },
            "Line": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "maximum": 0}}},
        }
    },
}


def written(tmp_path, document, name="api.json"):
    file = tmp_path / name
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


def test_an_operation_of_a_document_is_a_target(tmp_path) -> None:
    """R43: URL, headers and body come from the document, the smallest body that its schema allows."""
    target = from_openapi(written(tmp_path, DOCUMENT), "order", lines=(("Authorization", "Bearer x"),))
    request = target.request.fill(INTENT)
    assert (request.method, request.url) == ("POST", "http://127.0.0.1:8000/v1/shops/1/orders?dry=true")
    assert json.loads(request.body) == {
        "cart": INTENT.unique, "lines": [{"n": 0}], "amount": 10, "kind": "pickup", "who": {"name": INTENT.unique},
    }  # fmt: skip
    assert request.values("x-idempotency-key") == [INTENT.key] and request.values("x-version") == ["2"]
    assert request.values("authorization") == ["Bearer x"]
    assert from_openapi(written(tmp_path, DOCUMENT), "POST /shops/{shop}/orders").request == target.request.with_lines(
        (("Authorization", ""),)
    )


def test_a_document_may_be_yaml_and_elsewhere(tmp_path) -> None:
    """R43: YAML is as good as JSON, and --server says where a service is whose document does not."""
    text = """
        openapi: 3.0.0
        paths:
          /x:
            post:
              operationId: x
              parameters: [{ name: day, in: query, required: true, example: 2026-12-01 }]
              requestBody: { content: { application/json: { example: { a: 1, due: 2026-12-24 } } } }
    """
    file = written(tmp_path, text, "api.yaml")
    request = from_openapi(file, "x", server="http://127.0.0.1:1").request.fill(INTENT)
    assert request.url == "http://127.0.0.1:1/x?day=2026-12-01"
    assert json.loads(request.body) == {"a": 1, "due": "2026-12-24"}
    with pytest.raises(CannotCheckError, match="--server"):
        from_openapi(file, "x")


@pytest.mark.parametrize(
    ("document", "operation", "said"),
    [
        ({"paths": {}}, "x", "no operation"),
        ({"paths": ["/x"]}, "x", "not as OpenAPI"),
        ({"paths": {"/x": {"post": "x"}}}, "x", "not as OpenAPI"),
        ({}, "x", "no OpenAPI"),
        ("{", "x", "neither"),
        (DOCUMENT, "other", "it has order"),
        ({**DOCUMENT, "components": {}}, "order", "has no #/components"),
    ],
)
def test_a_document_that_lacks_something_is_refused(tmp_path, document, operation, said) -> None:
    """R43: what a request cannot be made of is named."""
    with pytest.raises(CannotCheckError, match=said):
        from_openapi(written(tmp_path, document), operation)
