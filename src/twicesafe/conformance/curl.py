"""A target described by the curl command that people have at hand."""

from __future__ import annotations

import argparse
import base64
import shlex
from typing import Final, NoReturn

from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.target import CARRIERS, USUAL_HEADER, Target, Template, keyed
from twicesafe.conformance.templates import KEY

_IGNORED: Final = (
    "-s", "--silent", "-S", "--show-error", "-i", "--include", "-v", "--verbose", "--compressed", "-L", "--location",
    "-f", "--fail", "--fail-with-body", "-#", "--progress-bar", "-N", "--no-buffer",
)  # fmt: skip
_IGNORED_WITH_VALUE: Final = ("-o", "--output", "-w", "--write-out", "-m", "--max-time", "--connect-timeout", "--retry")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CannotCheckError(f"the curl command: {message}")


def from_curl(command: str, header: str = "") -> Target:
    """The target of a curl command, with `{{unique}}` and the like wherever it has them.

    The key goes where `{{key}}` stands; else into the header that usually bears one, which may stand there with any
    value; else into `header`, or Idempotency-Key.
    """
    try:
        words = shlex.split(command.replace("\\\n", " "))
    except ValueError as error:
        raise CannotCheckError(f"the curl command: {error}") from None
    if words[:1] == ["curl"]:
        del words[0]
    said, unknown = _parser().parse_known_args(words)
    if unknown:
        # What stands behind an option may be a token.
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        raise CannotCheckError(f"the curl command: nothing is known of {', '.join(options) or 'a second address'}")
    url = said.url or said.address
    if not url:
        raise CannotCheckError("the curl command: there is no URL")
    lines = [_line(line) for line in said.header]
    names = {name.lower() for name, _ in lines}
    body = _body(said)
    if body is not None and "content-type" not in names:
        kind = "application/json" if said.json else "application/x-www-form-urlencoded"
        lines.append(("Content-Type", kind))
    if said.json and "accept" not in names:
        lines.append(("Accept", "application/json"))
    if said.user is not None:
        lines.append(("Authorization", f"Basic {base64.b64encode(said.user.encode()).decode()}"))
    if said.cookie is not None:
        lines.append(("Cookie", said.cookie))
    if said.agent is not None:
        lines.append(("User-Agent", said.agent))
    if not any(KEY.search(value) for _, value in lines):
        known = {name.lower() for name in (header, *CARRIERS) if name}
        lines = [(name, _placed(value) if name.lower() in known else value) for name, value in lines]
    url = url if "://" in url else f"http://{url}"
    template = Template(said.method or ("GET" if body is None else "POST"), url, tuple(lines), body)
    return Target(request=keyed(template, header or USUAL_HEADER))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="curl", add_help=False, allow_abbrev=False)
    parser.add_argument("address", nargs="?")
    parser.add_argument("--url")
    parser.add_argument("-X", "--request", dest="method")
    parser.add_argument("-H", "--header", action="append", default=[])
    parser.add_argument("-d", "--data", "--data-ascii", "--data-raw", "--data-binary", dest="data", action="append")
    parser.add_argument("--json", action="append")
    parser.add_argument("-u", "--user")
    parser.add_argument("-b", "--cookie")
    parser.add_argument("-A", "--user-agent", dest="agent")
    for name in _IGNORED:
        parser.add_argument(name, action="store_true", dest="ignored")
    for name in _IGNORED_WITH_VALUE:
        parser.add_argument(name, dest="ignored")
    return parser


def _line(line: str) -> tuple[str, str]:
    name, mark, value = line.partition(":")
    if not mark or not name.strip() or line.startswith("@"):
        # Not repeated: without its colon `Authorization Bearer ...` is a secret all the same.
        raise CannotCheckError("the curl command: -H has what is no header line")
    return name.strip(), value.strip()


def _body(said: argparse.Namespace) -> str | None:
    if said.json:
        return "".join(said.json)
    if said.data is None:
        return None
    if files := [one for one in said.data if one.startswith("@")]:
        raise CannotCheckError(f"the curl command: {files[0]} is a file; write the body itself, or describe a target")
    return "&".join(said.data)


def _placed(value: str) -> str:
    """A place for the key, in quotes where it was in quotes."""
    return '"{{key}}"' if value.startswith('"') and value.endswith('"') and len(value) > 1 else "{{key}}"
