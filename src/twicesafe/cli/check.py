"""`twicesafe check`."""

from __future__ import annotations

import io
import sys
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from twicesafe.cli.terminal import COULD_NOT, DAMAGE, PLAIN, Console, Table, needing, typer
from twicesafe.demo.lanes import Lane
from twicesafe.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from twicesafe.conformance.findings import Finding
    from twicesafe.conformance.limits import Limits
    from twicesafe.conformance.target import Target
    from twicesafe.conformance.trials.trial import Trial

EPILOG: Final = """
\b
Examples:
  twicesafe check target.toml                      everything the file tells how to try
  twicesafe check target.toml --dry-run            what it would send, without sending anything
  twicesafe check --demo safe                      `twicesafe demo --lets-expire` has to run
  twicesafe check --curl 'curl http://127.0.0.1:8000/charges -H "Idempotency-Key: {{key}}" --json "{\\"n\\": 1}"'
  twicesafe check --openapi openapi.json --operation create_charge --server http://127.0.0.1:8000
  twicesafe check target.toml --format html --out report.html

\b
A target's description, all but `request` of which may be missing:
  profile = "ietf"
  [request]
  url = "http://127.0.0.1:8000/charges"
  headers = { Authorization = "Bearer {{env:TOKEN}}" }
  json = { order = "{{unique}}", amount = 100 }
  [effects]
  database = "sqlite:///shop.db"
  sql = "SELECT count(*) FROM charges WHERE order_id = '{{unique}}'"

\b
Exit status:
  0    nothing failed, and something was shown; what is not offered or could not be told stands in the report
  1    something failed
  2    it could not be done, or nothing at all was shown; one line on standard error says why
  130  interrupted
"""


def check(
    target: Annotated[
        Path | None, typer.Argument(metavar="[TARGET.toml]", dir_okay=False, help="The target's description.")
    ] = None,
    curl: Annotated[str, typer.Option(metavar="COMMAND", help="Instead: a curl command, with {{unique}} in it.")] = "",
    openapi: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Instead: an OpenAPI document.")
    ] = None,
    operation: Annotated[
        str, typer.Option(metavar="ID", help="The operation in it: its operationId, or `POST /charges`.")
    ] = "",
    demo: Annotated[Lane | None, typer.Option(help="Instead: a lane of the demo, on port 8000.")] = None,
    server: Annotated[
        str, typer.Option(metavar="URL", help="Where the service is, instead of where the description says.")
    ] = "",
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="LINE", help="A header line more: `Name: value`.")
    ] = None,
    key_header: Annotated[
        str, typer.Option(metavar="NAME", help="The header that carries the key, where nothing says {{key}}.")
    ] = "",
    count_url: Annotated[
        str, typer.Option(metavar="URL", help="A GET that counts effects: a number or an array in JSON.")
    ] = "",
    count_at: Annotated[
        str, typer.Option(metavar="POINTER", help="Where in its answer, as a JSON pointer: /orders.")
    ] = "",
    count_command: Annotated[
        str, typer.Option(metavar="COMMAND", help="Or: a command that prints the number of effects.")
    ] = "",
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="Whose rules count: ietf, stripe, acp, any ... As described, or ietf.")
    ] = "",
    only: Annotated[
        list[str] | None, typer.Option(metavar="TRIAL", help="Make this trial only; may be given several times.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(metavar="TRIAL", help="Leave this trial out; may be given several times.")
    ] = None,
    form: Annotated[str, typer.Option("--format", metavar="table|json|junit|html", help="Of the report.")] = "table",
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the report here, and only the table to the terminal.")
    ] = None,
    evidence: Annotated[bool, typer.Option("--evidence", help="With the table: the exchanges of what failed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")] = False,
    i_own_this: Annotated[
        bool, typer.Option("--i-own-this", help="The target is on another machine, and yours to be tried.")
    ] = False,
    parallel: Annotated[int, typer.Option(min=2, max=64, help="Duplicates at the same moment.")] = 8,
    timeout: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="For all trials together.")] = 300.0,
) -> None:
    """Try whether an API does what is asked once, however often it is asked with one idempotency key.

    It works on any API that is running, in any language: with missing, malformed and doubled keys, duplicates at the
    same moment, changed requests, other callers, answers that get lost, clients that hang up, crashes. Where the
    description says how effects are counted, it is effects that count; where not, a trial that only a count could
    decide says so.

    The target really does the work, over and over again: give it one where that does no harm.
    """
    with needing("check"), _explained():
        from twicesafe.conformance.limits import Limits
        from twicesafe.conformance.reports import Form, write
        from twicesafe.conformance.run import check as check_target
        from twicesafe.conformance.trials import chosen

        wanted = _form(form, [one.value for one in Form])
        trials = chosen(only or (), skip or ())
        limits = Limits(seconds=timeout, parallel=parallel, anywhere=i_own_this)
        if target is not None and target.parts[0] in {"http:", "https:"}:
            raise ConfigurationError(
                "a check starts from a file that describes the target, not from its address: name one, or give "
                "--openapi or --curl, and the address as --server; `twicesafe check --help` has examples"
            )
        found = _target(target, curl, openapi, operation, demo, server=server, header=header or [], name=key_header)
        found = _counted(found, count_url, count_at, count_command)
        if dry_run:
            _announce(found, profile or found.profile, trials, limits)
            return
        try:
            report = check_target(
                found, profile_name=profile or None, trials=trials, limits=limits, told=_progress(len(trials))
            )
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        if out is None:
            write(report, sys.stdout, Form(wanted), evidence=evidence)
        else:
            made = io.StringIO()
            write(report, made, Form(wanted), evidence=True)
            _keep(out, made.getvalue())
            write(report, sys.stdout, Form.TABLE, evidence=evidence)
    if report.exit_status == COULD_NOT:
        raise ConfigurationError("nothing was shown: no trial passed and none failed")
    if report.exit_status:
        raise typer.Exit(DAMAGE)


