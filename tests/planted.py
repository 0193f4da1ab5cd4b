"""What may be shown to nobody: keys, bodies, secrets and passwords that the suite uses, looked for in every test.

Every log record is looked at, every event, at whatever level, every span, every error of the package's own classes,
every problem document and every page of the dashboard (see tests/overheard.py for where). A test in which one of them
holds a whole key, a body, a secret or a password fails, whatever else it proves (R22). Besides what is listed here,
each key and each body that a test sends is planted by being sent.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final

import pytest

from tests import overheard

PLANTED: Final = {
    "k-0001-0001-0001": "tests/shells/probe.py",
    "cart-17-of-a-customer-0123456789": "tests/client/test_watching.py",
    "8e03978e-40d5-43e8-bc93-6894a57f9324": "tests/cli/test_keys.py",
    "import-2026-10": "tests/functions/test_once_async.py",
    "sub_123:2026-10": "tests/functions/test_once.py",
    "correct horse battery": "tests/dashboard/place.py",
    "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": "tests/core/test_signatures.py",
    "4242 4242 4242 4242": "tests/stores/test_sealed.py",
    "4111 1111 1111 1111": "tests/cli/test_outbox.py",
    "6f1c2d1e-8a3f-4a57-9a44-0d3a1f7c5b60": "tests/storm/test_proxy.py",
    "pl4nt3dv4lu3": "tests/telemetry/searched.py",
}
"""Secret -> a file of the suite whose fixtures use it. Passwords of servers, which are drawn, come while tests run."""

KEPT: Final = 64
"""Keys, and as many bodies, of one test that are looked for: the last ones."""
TELLING: Final = 7
"""Different characters that a key or a body must have, so that it stands in no text by chance."""

EXAMPLE: Final = "a UUID such as 8e03978e-40d5-43e8-bc93-6894a57f9324"
"""What an error says of keys that must be UUIDs: the draft's own, which fixtures use too."""

_met: Final[dict[str, None]] = dict.fromkeys(PLANTED)
_keys: Final[dict[str, None]] = {}
_bodies: Final[dict[str, None]] = {}
_found: Final[list[str]] = []


def search(where: str, said: str) -> None:
    """Take note of whatever secret is in a text, as it is or with its quotes escaped."""
    plain = (said.replace("\\", "") if "\\" in said else said).replace(EXAMPLE, "")
    for secrets in (_met, _keys, _bodies):
        for secret in secrets.copy():
            at = plain.find(secret)
            if at >= 0:
                around = plain[max(0, at - 100) : at + len(secret) + 100]
                _found.append(f"{where}: {secret[:4]}... in {around!r}".replace(secret, "[HERE]"))


def sent_key(key: str) -> None:
    """A key that is long enough to be hinted at."""
    _keep(_keys, key, 16)


def sent_body(body: bytes) -> None:
    """A body, from its beginning."""
    _keep(_bodies, body[:200].decode("latin-1").replace("\\", ""), 12)


def _keep(those: dict[str, None], text: str, least: int) -> None:
    if len(text) >= least and text not in those and len(set(text)) >= TELLING:
        those[text] = None
        # Tests send from many threads, and another may be at it: then one more is kept.
        with suppress(RuntimeError, StopIteration):
            if len(those) > KEPT:
                those.pop(next(iter(those)), None)


def told() -> str:
    """What was found since the last time, and that it is forgotten now."""
    found, _found[:] = list(dict.fromkeys(_found)), []
    return "; ".join(found[:3])


def pytest_configure() -> None:
    overheard.in_the_log(search)


def pytest_collection_finish() -> None:
    overheard.in_errors(search)
    overheard.in_problems(search)
    overheard.in_spans(search)
    overheard.on_pages(search)
    overheard.when_sent(sent_key, sent_body)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, object, object]:
    made = yield
    password = getattr(made, "_password", "")
    if isinstance(password, str) and len(password) > 8:
        _met[password] = None
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    found = told()
    assert not found, f"what may be shown to nobody was: {found}"
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    found = told()
    _keys.clear()
    _bodies.clear()
    assert not found, f"what may be shown to nobody was, at the end of the test: {found}"
    return result
