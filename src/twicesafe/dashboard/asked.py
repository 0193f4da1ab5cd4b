"""What is made of what a request says: whose it is, by which cookie, and where the dashboard is mounted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from twicesafe.errors import ConfigurationError

COOKIE: Final = "twicesafe_dashboard"
LONGEST_NAME: Final = 255
"""Characters of what the trail calls somebody."""


def name_given(given: object) -> str:
    """Who asks, as the trail can keep it; empty for nobody. ConfigurationError for what is no name."""
    if not given:
        return ""
    if not isinstance(given, str):
        raise ConfigurationError(
            f"who gives a name, or None for whoever may not look, and not a {type(given).__name__}"
        )
    return given.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")[:LONGEST_NAME]


def cookie_name(host: str) -> str:
    """The cookie's name, by what the request calls its host.

    Cookies know no ports: two dashboards on one host would end each other's visits.
    """
    port = host.rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() and len(port) <= 5 else COOKIE


def root_of(scope: Mapping[str, Any]) -> str:
    """What addresses begin with where the dashboard is mounted."""
    root: str = scope.get("root_path", "").strip("/")
    # With two slashes it would name another host.
    return f"/{quote(root)}" if root else ""
