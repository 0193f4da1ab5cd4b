"""The command line: what it says, and with which status it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

import twicesafe as package
from tests.cli.running import command, twicesafe, twicesafe_within

COMMANDS = (("demo",), ("storm",), ("schema", "apply"), ("schema", "print"), ("stores", "check"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_teaches_by_example(command: tuple[str, ...]) -> None:
    """House: each command's help shows how it is called and what its exit status means."""
    ran = twicesafe_within(*command, "--help")
    assert ran.status == 0
    assert f"twicesafe {' '.join(command)}" in ran.out.partition("Examples:")[2]
    assert "Exit status:" in ran.out


def test_help_of_the_program_names_every_command() -> None:
    """House: the program's help shows an example of every command."""
    ran = twicesafe("--help")
    assert ran.status == 0
    examples = ran.out.partition("Examples:")[2]
    assert [command for command in COMMANDS if f"twicesafe {' '.join(command)}" not in examples] == []


def test_version() -> None:
    """House: the version is the package's own."""
    assert twicesafe("--version") == (0, f"twicesafe {package.__version__}\n", "")


@pytest.mark.parametrize(
    "wrong",
    [("storm", "--intents", "0"), ("storm", "--seed", "seven"), ("storm", "--servers", "0"), ("sturm",), ("schema",)],
    ids=" ".join,
)
def test_a_wrong_option_is_refused_before_anything_is_done(wrong: tuple[str, ...]) -> None:
    """House: what cannot be asked for ends with status 2 and an explanation."""
    ran = twicesafe_within(*wrong)
    assert ran.status == 2
    assert "Error" in ran.err or "Usage" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("storm", "--store", "mysql://app:hunter2@localhost/shop"),
        ("schema", "apply", "--store", "mysql://app:hunter2@localhost/shop"),
        ("schema", "print", "--store", "redis://app:hunter2@localhost/0"),
        ("storm", "--store", "postgresql://app:hunter2@127.0.0.1:1/shop"),
        ("schema", "apply", "--store", "postgresql://app:hunter2@127.0.0.1:1/shop"),
        ("stores", "check", "nosql://app:hunter2@localhost/shop"),
        ("stores", "check", "postgresql://app:hunter2@127.0.0.1:1/shop"),
        ("stores", "check", "mysql://app:hunter2@127.0.0.1:1/shop"),
        ("stores", "check", "redis://app:hunter2@127.0.0.1:1"),
    ],
    ids=lambda arguments: f"{' '.join(arguments[:2])} {arguments[-1].partition(':')[0]}",
)
def test_an_error_is_one_line_without_the_password(arguments: tuple[str, ...]) -> None:
    """R22: a store that is unknown or out of reach is said so in one line, with status 2 and without its password."""
    ran = twicesafe_within(*arguments)
    assert (ran.status, ran.out) == (2, "")
    *progress, line = ran.err.splitlines()
    assert line.startswith("twicesafe: ")
    assert len(progress) <= 2
    assert "hunter2" not in ran.err


@pytest.mark.parametrize("command", [("storm", "--store"), ("schema", "apply", "--store"), ("demo", "--file")])
def test_a_file_that_is_no_database_is_said_so(command: tuple[str, ...], tmp_path: Path) -> None:
    """House: a file of another kind is left as it is, with status 2 and one line that names it."""
    file = tmp_path / "letter.txt"
    file.write_text("Dear Sir or Madam, " * 100)
    ran = twicesafe(*command, f"sqlite:///{file}" if "--store" in command else str(file))
    assert file.read_text() == "Dear Sir or Madam, " * 100
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines()[-1].startswith("twicesafe: ")
    assert "letter.txt" in ran.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("missing", "arguments", "status", "extra"),
    [("httpx2", "storm", 2, "storm"), ("h11", "demo", 2, "demo"), ("typer", "demo", 1, "cli")],
)
def test_a_missing_package_is_named_with_its_extra(missing: str, arguments: str, status: int, extra: str) -> None:
    """House: where an optional package is not installed, one line says which, and what to install."""
    code = f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = [{arguments!r}]\n"
    code += "from twicesafe.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (status, "")
    assert ran.stderr == f"twicesafe: the package {missing} is missing: pip install 'twicesafe[{extra}]'\n"


def test_the_demo_says_where_it_is_and_ends_when_told(tmp_path: Path) -> None:
    """House: the demo prints its address, serves there, and ends with status 0 on SIGINT."""
    with subprocess.Popen(
        command("demo", "--port", "0", "--file", str(tmp_path / "payments.db")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = next(word for line in process.stdout for word in line.split() if word.startswith("http://"))
            with urlopen(address, timeout=30) as page:
                assert page.status == 200
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, "Traceback" in err) == (0, False)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/charges", "https://shop.example"])
def test_a_check_of_an_address_says_what_it_starts_from(address: str) -> None:
    """R43: an address where a description belongs is told what to give instead, in one line, and nothing is sent."""
    ran = twicesafe("check", address)
    assert (ran.status, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert "--openapi or --curl" in line
    assert "--server" in line
