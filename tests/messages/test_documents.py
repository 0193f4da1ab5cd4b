"""The examples of the documents on messages do what they say."""

from __future__ import annotations

import gc
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/outbox.md", "docs/inbox.md"])
def test_the_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R28, R29: read from top to bottom, each page's examples run, and what they assert holds."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.+?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, Any] = {"__name__": page}
    with warnings.catch_warnings():
        # The examples leave it to the interpreter's end to close what they have opened.
        warnings.simplefilter("ignore", ResourceWarning)
        for block in blocks:
            exec(compile(block, page, "exec", dont_inherit=True), names)
        if "connection" in names:
            names["connection"].close()
        names.clear()
        gc.collect()
