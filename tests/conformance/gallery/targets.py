"""What a check is told of a server of the gallery."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

from twicesafe.conformance.target import Target
from twicesafe.conformance.target_file import from_toml

HERE: Final = Path(__file__).parent
NOTES: Final = """
[request]
method = "POST"
url = "ADDRESS/notes/{{unique}}"
headers = { Authorization = "Bearer shop-secret", X-Account = "shop", Content-Type = "text/plain" }
body = "A note of {{unique}}, which may be cut off anywhere and is a note all the same."

[key]
required = true

[effects]
url = "ADDRESS/effects?ref={{unique}}"
pointer = "/count"
"""


def orders(port: int, *, profile: str = "ietf", control: int | None = None) -> Target:
    """Of one that takes orders. `control`: where it can be killed and started again."""
    text = (HERE / "target.toml").read_text(encoding="utf-8")
    if control is not None:
        text += f"[server]\nrestart = {_told(control)!r}\n"
    return _target(f"profile = {profile!r}\n{text}", port)


def notes(port: int) -> Target:
    """Of one that takes notes."""
    return _target(NOTES, port)


def _target(text: str, port: int) -> Target:
    return from_toml(text.replace("ADDRESS", f"http://127.0.0.1:{port}"))


def _told(port: int) -> str:
    return shlex.join([sys.executable, "-I", "-S", str(HERE / "tell.py"), str(port), "/"])
