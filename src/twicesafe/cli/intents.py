"""`twicesafe intents`: what clients set out to do, what became of it, and how it goes on where a process died."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from signal import SIGINT
from string import Template
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, urlsplit

from twicesafe.cli.people import AS_JSON, line_out, plain, table_out, time_of
from twicesafe.cli.terminal import DAMAGE, needing, typer
from twicesafe.client.httpx import send
from twicesafe.client.intent_store import IntentStore
from twicesafe.client.intents import Intent
from twicesafe.client.reserved import Reserved
from twicesafe.core.outcome import Outcome
from twicesafe.core.retry_budget import Work
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.core.runs import KNOWN, Standing
from twicesafe.errors import (
    ConfigurationError,
    IntentChangedError,
    IntentOverdueError,
    IntentSettledError,
    IntentStoreError,
)

intents = typer.Typer(
    help="See what clients set out to do, and go on with what was cut off.",
    epilog="""
\b
Examples:
  twicesafe intents list var/intents.db                        what is not known yet
  twicesafe intents show var/intents.db "charge of cart 17"
  twicesafe intents resume var/intents.db                      send again what may have been sent
  twicesafe intents resume var/intents.db --header 'Authorization: Bearer ${PAY_TOKEN}'
  twicesafe intents settle var/intents.db "charge of cart 17" --done --why "ch_1 is in the account"
  twicesafe intents forget var/intents.db --settled            those whose servers have forgotten them too

\b
Exit status:
  0  done; for resume: what became of each is known
  1  resume: of some it is still not known; forget, settle: an intent is not one that this ends, it was not changed
  2  it could not be done: a wrong option, no such intent, a file that cannot be used
  130  resume was interrupted; what it was at is still unknown
