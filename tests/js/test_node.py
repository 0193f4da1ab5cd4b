"""The JavaScript client on Node.js: its own tests, its types, and the examples of its document."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import twicesafe

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = sorted(HERE.glob("*.test.js"))


def node(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("node")
    assert program is not None, "install Node.js 18 or later"
    return subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_rules_hold_in_javascript(file: Path) -> None:
    """R33-R41, I3, I6, I8, K: every test of this file passes, and there are some; see the file for each."""
    ran = node("--test", "--test-reporter=tap", str(file))
    counted = dict(
        line.split()[1:] for line in ran.stdout.splitlines() if line.startswith("# ") and line.count(" ") == 2
    )
    assert ran.returncode == 0, "\n".join(ran.stdout.splitlines()[-200:]) + ran.stderr
    assert int(counted["pass"]) >= 5
    assert [counted[name] for name in ("fail", "cancelled", "skipped", "todo")] == ["0"] * 4


def test_the_package_is_what_it_says() -> None:
    """R41: one module without dependencies, in this package's version, whose files are there."""
    package = json.loads((ROOT / "js" / "package.json").read_text("utf-8"))
    assert package["version"] == twicesafe.__version__
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & package.keys()
    entry = package["exports"]["."]
    assert set(package["files"]) == {entry["types"].removeprefix("./"), entry["default"].removeprefix("./")}
    assert all((ROOT / "js" / name).is_file() for name in package["files"])
    text = (ROOT / "js" / "twicesafe.js").read_text("utf-8")
    assert "import " not in text and "require(" not in text


def test_the_types_are_the_modules() -> None:
    """R41: TypeScript's strictest settings take the declarations, what they allow, and none of what they forbid."""
    compiler = HERE / "types" / "node_modules" / "typescript" / "bin" / "tsc"
    assert compiler.exists(), f"npm install --prefix {compiler.parents[3]} --no-package-lock"
    ran = node(str(compiler), "--project", str(HERE / "types"))
    assert (ran.returncode, ran.stdout) == (0, "")


def test_the_types_name_what_is_exported() -> None:
    """R41: every value that the declarations name is exported by the module, and the other way round."""
    text = (ROOT / "js" / "twicesafe.d.ts").read_text("utf-8")
    declared = set(re.findall(r"^export (?:class|function|const) (\w+)", text, re.MULTILINE))
    ran = node("--eval", "import('./js/twicesafe.js').then((all) => console.log(Object.keys(all).join(' ')))")
    assert declared == set(ran.stdout.split()) != set()
