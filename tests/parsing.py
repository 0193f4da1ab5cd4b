"""ast.parse, undisturbed.

Whoever formats a traceback parses the lines that it shows: a test whose subject logs an exception, say. CPython 3.11
counts the depth of that once for all threads; where the garbage collector runs in the middle of it and lets another
thread parse, one of the two ends with a SystemError.
"""

from __future__ import annotations

import ast
import gc
from functools import wraps
from typing import Any, Final

_PARSE: Final = ast.parse


@wraps(_PARSE)
def parse(*arguments: Any, **named: Any) -> Any:
    """ast.parse, without the collector."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return _PARSE(*arguments, **named)
    finally:
        if enabled:
            gc.enable()


def pytest_configure() -> None:
    """For everybody, pytest itself and the libraries under test among them."""
    ast.parse = parse
