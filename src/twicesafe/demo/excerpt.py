"""The two endpoints as they are written, for the page to show: what it claims about them cannot get out of date."""

from __future__ import annotations

import ast
import textwrap
from importlib.resources import files

from twicesafe.demo.lanes import Lane

ENDPOINT = "create_charge"


def endpoints() -> dict[Lane, str]:
    """The source of each lane's endpoint, with what is set up for it. Nothing is imported to get it."""
    text = files("twicesafe.demo").joinpath("payments.py").read_text(encoding="utf-8")
    functions = {found.name: found for found in ast.parse(text).body if isinstance(found, ast.FunctionDef)}
    return {lane: _endpoint(functions[lane].body, text.splitlines()) for lane in Lane}


def _endpoint(body: list[ast.stmt], lines: list[str]) -> str:
    shown = []
    for statement in body:
        if isinstance(statement, ast.AsyncFunctionDef) and statement.name == ENDPOINT:
            shown += ["", *lines[statement.decorator_list[0].lineno - 1 : statement.end_lineno]]
        elif isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) != "app":
            shown += lines[statement.lineno - 1 : statement.end_lineno]
    return textwrap.dedent("\n".join(shown)).strip()
