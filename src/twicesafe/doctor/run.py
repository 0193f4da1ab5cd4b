"""Everything that is looked at, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from twicesafe.doctor.callers import judge_callers
from twicesafe.doctor.catalogue import CATALOGUE, Finding
from twicesafe.doctor.circumstances import Circumstances
from twicesafe.doctor.examining import examine
from twicesafe.doctor.layers import judge_layers
from twicesafe.doctor.policies import judge_policies
from twicesafe.doctor.stores import judge_store
from twicesafe.errors import ConfigurationError


def diagnose(app: Any, known: Circumstances | None = None, stores: Sequence[Any] = ()) -> list[Finding]:
    """All that is wrong with `app`, an ASGI or WSGI application, and with its stores or, where there are any, `stores`.

    Not within a running event loop: what is asynchronous is waited for. Stores are closed; an application that was
    looked at is not served afterwards.
    """
    known = known or Circumstances()
    try:
        subject = examine(app)
    except ConfigurationError as error:
        return [Finding("settings-wrong", type(app).__name__, str(error))]
    if not subject.guards:
        return [Finding("nothing-protected", f"{type(app).__module__}.{type(app).__name__}")]
    found = [*judge_callers(subject), *judge_layers(subject), *judge_policies(subject, known)]
    used = {id(guard.store): guard.store for guard in subject.guards}
    for store in stores or used.values():
        operations = [one for guard in subject.guards if stores or guard.store is store for one in guard.operations]
        found += asyncio.run(judge_store(store, operations, known))
    order = list(CATALOGUE)
    return sorted(dict.fromkeys(found), key=lambda one: order.index(one.code))
