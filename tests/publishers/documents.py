"""The examples of docs/publishers/brokers.md, each run on a real broker by the tests of its publisher."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/publishers/brokers.md"


def run_example(heading: str, *changes: tuple[str, str]) -> None:
    """Run the section's blocks, after those at the top of the page, with what has to be changed for the test."""
    top, *sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (section,) = [section for section in sections if section.startswith(f"{heading}\n")]
    source = "\n".join(re.findall(r"^```python\n(.*?)^```", top + section, re.MULTILINE | re.DOTALL))
    for shown, run in changes:
        assert shown in source, shown
        source = source.replace(shown, run)
    exec(compile(source, f"{PAGE.name}: {heading}", "exec"), {"__name__": "__main__"})
