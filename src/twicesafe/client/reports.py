"""The key and the attempts, found on whatever came out of an operation: a response, an exception, an outcome."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, Protocol, runtime_checkable

from twicesafe.core.outcome import Rejected, Report, Succeeded, Unknown

EXTENSION: Final = "twicesafe"
"""Where a response's extensions hold its report."""

_ATTRIBUTE: Final = "twicesafe_report"


def report_of(thing: object) -> Report | None:
    """The report of a response, an outcome, or an exception that left an operation; None where there was none."""
    if isinstance(thing, (Succeeded, Rejected, Unknown)):
        return Report(thing.key, thing.attempts)
    found = getattr(thing, _ATTRIBUTE, None)
    if found is None:
        extensions = getattr(thing, "extensions", None)
        found = extensions.get(EXTENSION) if isinstance(extensions, dict) else None
    if isinstance(found, Reporting):
        return found.report()
    return found if isinstance(found, Report) else None


@runtime_checkable
class Reporting(Protocol):
    """What makes a report when it is asked for: most are not."""

    def report(self) -> Report:
        """What is known by now."""


def sign_response(response: Any, report: Report) -> None:
    """Put the report on a response: where its library has a place for such things, or as an attribute."""
    extensions = getattr(response, "extensions", None)
    if isinstance(extensions, dict):
        extensions[EXTENSION] = report
    else:
        setattr(response, _ATTRIBUTE, report)


def sign_error(error: BaseException, report: Report) -> None:
    """Put the report on an exception. Those that take no attributes go without."""
    with suppress(AttributeError, TypeError):
        setattr(error, _ATTRIBUTE, report)