""",
    no_args_is_help=True,
)

FILE = Annotated[Path, typer.Argument(metavar="FILE", help="The file of an IntentStore.", exists=True, dir_okay=False)]
NAME = Annotated[str, typer.Argument(metavar="NAME", help="The intent's name.")]
NAMES = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names of intents.")]

_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")


@intents.command("list", short_help="Intents whose outcome is not known.")
def list_(
    file: FILE,
    everything: Annotated[bool, typer.Option("--all", help="Those that are settled, too.")] = False,
    as_json: AS_JSON = False,
) -> None:
    """List intents. Never their bodies, and of an address no query: they may hold what you are not to see."""
    shown = [_shown(one) for one in _each(IntentStore(file), settled=everything)]
    if as_json:
        sys.stdout.write(json.dumps(shown) + "\n")
    elif shown:
        columns = ("name", "standing", "request", "key", "reserved", "runs", "last")
        table_out(columns, ([one[column] for column in columns] for one in shown))
    else:
        sys.stdout.write("Nothing is outstanding.\n" if not everything else "There are no intents.\n")


@intents.command(short_help="One intent, and each time it was sent.")
def show(
    file: FILE,
    name: NAME,
    body: Annotated[bool, typer.Option("--body", help="What it sends, too.")] = False,
    as_json: AS_JSON = False,
) -> None:
    """Show an intent, and its runs: each time that it was sent, of one or more attempts."""
    found = _found(IntentStore(file), name)
    shown = _shown(found) | {
        "contract": str(found.contract),
        "carrier": found.header or f"{found.member}, in the body",
        "withheld": list(found.withheld),
        "remembers_seconds": None if found.remembers is None else found.remembers.total_seconds(),
        "settled": "" if found.settled_at is None else time_of(found.settled_at),
    }
    if body:
        shown["body"] = found.intent.body.decode("utf-8", "backslashreplace")
    runs = [
        {
            "began": time_of(run.began_at),
            "ended": "" if run.ended_at is None else time_of(run.ended_at),
            "process": run.process,
            "verdict": str(run.verdict),
            "attempts": run.attempts,
            "status": run.status,
            "reason": run.reason,
        }
        for run in found.runs
    ]
    if as_json:
        sys.stdout.write(json.dumps(shown | {"runs": runs}) + "\n")
        return
    for label, value in shown.items():
        if label == "remembers_seconds":
            line_out("remembers", "" if value is None else f"{value:.0f} s")
        elif label != "runs":
            line_out(label, ", ".join(value) if isinstance(value, list) else value)
    for run in runs:
        ended = f"to {run['ended']}" if run["ended"] else "without an end: cut off, or at work"
        line_out("run", f"{run['began']} {ended}, process {run['process']}: {run['verdict']}. {run['reason']}")


@intents.command(short_help="Send again what may have been sent.")
def resume(
    file: FILE,
    names: NAMES = None,
    unsent: Annotated[bool, typer.Option("--unsent", help="What was reserved and never sent, too.")] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(
            help="A header that is not kept, 'Authorization: Bearer ${NAME}'; ${NAME} comes from the environment. "
            "May be repeated; without a value it is left out."
        ),
    ] = None,
    base_url: Annotated[
        str, typer.Option(help="The same service at another address: its origin, and what stands before the paths.")
    ] = "",
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds for each.")] = 30.0,
    as_json: AS_JSON = False,
) -> None:
    """Send intents again, with the key and the bytes they had, and tell what became of each.

    Those whose outcome is unknown, or those named, whether sent before or not. What its server may have forgotten is
    not sent: look up what became of it, and settle it.
    """
    store = IntentStore(file)
    chosen = _chosen(store, names or [], unsent=unsent)
    lines = _lines(header or [])
    _check_headers(chosen, lines)
    base = _base(base_url, chosen)
    with needing("httpx2"):
        import httpx2
    policy = RetryPolicy(deadline=timedelta(seconds=deadline), work=Work.BACKGROUND)
    told, interrupted = [], False
    # What a redirect led to would get the headers too.
    with httpx2.Client(headers=[line for line in lines if line[1]], timeout=deadline, follow_redirects=False) as client:
        for one in chosen:
            why = ""
            try:
                if one.standing not in KNOWN:
                    why = _sent(store, one, client, policy, base)
            except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
                why = f"cannot be sent: {type(error).__name__}"
            except KeyboardInterrupt:
                why, interrupted = "interrupted", True
            told.append(_shown(store.find(one.name) or one) | {"why": why})
            if interrupted:
                break
    unknown = sum(one["standing"] not in KNOWN for one in told)
    if as_json:
        sys.stdout.write(json.dumps({"intents": told, "unknown": unknown}) + "\n")
    else:
        if told:
            columns = ("name", "standing", "key", "last", "why")
            table_out(columns, ([one[column] for column in columns] for one in told))
        sys.stdout.write(f"{len(told) - unknown} known, {unknown} not known.\n")
        if not told and next(_each(store, settled=False), None) is not None:
            sys.stdout.write("What was reserved and never sent is left: --unsent sends it.\n")
    if interrupted:
        raise typer.Exit(128 + SIGINT)
    if unknown:
        raise typer.Exit(DAMAGE)


@intents.command(short_help="Say what became of one, from other knowledge.")
def settle(
    file: FILE,
    name: NAME,
    why: Annotated[str, typer.Option(help="What you know, for whoever looks at it later.")],
    done: Annotated[bool, typer.Option("--done", help="It was carried out.")] = False,
    not_done: Annotated[bool, typer.Option("--not-done", help="It was not, and will not be.")] = False,
    as_json: AS_JSON = False,
) -> None:
    """Settle an intent, whose server cannot be asked any more, say. It is not sent again."""
    if done == not_done:
        raise ConfigurationError("say either --done or --not-done")
    try:
        IntentStore(file).settle(name, done=done, why=why)
    except IntentSettledError as error:
        sys.stderr.write(f"{plain(error)}. It was not changed.\n")
        raise typer.Exit(DAMAGE) from None
    if as_json:
        sys.stdout.write(json.dumps({"name": name, "settled": "done" if done else "not done"}) + "\n")
        return
    sys.stdout.write(f"Done: settled as {'done' if done else 'not done'}.\n")


@intents.command(short_help="Take intents out of the file.")
def forget(
    file: FILE,
    names: NAMES = None,
    settled: Annotated[
        bool, typer.Option("--settled", help="All that are settled and that their servers have forgotten.")
    ] = False,
    even_unknown: Annotated[
        bool, typer.Option("--even-unknown", help="Also what may be done: the next one of its name could do it twice.")
    ] = False,
    as_json: AS_JSON = False,
) -> None:
    """Forget intents: those named, or all that are over."""
    if bool(names) == settled:
        raise ConfigurationError("name intents, or say --settled; not both")
    store = IntentStore(file)
    if settled:
        count = store.purge()
    else:
        for one in names or []:
            found = _found(store, one)
            if found.standing in (Standing.UNKNOWN, Standing.OVERDUE) and not even_unknown:
                sys.stderr.write(f"Nobody knows what became of {plain(one)}: nothing was forgotten.\n")
                raise typer.Exit(DAMAGE)
        count = len(names or [])
        for one in names or []:
            store.forget(one, even_unknown=even_unknown)
    said = json.dumps({"forgotten": count}) if as_json else f"Done: forgot {count} intent{'s' * (count != 1)}."
    sys.stdout.write(said + "\n")


# --- which, and how they are shown -----------------------------------------------------------------------------------


def _each(store: IntentStore, *, settled: bool) -> Iterator[Reserved]:
    after = ""
    while page := store.listed(after, settled=settled):
        yield from page
        after = page[-1].name


def _found(store: IntentStore, name: str) -> Reserved:
    found = store.find(name)
    if found is None:
        raise ConfigurationError(f"there is no intent named {name!r}: it was never reserved, or is forgotten")
    return found


def _chosen(store: IntentStore, names: list[str], *, unsent: bool) -> list[Reserved]:
    if names:
        if unsent:
            raise ConfigurationError("names or --unsent, not both: what is named is sent in any case")
        return [_found(store, name) for name in dict.fromkeys(names)]
    return [one for one in _each(store, settled=False) if unsent or one.standing is not Standing.RESERVED]


def _shown(one: Reserved) -> dict[str, Any]:
    last = one.runs[-1] if one.runs else None
    told = "" if last is None else last.reason if last.ended_at else "without an end: cut off, or at work"
    return {
        "name": one.name,
        "standing": str(one.standing),
        "request": _request(one),
        "key": one.key_hint,
        "reserved": time_of(one.reserved_at),
        "runs": len(one.runs),
        "last": told,
    }


def _request(one: Reserved) -> str:
    try:
        intent = one.intent
    except IntentStoreError:
        # What is encrypted can be counted all the same.
        return "encrypted" if one.sealed else "damaged"
    return f"{intent.method} {intent.url.partition('?')[0]}"


# --- sending ---------------------------------------------------------------------------------------------------------


def _sent(store: IntentStore, one: Reserved, client: Any, policy: RetryPolicy, base: SplitResult | None) -> str:
    """Why it was not sent, or what stopped it; empty where its outcome says all."""

    def by(client: Any, intent: Intent, **how: Any) -> Outcome[Any]:
        return send(client, intent if base is None else replace(intent, url=_moved(intent.url, base)), **how)

    try:
        store.send(client, one, by=by, policy=policy)
    except IntentOverdueError:
        return "not sent: its server may have forgotten the key. Look it up, and settle it"
    except IntentSettledError:
        return "settled meanwhile"
    except IntentChangedError:
        return "forgotten meanwhile"
    return ""


def _lines(given: list[str]) -> list[tuple[str, str]]:
    """Header lines; what stands in the environment is not in the list of processes."""
    lines = []
    for text in given:
        found = _HEADER.fullmatch(text)
        if found is None:
            raise ConfigurationError("--header must be 'name: value'")
        try:
            value = Template(found[2]).substitute(os.environ)
        except KeyError as missing:
            raise ConfigurationError(f"the environment has no {missing.args[0]}, for the header {found[1]}") from None
        except ValueError:
            raise ConfigurationError(f"a $ in the header {found[1]} names a variable; $$ is a $") from None
        if not (value.isascii() and value.isprintable()):
            raise ConfigurationError(f"the header {found[1]} holds what no header can")
        lines.append((found[1], value))
    return lines


def _check_headers(chosen: list[Reserved], lines: list[tuple[str, str]]) -> None:
    given = {name.lower() for name, _ in lines}
    for one in chosen:
        missing = set(one.withheld) - given
        if missing and one.standing not in KNOWN:
            raise ConfigurationError(
                f"{one.name!r} was sent with {', '.join(sorted(missing))}, which is not kept: give it by --header"
            )
    if lines and len({_origin(one.intent.url) for one in chosen}) > 1:
        raise ConfigurationError("these go to several servers, which are not all to get these headers: name some")


def _base(text: str, chosen: list[Reserved]) -> SplitResult | None:
    if not text:
        return None
    try:
        base = urlsplit(text)
        whole = base.scheme in ("http", "https") and base.hostname and base.port != 0
    except ValueError:
        whole = False
    if not whole or base.query or base.fragment:
        raise ConfigurationError(f"--base-url must be an address, https://host/path, not {text!r}")
    origins = {_origin(one.intent.url) for one in chosen}
    if len(origins) > 1:
        raise ConfigurationError("these go to several servers, which are not one at another address: name some")
    if base.scheme == "http" and any(scheme == "https" for scheme, _ in origins):
        raise ConfigurationError("these were sent by https, and are not sent in the clear: --base-url must be https")
    return base


def _origin(url: str) -> tuple[str, str]:
    address = urlsplit(url)
    return address.scheme.lower(), address.netloc.lower()


def _moved(url: str, base: SplitResult) -> str:
    address = urlsplit(url)
    return address._replace(scheme=base.scheme, netloc=base.netloc, path=base.path.rstrip("/") + address.path).geturl()
