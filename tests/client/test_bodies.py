"""Bodies that can be sent once, and have to be sent twice."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import niquests
import pytest
import requests

from tests.client.bindings import QUICK, Binding, Hours
from tests.client.scripted import answer, reset_before_reading, serving
from twicesafe.client import BodyNotRepeatableError
from twicesafe.client.requests import RetryAdapter, send

DOWN_THEN_FINE = (answer(503), answer(200))
KEY = {"Idempotency-Key": "k-1"}


def pieces() -> Iterator[bytes]:
    yield from (b"one ", b"two ", b"three")


async def apieces() -> AsyncIterator[bytes]:
    for piece in pieces():
        yield piece


class Pipe:
    """Read once, from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int = -1) -> bytes:
        taken, self._data = (self._data, b"") if size < 0 else (self._data[:size], self._data[size:])
        return taken

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.read(4):
            yield piece


class AsyncPipe:
    """Pipe, for asyncio."""

    def __init__(self, data: bytes) -> None:
        self.pipe = Pipe(data)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := self.pipe.read(4):
            yield piece


def standing_at_ten() -> io.BytesIO:
    file = io.BytesIO(b"0123456789what is left")
    file.seek(10)
    return file


SYNC_BODIES = {
    "generator": (pieces, b"one two three"),
    "file": (standing_at_ten, b"what is left"),
    "pipe": (lambda: Pipe(b"unseekable"), b"unseekable"),
}
ASYNC_BODIES = {
    "generator": (apieces, b"one two three"),
    "pipe": (lambda: AsyncPipe(b"unseekable"), b"unseekable"),
}


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("name", [*SYNC_BODIES])
def test_the_second_attempt_sends_the_same_bytes(binding: Binding, name: str, method: str) -> None:
    """I8, K: generators, files where they stood and pipes: what the first attempt sends, the second sends too."""
    make, body = SYNC_BODIES[name]
    if binding.asynchronous and (binding.typed is False or name != "file"):
        make, body = ASYNC_BODIES.get(name, ASYNC_BODIES["pipe"])
    with serving(*DOWN_THEN_FINE) as server:
        result = binding.perform(
            lambda client: client.build_request(method, server.origin, content=make(), headers=KEY), Hours(), QUICK
        )
        assert [(hit.body, hit.key) for hit in server.hits] == [(body, "k-1")] * 2
    assert result.response.status_code == 200


def test_a_file_on_disk_is_sent_from_where_it_stood(tmp_path: Path, binding: Binding) -> None:
    """I8, K: a real file at offset 10, in a form with a file in it, with and without a position of its own."""
    path = tmp_path / "upload.bin"
    path.write_bytes(b"0123456789what is left")
    with serving(*DOWN_THEN_FINE) as server, path.open("rb") as file:
        file.seek(10)
        in_a_form = binding.asynchronous and not binding.typed
        given: dict[str, Any] = {"files": {"upload": file}} if in_a_form else {"content": file}
        result = binding.perform(
            lambda client: client.build_request("PUT", server.origin, headers=KEY, **given), Hours(), QUICK
        )
        first, second = server.hits
    assert result.response.status_code == 200
    assert first.body == second.body
    assert b"what is left" in first.body if in_a_form else first.body == b"what is left"
    assert first.key == second.key == "k-1"


def over(binding: Binding, make: Callable[[], Any], **headers: str) -> Any:
    """A body over the limit."""
    with serving() as server:
        result = binding.perform(
            lambda client: client.build_request("POST", server.origin, content=make(), headers={**KEY, **headers}),
            Hours(),
            QUICK.but(body_limit=12),
        )
        assert server.hits == []
    return result


def test_a_stream_that_is_too_large_is_refused_before_the_first_send(binding: Binding) -> None:
    """I8, K: a clear error and no request, rather than a second attempt with an empty body."""
    result = over(binding, apieces if binding.asynchronous else pieces)
    assert isinstance(result.error, BodyNotRepeatableError) and "12 bytes" in str(result.error)
    assert result.report.key == "k-1"
    untouched = Pipe(b"twelve and more")
    apart = AsyncPipe(b"")
    apart.pipe = untouched
    result = over(binding, lambda: apart if binding.asynchronous else untouched, **{"Content-Length": "15"})
    assert isinstance(result.error, BodyNotRepeatableError)
    assert untouched.read() == b"twelve and more"


def test_a_body_that_is_never_repeated_streams_as_it_is(binding: Binding) -> None:
    """R36: without a key nothing is held in memory; and what was not sent yet can still be sent."""
    make = apieces if binding.asynchronous else pieces
    with serving(answer(200), listening=False) as server:
        hours = Hours(asleep=server.listen)
        result = binding.perform(
            lambda client: client.build_request("POST", server.origin, content=make()),
            hours,
            QUICK.but(body_limit=1),
        )
        assert [hit.body for hit in server.hits] == [b"one two three"]
        assert server.hits[0].header("transfer-encoding") == "chunked"
    assert result.response.status_code == 200 and len(hours.waits) == 1


def test_a_stream_that_went_out_without_a_key_is_not_sent_again(binding: Binding) -> None:
    """K: the connection broke and nobody can tell how much of it was read: one attempt, no second."""
    make = apieces if binding.asynchronous else pieces
    with serving(reset_before_reading) as server:
        result = binding.perform(
            lambda client: client.build_request("POST", server.origin, content=make()), Hours(), QUICK
        )
        assert server.hits == []
    assert len(result.report.attempts) == 1 and isinstance(result.error, binding.library.TransportError)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("library", [requests, niquests], ids=lambda library: library.__name__)
def test_authentication_that_asks_again_winds_nothing_back(library: Any, adapted: bool) -> None:
    """I8, K: digest authentication has noted where a file stood; what is in memory by then is sent again as it is."""
    challenge = answer(401, 'WWW-Authenticate: Digest realm="shop", nonce="n", qop="auth", algorithm=MD5')
    with serving(challenge, answer(200)) as server, library.Session() as session:
        session.trust_env = False
        session.mount("http://", RetryAdapter(library.adapters.HTTPAdapter()))
        asked = library.Request(
            "PUT", server.origin, data=standing_at_ten(), auth=library.auth.HTTPDigestAuth("a", "b")
        )
        if adapted:
            status = session.send(session.prepare_request(asked)).status_code
        else:
            status = send(session, asked, policy=QUICK).raise_for_outcome().status_code
        assert [hit.body for hit in server.hits] == [b"what is left"] * 2
    assert status == 200
