"""What is installed brings the page's files, the JavaScript client among them, whichever way it is installed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from twicesafe.demo.stage import page_files

ROOT = Path(__file__).parents[2]
MODULE = (ROOT / "js" / "twicesafe.js").read_bytes()


def build(source: Path, kind: str, target: Path) -> Path:
    """Build with what pyproject.toml names, which is installed here."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)]
    ran = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (built,) = target.iterdir()
    return built


def page_in(wheel: Path) -> dict[str, bytes]:
    """The files of the page, by name."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("twicesafe/demo/page/")]
        return {name.rpartition("/")[2]: archive.read(name) for name in names}


def test_the_sources_serve_the_module_itself() -> None:
    """R41: from an editable install the page gets the one module there is."""
    assert page_files()["/twicesafe.js"] == (MODULE, "text/javascript; charset=utf-8")


def test_a_wheel_has_the_module(tmp_path: Path) -> None:
    """R41: a wheel, built from the repository or from the source archive, has the module and the rest of the page."""
    wheel = build(ROOT, "wheel", tmp_path / "wheel")
    archive = build(ROOT, "sdist", tmp_path / "archive")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = build(unpacked, "wheel", tmp_path / "again")
    here = {path.name: path.read_bytes() for path in (ROOT / "src/twicesafe/demo/page").iterdir()}
    assert page_in(wheel) == page_in(again) == here
    assert here["twicesafe.js"] == MODULE