@contextmanager
def _explained() -> Iterator[None]:
    """The checker shares nothing with the rest, not even its errors: here they become the rest's."""
    from twicesafe.conformance.errors import CannotCheckError

    try:
        yield
    except CannotCheckError as error:
        raise ConfigurationError(str(error)) from error


def _target(
    file: Path | None,
    curl: str,
    openapi: Path | None,
    operation: str,
    demo: Lane | None,
    *,
    server: str,
    header: list[str],
    name: str,
) -> Target:
    from twicesafe.conformance.curl import from_curl
    from twicesafe.conformance.openapi import from_openapi
    from twicesafe.conformance.target import keyed
    from twicesafe.conformance.target_file import from_file

    if sum(bool(one) for one in (file, curl, openapi, demo)) != 1:
        raise ConfigurationError("give one target: a file, --curl, --openapi with --operation, or --demo")
    lines = tuple(_line(line) for line in header)
    if openapi is not None:
        if not operation:
            raise ConfigurationError("which operation of the document? Give --operation")
        return from_openapi(openapi, operation, server=server, lines=lines, header=name)
    if file is not None:
        found = from_file(file)
    elif demo is not None:
        with as_file(files("twicesafe.demo").joinpath("targets", f"{demo}.toml")) as path:
            found = from_file(path)
    else:
        found = from_curl(curl, name)
    if lines:
        found = replace(found, request=keyed(found.request.with_lines(lines)))
    return found.at(server) if server else found


def _line(line: str) -> tuple[str, str]:
    name, mark, value = line.partition(":")
    if not mark or not name.strip():
        # Not repeated: without its colon `Authorization Bearer ...` is a secret all the same.
        raise ConfigurationError("what --header says is no header line; they are written `Name: value`")
    return name.strip(), value.strip()


def _counted(target: Target, url: str, pointer: str, command: str) -> Target:
    from twicesafe.conformance.effects import CommandCounter, HttpCounter

    if url and command:
        raise ConfigurationError("effects are counted by a URL or by a command, not by both")
    if url:
        mine = tuple(line for line in target.request.lines if line[0].lower() in target.secret_headers)
        return replace(target, counter=HttpCounter(url, mine, pointer))
    return replace(target, counter=CommandCounter(command)) if command else target


def _form(form: str, known: list[str]) -> str:
    if form not in known:
        raise ConfigurationError(f"--format is one of {', '.join(known)}")
    return form


def _keep(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error}") from error


def _progress(total: int) -> Callable[[Finding], None]:
    """Says on standard error how far it is, where that is a terminal."""
    aside = Console(stderr=True, highlight=False, markup=False)
    made = 0

    def tell(finding: Finding) -> None:
        nonlocal made
        made += 1
        if aside.is_terminal:
            aside.print(f"{made}/{total} {finding.trial}: {finding.verdict}, {finding.seconds:.1f} s")

    return tell


def _announce(target: Target, profile: str, trials: Sequence[Trial], limits: Limits) -> None:
    """What a check would do."""
    from twicesafe.conformance.profiles import profile as profile_of
    from twicesafe.conformance.run import most_requests

    console = Console(highlight=False)
    console.print(f"{target.request.method} {target.request.url}", markup=False, soft_wrap=True)
    console.print(f"Profile: {profile_of(profile).title}", markup=False)
    console.print(f"Effects: {'are counted' if target.counter else 'are not counted; the answers have to tell'}")
    table = Table(box=PLAIN)
    table.add_column("trial", no_wrap=True)
    table.add_column("requests", justify="right", no_wrap=True)
    table.add_column("what it asks")
    for trial in trials:
        table.add_row(trial.name, f"up to {trial.most(limits)}", trial.title)
    console.print(table)
    console.print(
        f"At most {most_requests(trials, limits)} requests beside those that count, one after the other except for "
        f"{limits.parallel} at the same moment, in at most {limits.seconds:.0f} s. Nothing was sent."
    )
