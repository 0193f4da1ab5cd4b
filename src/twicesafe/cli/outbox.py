"""`twicesafe outbox`: messages that could not be delivered, for the people who run it, and what they do about them."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, islice
from typing import Annotated, Any, Final

from twicesafe.cli.existing import check_there
from twicesafe.cli.people import (
    AS_JSON,
    STORE,
    WHO,
    WHY,
    as_text,
    audit_of,
    audit_out,
    line_out,
    name_of,
    plain,
    table_out,
    time_of,
)
from twicesafe.cli.terminal import DAMAGE, typer
from twicesafe.errors import ConfigurationError
from twicesafe.outbox.operators import Listed, Messages, MessageState
from twicesafe.stores.urls import open_store

outbox = typer.Typer(
    help="See which messages wait or could not be delivered, and retry or discard them.",
    epilog="""
\b
Examples:
  twicesafe outbox list --store postgresql://app@host/shop          dead letters, and how much waits
  twicesafe outbox list --store ... --state pending                 what waits, the held ones among it
  twicesafe outbox show --store ... 8e03978e-40d5-43e8-bc93-6894a57f9324
  twicesafe outbox retry --store ... 8e03978e-... --why "the queue is there again"
  twicesafe outbox retry --store ... --parked --why "deployed 1.2.3"
  twicesafe outbox discard --store ... 8e03978e-... --why "order was a test"

\b
Exit status:
  0  done
  1  a message is not, or no longer, one that waits or was set aside; it was not changed, the others were
  2  it could not be done: a wrong option, no such message, a store out of reach
""",
    no_args_is_help=True,
)

IDS = Annotated[list[str] | None, typer.Argument(help="Ids of messages.", metavar="ID")]
PARKED = Annotated[bool, typer.Option("--parked", help="All that are parked, instead of ids.")]

DEAD: Final = (MessageState.PARKED, MessageState.SKIPPED)


@outbox.command("list", short_help="Dead letters, or what waits.")
def list_(
    store: STORE,
    state: Annotated[
        MessageState | None, typer.Option(help="Those in this state; parked and skipped ones otherwise.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    as_json: AS_JSON = False,
) -> None:
    """List messages, and say how much waits and since when. Never what they say: it may be nothing for your eyes."""
    with _opened(store) as messages:
        waiting = messages.waiting()
        found = chain.from_iterable(messages.listed(one) for one in ((state,) if state else DEAD))
        shown = [_shown(one) for one in islice(found, limit)]
    oldest = None if waiting.oldest_us is None else waiting.oldest_us / 1_000_000
    if as_json:
        counts = {"pending": waiting.pending, "oldest_seconds": oldest, "parked": waiting.parked}
        sys.stdout.write(json.dumps(counts | {"messages": shown}) + "\n")
        return
    if shown:
        columns = ("id", "type", "aggregate", "state", "attempts", "created", "error")
        table_out(columns, ([one[name] for name in columns] for one in shown))
    since = "" if oldest is None else f", the oldest for {oldest:.0f} s"
    sys.stdout.write(f"{waiting.pending} pending{since}; {waiting.parked} parked.\n")


@outbox.command(short_help="One message, and what people did about it.")
def show(
    store: STORE,
    message: Annotated[str, typer.Argument(metavar="ID", help="The message's id.")],
    data: Annotated[bool, typer.Option("--data", help="What it says, too.")] = False,
    as_json: AS_JSON = False,
) -> None:
    """Show a message. What it says only if you ask for that."""
    with _opened(store) as messages:
        found = messages.find(message)
        said = messages.data(message) if data else None
        trail = messages.trail(message)
    if found is None and not trail:
        raise ConfigurationError(f"there is no message {message}: it was never added, or is delivered and deleted")
    shown = {} if found is None else _shown(found)
    if said is not None:
        shown |= _data(said)
    audit = audit_of(trail)
    if as_json:
        sys.stdout.write(json.dumps(shown | {"audit": audit}) + "\n")
        return
    for name, value in shown.items():
        line_out(name, value)
    audit_out(audit)


@outbox.command(short_help="Try messages again, in their order.")
def retry(
    store: STORE, why: WHY, ids: IDS = None, parked: PARKED = False, who: WHO = "", as_json: AS_JSON = False
) -> None:
    """Let messages be tried at once. Those that a parked one held follow it, in their order.

    One that was skipped comes after later ones of its aggregate, which were not held for it.
    """
    _change("retry", store, ids, who, why, parked=parked, as_json=as_json)


@outbox.command(short_help="Give messages up.")
def discard(
    store: STORE, why: WHY, ids: IDS = None, parked: PARKED = False, who: WHO = "", as_json: AS_JSON = False
) -> None:
    """Give messages up: they are never delivered, and those that they held flow."""
    _change("discard", store, ids, who, why, parked=parked, as_json=as_json)


def _change(verb: str, store: str, ids: list[str] | None, who: str, why: str, *, parked: bool, as_json: bool) -> None:
    if bool(ids) == parked:
        raise ConfigurationError("name messages by their ids, or say --parked")
    by = {"who": name_of(who), "why": as_text(why)}
    with _opened(store) as messages:
        for one in ids or ():
            if messages.find(one) is None:
                raise ConfigurationError(f"there is no message {one}: nothing was changed")
        named = iter(ids or ()) if not parked else (one.id for one in messages.listed(MessageState.PARKED))
        change = messages.retry if verb == "retry" else messages.discard
        done: list[str] = []
        refused: list[str] = []
        for one in named:
            (done if change(one, **by) else refused).append(one)
    if as_json:
        sys.stdout.write(json.dumps({verb: done, "unchanged": refused}) + "\n")
    else:
        for one in refused:
            sys.stderr.write(f"{plain(one)} does not wait, nor was it set aside: it was not changed.\n")
        sys.stdout.write(f"Done: {verb} {len(done)} message{'s' * (len(done) != 1)}.\n")
    if refused:
        raise typer.Exit(DAMAGE)


@contextmanager
def _opened(url: str) -> Iterator[Messages]:
    check_there(url)
    with closing(open_store(url)) as store:
        messages = Messages(store)
        store.check_schema()
        yield messages


def _shown(one: Listed) -> dict[str, Any]:
    waits = one.state is MessageState.PENDING and one.next_at > 0
    return {
        "id": one.id,
        "type": one.type,
        "aggregate": f"{one.aggregatetype} {one.aggregateid}",
        "state": str(one.state),
        "attempts": one.attempts,
        "created": time_of(one.created_at),
        "next": time_of(one.next_at) if waits else "",
        "error": one.last_error or "",
    }


def _data(said: bytes) -> dict[str, str]:
    try:
        return {"data": said.decode()}
    except UnicodeDecodeError:
        return {"data_base64": b64encode(said).decode()}
