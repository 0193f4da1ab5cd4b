"""What people write to point the checker at an API."""

from __future__ import annotations

from hypothesis import given

from tests.fuzz.bounded import bounded, pieces, texts
from twicesafe.conformance.curl import from_curl
from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.target_file import from_toml
from twicesafe.conformance.templates import new_intent

INTENT = new_intent()

toml = pieces(
    b"[request]\n", b'url = "http://127.0.0.1/"\n', b"json = { a = 1 }\n", b"[", b"]", b"\n", b"[slow.after]\n",
    b'headers = { A = "{{unique}}" }\n', b"[expire]\nrequest = {}\n", b"=", b'"', b"[key]\nrequired = 1\n", b"x = 1\n",
    b"[effects]\n", b'pointer = "/a"\n', b"1979-05-27",
).map(lambda data: data.decode(errors="replace"))  # fmt: skip
curls = pieces(
    b"curl ", b"http://127.0.0.1/ ", b"-d ", b"-H ", b"'", b'"', b"a: b", b"x=1 ", b"--json ", b"{{key}}", b"-X ",
    b"\\", b"-u a:b ", b"--data-raw ", b"=",
).map(lambda data: data.decode(errors="replace"))  # fmt: skip


@bounded
@given(toml | texts)
def test_a_file_is_a_target_or_refused(text: str) -> None:
    """R43: a description in TOML is a request with a place for its key, or what is wrong with it is said."""
    try:
        target = from_toml(text)
        target.request.fill(INTENT)
    except CannotCheckError:
        return
    assert target.request.names_key


@bounded
@given(curls | texts)
def test_a_command_is_a_target_or_refused(text: str) -> None:
    """R43: a curl command is a request with a place for its key, or what is not understood of it is said."""
    try:
        target = from_curl(text)
        target.request.fill(INTENT)
    except CannotCheckError:
        return
    assert target.request.names_key
