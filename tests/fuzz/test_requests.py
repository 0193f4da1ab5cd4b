"""Requests on their way in: where a key may stand, and a body in whatever pieces it comes."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.bounded import bounded, octets, pieces
from twicesafe import Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.carriers import FormField, JsonMember, QueryParameter, body_may_carry, with_member
from twicesafe.core.keys import check_key
from twicesafe.core.media_type import media_type
from twicesafe.core.multipart import canonical_multipart, field_values
from twicesafe.core.presented import presented_key
from twicesafe.errors import InvalidKeyError, MissingKeyError
from twicesafe.stores.memory import AsyncMemoryStore

NAME = "key"
FORM, PARTS = b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=b"
FIELDS = (JsonMember(NAME), FormField(NAME), QueryParameter(NAME))
EVERYWHERE = Policy(fields=FIELDS)
REQUIRED = Policy(fields=FIELDS, required=True, empty_is_none=True)

types = st.one_of(
    st.sampled_from([b"application/json", b"application/x+json; charset=utf-8", FORM, PARTS, b""]),
    pieces(b"multipart/form-data", b"application/json", b"; boundary=", b"b", b'"', b";", b"charset", b"=", b"/"),
)
json_bodies = pieces(
    b"{", b"}", b'"key":', b'"key"', b":", b",", b'"abcd"', b"null", b"[", b"]", b"1e9", b'"\\u', b"NaN"
)
form_bodies = pieces(b"key=", b"&", b";", b"abcd", b"%6b", b"+", b"%", b"=")
part_bodies = pieces(
    b"--b", b"\r\n", b"--b\r\n", b"--b--", b'Content-Disposition: form-data; name="key"', b"\r\n\r\n", b"abcd", b":"
)
bodies = st.one_of(json_bodies, form_bodies, part_bodies, octets).flatmap(
    lambda body: st.sampled_from([body, gzip.compress(body)])
)
encodings = st.sampled_from([b"", b"gzip", b"deflate", b"identity", b"br", b"gzip, gzip"])


@bounded
@given(st.lists(pieces(b'"', b"abcd", b" ", b","), max_size=2), form_bodies, types, encodings, bodies, st.booleans())
def test_a_request_has_a_key_or_is_refused_by_name(
    lines: list[bytes], query: bytes, content_type: bytes, encoding: bytes, body: bytes, required: bool
) -> None:
    """R3, R5: wherever a key may stand, one is found that is valid, none is, or the request is refused."""
    policy = REQUIRED if required else EVERYWHERE
    try:
        key = presented_key(policy, lines, query=query, content_type=content_type, content_encoding=encoding, body=body)
    except (MissingKeyError, InvalidKeyError):
        return
    assert key is not None or not required
    if key is not None:
        assert check_key(key, policy.key) == key


@bounded
@given(
    st.lists(st.tuples(st.sampled_from([NAME, "a", "k\u0435y"]), st.sampled_from(["abcd", "efgh", "x y"])), max_size=4),
    st.sampled_from(["json", "form", "parts"]),
)
def test_a_member_is_found_by_its_name(members: list[tuple[str, str]], kind: str) -> None:
    """R5: of members, fields and parts those of the name count: one value is the key, two that differ are refused."""
    wanted = {value for name, value in members if name == NAME}
    if kind == "json":
        text = ",".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in members)
        content_type, body = b"application/json", b"{" + text.encode() + b"}"
    elif kind == "form":
        content_type = FORM
        body = "&".join(f"{name}={value.replace(' ', '+')}" for name, value in members).encode()
    else:
        content_type = PARTS
        body = b"".join(
            b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), value.encode())
            for name, value in members
        )
        body += b"--b--\r\n"
    assert body_may_carry(FIELDS, content_type)
    try:
        found = presented_key(EVERYWHERE, [], content_type=content_type, body=body)
    except InvalidKeyError:
        assert len(wanted) > 1
    else:
        assert {found} == (wanted or {None})


@bounded
@given(types, encodings, bodies)
def test_a_body_is_read_or_left_alone(content_type: bytes, encoding: bytes, body: bytes) -> None:
    """R8: what is well formed is taken apart, all else stays what it is; nothing of it is an error."""
    kind = media_type(content_type)
    values = field_values(content_type, body, NAME)
    found = canonical_multipart(content_type, encoding, body)
    assert kind is not None or (values is None and found is None)


@bounded
@given(json_bodies)
def test_a_member_is_put_in_front_or_refused(body: bytes) -> None:
    """R5: an object with a key put in names that key and has all else it had; what is no object is refused."""
    try:
        made = with_member(body, NAME, "abcd")
    except InvalidKeyError:
        return
    before, after = json.loads(body), json.loads(made)
    assert after == {NAME: "abcd", **before}
    assert made == body or made.startswith(body.partition(b"{")[0] + b'{"key":"abcd"')


@bounded
@given(
    st.lists(st.tuples(st.sampled_from([b"idempotency-key", b"content-type", b"x"]), octets), max_size=4),
    st.lists(octets, max_size=4),
    st.sampled_from([b"application/json", FORM, PARTS, b"text/plain"]),
    form_bodies,
)
def test_a_request_is_answered_and_its_body_arrives_as_it_was(
    headers: list[tuple[bytes, bytes]], chunks: list[bytes], content_type: bytes, query: bytes
) -> None:
    """R9, R4: in whatever pieces, the application gets every byte once, or the request gets a 4xx and runs nothing."""
    arrived: list[bytes] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        arrived.append(body)
        await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    asked = [("content-type", content_type)] if not any(name == b"content-type" for name, _ in headers) else []
    statuses = asyncio.run(_asked(application, [*headers, *((n.encode(), v) for n, v in asked)], chunks, query))
    assert len(statuses) == 2
    if statuses[0] == 201:
        assert arrived[0] == b"".join(chunks)
    else:
        assert statuses[0] in (400, 413) and arrived == []
    keyed = any(name == b"idempotency-key" for name, _ in headers) or len(arrived) == 1
    assert len(arrived) == 0 or keyed or len(arrived) == 2


async def _asked(application: Any, headers: list[tuple[bytes, bytes]], chunks: list[bytes], query: bytes) -> list[int]:
    """The statuses of a request and of its retry."""
    store = AsyncMemoryStore()
    safe = IdempotencyMiddleware(application, store, scope=lambda scope: "ann", policy=EVERYWHERE)
    statuses = []
    for _ in range(2):
        messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
        messages.append({"type": "http.request", "body": b"", "more_body": False})

        async def receive(left: list[Any] = messages) -> Any:
            if not left:
                await asyncio.Event().wait()
            return left.pop(0)

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": "/jobs",
            "raw_path": b"/jobs", "query_string": query, "headers": headers, "scheme": "http", "root_path": "",
        }  # fmt: skip
        await safe(scope, receive, send)
    await safe.drained()
    await store.aclose()
    return statuses
