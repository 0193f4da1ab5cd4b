"""What those get who have no checkout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from tests.house.sources import ROOT


def test_an_sdist_holds_files_and_no_links(tmp_path: Path) -> None:
    """House: who unpacks an sdist, on whatever system, has the demo's script in the page and the pages it links to."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=100,
    )
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        kept = {member.name.partition("/")[2]: member for member in archive}
        script = archive.extractfile(kept["src/twicesafe/demo/page/twicesafe.js"])
        assert script is not None
        assert script.read() == (ROOT / "js" / "twicesafe.js").read_bytes()
    assert [name for name, member in kept.items() if not member.isfile()] == []
    assert {"SECURITY.md", "CONTRIBUTING.md", "conftest.py", "src/twicesafe/py.typed"} <= set(kept)
