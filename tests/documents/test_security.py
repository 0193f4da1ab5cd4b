"""What docs/threat-model.md promises of the code as it stands, and that what it names is there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from tests.house.files import repository
from tests.house.sources import modules
from twicesafe.core.policy import Policy

SQL = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|DROP|ALTER|NOTIFY|LISTEN|UNLISTEN|PRAGMA|SET|SAVEPOINT"
    r"|ROLLBACK TO|GRANT|TRUNCATE|KILL|WHERE|ATTACH|VALUES)\b"
)
SENDS = {"execute", "executemany", "executescript", "fetch", "fetchrow", "fetchval"}

OWN_NAME = "a name that is made here, of letters and digits"
NUMBER = "a whole number of ours"
PLAIN_WORD = "a word of the checks', which is asserted to be one"
FIELD = "attributes of DynamoDB's, which are named here; values are parameters"
WRITTEN: dict[tuple[str, str], str] = {
    ("twicesafe.checking.databases", "name"): OWN_NAME,
    ("twicesafe.checking.databases", "table"): "one of two names that stand there",
    ("twicesafe.checking.databases", "now"): NUMBER,
    ("twicesafe.checking.databases", "_text(name)"): PLAIN_WORD,
    ("twicesafe.checking.databases", "_text(effect)"): PLAIN_WORD,
    ("twicesafe.client.intent_file", "APPLICATION"): NUMBER,
    ("twicesafe.client.intent_file", "LAYOUT"): NUMBER,
    ("twicesafe.django.tables", "table"): "the tables of a version, as they stand in the code",
    ("twicesafe.django.tables", "self.version"): NUMBER,
    ("twicesafe.stores.dynamodb_requests", "assigned(attributes)"): FIELD,
    ("twicesafe.stores.dynamodb_requests", "', '.join([f'#{name}' for name in gone])"): FIELD,
    ("twicesafe.stores.dynamodb_steps", "assigned(attributes)"): FIELD,
    ("twicesafe.stores.dynamodb_steps", "assigned(ends)"): FIELD,
    ("twicesafe.stores.dynamodb_steps", "IN_TRANSACTION"): FIELD,
    ("twicesafe.stores.mysql", "seconds"): NUMBER,
    ("twicesafe.stores.postgresql_notices", "CHANNEL"): "the channel's name, a constant",
    ("twicesafe.stores.postgresql_notices", "payload"): "hexadecimal digits of a digest, or a constant",
    ("twicesafe.stores.psycopg", "CHANNEL"): "the channel's name, a constant",
    ("twicesafe.stores.sql.daily", "TABLE"): "the table's name, a constant",
    ("twicesafe.stores.sql.daily", "name"): "a partition's name, as the database quotes it",
    ("twicesafe.stores.sql.daily", "how"): "one of two words that stand there",
    ("twicesafe.stores.sql.daily", "day"): NUMBER,
    ("twicesafe.stores.sql.daily", "day + 1"): NUMBER,
    ("twicesafe.stores.sql.schema", "version.number"): NUMBER,
    ("twicesafe.stores.sql.schema", "clock"): "an expression of the dialect's, a constant",
    ("twicesafe.storm.mariadb", "DATABASE"): OWN_NAME,
    (
        "twicesafe.storm.mariadb",
        "self._password",
    ): "of a server that lives as long as the storm, made of random letters",
    ("twicesafe.storm.mariadb", "who"): OWN_NAME,
}
"""What is written into the text of a statement: module and expression -> why it can be nothing else."""

PLAINLY: dict[tuple[str, str], str] = {
    ("twicesafe.client.intent_runs", "found.key_digest"): "both are the caller's own, in its own process",
    ("twicesafe.core.lookup", "record.fingerprint"): "with a constant that is no secret",
    ("twicesafe.core.outgoing", "credentials"): "both are the caller's own, in its own process",
    ("twicesafe.core.outgoing", "self._credentials"): "the same",
    ("twicesafe.receiving", "signed"): "the id that was signed, after the signature was verified",
}
"""Comparisons that read like one of secrets: module and side -> why they need not take the same time."""

SECRET = re.compile(r"(^|_)(signature|signed|password|secret|hmac|mac|proof|fingerprint|credentials|key_digest)$")

CONSTANT_TIME = {
    "twicesafe.core.fingerprint": 2,
    "twicesafe.core.signatures": 1,
}
"""Where secrets meet what strangers sent: how many comparisons there are, at least."""


LOOKED_AT = ast.JoinedStr | ast.BinOp | ast.Call | ast.Compare | ast.Import | ast.ImportFrom | ast.Attribute


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """What these tests look at, of all modules, found in one walk."""
    return [
        (module, node) for module, tree in modules().items() for node in ast.walk(tree) if isinstance(node, LOOKED_AT)
    ]


def put_together(among: Iterable[ast.AST]) -> Iterator[tuple[str, list[ast.expr]]]:
    """Texts that are put together: what stands in them, and the expressions that are written into them."""
    for node in among:
        match node:
            case ast.JoinedStr(values=values):
                text = "".join(str(part.value) for part in values if isinstance(part, ast.Constant))
                yield text, [part.value for part in values if isinstance(part, ast.FormattedValue)]
            case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod() | ast.Add(), right=right):
                yield text, [right]
            case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=str(text))):
                yield text, [left]
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format"), args=args):
                yield text, args
            case _:
                pass


def test_no_statement_is_built_from_values() -> None:
    """R22: no text of SQL has anything written into it but names and numbers of ours, each with its reason."""
    found = {
        (module, ast.unparse(expression))
        for module, node in nodes()
        for text, expressions in put_together([node])
        if SQL.search(text)
        for expression in expressions
    }
    assert found - WRITTEN.keys() == set(), "write a parameter, or say in WRITTEN why it can be no stranger's"
    assert WRITTEN.keys() - found == set(), "no longer written: take it out of WRITTEN"


def test_no_statement_is_put_together_as_it_is_sent() -> None:
    """R22: what a driver is given is a text as it stands; `format` fills in names only where a store is checked."""
    wrong = []
    for module, node in nodes():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SENDS):
            continue
        for argument in node.args[:1]:
            parts = [one for _, one in put_together(ast.walk(argument))]
            unknown = [one for part in parts for one in part if (module, ast.unparse(one)) not in WRITTEN]
            formatted = isinstance(argument, ast.Call) and getattr(argument.func, "attr", "") == "format"
            if unknown or (formatted and module != "twicesafe.checking.databases"):
                wrong.append(f"{module}:{node.lineno}: {ast.unparse(argument)}")
    assert wrong == []


def test_secrets_are_compared_in_constant_time() -> None:
    """R22: what a stranger could guess byte by byte is compared by hmac.compare_digest, and never by `==`."""
    plainly = {
        (module, ast.unparse(side))
        for module, node in nodes()
        if not module.startswith("twicesafe.testing.")
        and isinstance(node, ast.Compare)
        and any(isinstance(one, ast.Eq | ast.NotEq) for one in node.ops)
        for side in (node.left, *node.comparators)
        if SECRET.search(getattr(side, "attr", getattr(side, "id", "")))
    }
    assert plainly - PLAINLY.keys() == set(), "use hmac.compare_digest, or say in PLAINLY why it is no matter"
    assert PLAINLY.keys() - plainly == set(), "no longer compared so: take it out of PLAINLY"
    counted = Counter(
        module for module, node in nodes() if isinstance(node, ast.Attribute) and node.attr == "compare_digest"
    )
    assert {module: counted[module] for module in CONSTANT_TIME if counted[module] < CONSTANT_TIME[module]} == {}


def test_nothing_that_is_stored_is_run() -> None:
    """R22: no module reads bytes back as code: no pickle and its kind, no eval, no YAML that makes objects."""
    wrong = []
    for module, node in nodes():
        match node:
            case ast.Import(names=names):
                loaded = {one.name.partition(".")[0] for one in names}
            case ast.ImportFrom(module=str(name), level=0):
                loaded = {name.partition(".")[0]}
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                loaded = {name}
            case ast.Call(func=ast.Attribute(value=ast.Name(id="yaml"), attr="load" | "unsafe_load" as name)):
                loaded = {name}
            case _:
                continue
        if loaded & RUNS and (module, *loaded) not in IN_ONE_PROCESS:
            wrong.append(f"{module}: {loaded}")
    assert wrong == []


RUNS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "eval", "exec", "load", "unsafe_load"}
IN_ONE_PROCESS = {("twicesafe.stores.memory_rows", "marshal")}
"""Where what is read was written by the same process, and lies nowhere else."""

MODEL = repository()[Path("docs/threat-model.md")]
LINES = re.findall(r"^\| (?!threat|---)(.+?) \| (.+?) \| (.+?) \|$", MODEL, re.MULTILINE)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0][:50])
def test_a_threat_names_what_keeps_it(line: tuple[str, str, str]) -> None:
    """House: each threat has a test that exists, a setting that exists, or says that nothing here keeps it."""
    keeper = line[2]
    tests = re.findall(r"`(tests/\S+?\.py)(?:::(\w+))?`", keeper)
    settings = re.findall(r"`Policy\.(\w+)`", keeper)
    assert tests or settings or keeper.startswith("not kept"), keeper
    for path, name in tests:
        assert re.search(rf"^(async )?def {name or 'test_'}", repository()[Path(path)], re.MULTILINE), f"no {name}"
    named = set(re.findall(r"`Policy\.(\w+)`", " ".join(line)))
    assert named <= {one.name for one in fields(Policy)}


def test_the_threat_model_has_its_lines() -> None:
    """House: the page is read as tables, so that no line goes unchecked."""
    assert len(LINES) > 30
    assert MODEL.count("\n| ") == len(LINES) + MODEL.count("\n| threat ")


def test_the_bill_of_materials_is_made_by_a_well_kept_tool() -> None:
    """House: with every change. `make audit` asks a database over the network, so that is for people to run."""
    makefile, project = repository()[Path("Makefile")], repository()[Path("pyproject.toml")]
    assert re.search(r"^sbom: .*## .*CycloneDX", makefile, re.MULTILINE)
    assert re.search(r"^audit: .*## ", makefile, re.MULTILINE)
    assert re.search(r'^security = \[.*"cyclonedx-bom.*"pip-audit', project, re.MULTILINE)
    assert re.findall(r"^make (\w+)$", repository()[Path(".ci/run")], re.MULTILINE) == ["lint", "sbom", "test"]
