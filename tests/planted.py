"""What may reach no log: keys, secrets and passwords that the suite's own fixtures use, looked for in every test.

Every event is looked at that the log is told of, at whatever level, and every record of the package's logger. A test in
which one holds a whole key, a secret or a password fails, whatever else it proves (R22).
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any, Final

import pytest

from twicesafe import observe

PLANTED: Final = {
    "k-0001-0001-0001": "tests/shells/probe.py",
    "cart-17-of-a-customer-0123456789": "tests/client/test_watching.py",
    "8e03978e-40d5-43e8-bc93-6894a57f9324": "tests/cli/test_keys.py",
    "import-2026-10": "tests/functions/test_once_async.py",
    "sub_123:2026-10": "tests/functions/test_once.py",
    "correct horse battery": "tests/dashboard/place.py",
    "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": "tests/core/test_signatures.py",
}
"""Secret -> a file of the suite whose fixtures use it. Passwords of servers, which are drawn, come while tests run."""

_met: Final[set[str]] = set(PLANTED)
_found: Final[list[str]] = []


def search(said: str) -> None:
    """Take note of whatever secret is in a text."""
    _found.extend(f"{secret[:4]}... in {said.replace(secret, '[HERE]')[:200]!r}" for secret in _met if secret in said)


class Searching(logging.Filter):
    """Looks at records as they would be written, and lets them pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.exc_info:
            text += logging.Formatter().formatException(record.exc_info)
        search(text)
        return True


class Wakeful:
    """The logger of events, which looks at those that are below its level, too."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as logging names it
        return True

    def log(self, level: int, message: str, *arguments: object, extra: dict[str, object] | None = None) -> None:
        search(f"{message % arguments} {extra}")
        self._logger.log(level, message, *arguments, extra=extra)


def pytest_configure(config: pytest.Config) -> None:
    logger = logging.getLogger("twicesafe")
    if not any(isinstance(one, Searching) for one in logger.filters):
        logger.addFilter(Searching())
        observe._log = Wakeful(logger)  # type: ignore[misc,assignment]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, object, object]:
    made = yield
    password = getattr(made, "_password", "")
    if isinstance(password, str) and len(password) > 8:
        _met.add(password)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    _found.clear()
    result = yield
    found, _found[:] = list(_found), []
    assert not found, f"what may reach no log did: {found[:3]}"
    return result
