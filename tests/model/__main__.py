"""`python -m tests.model "keyed: 1 1 2"` goes one schedule; without one, it makes the table of wrongs."""

from __future__ import annotations

import sys

from tests.model.mutating import go, mutations
from tests.model.scenarios import replayed
from tests.model.schedule_table import wrong_line

if len(sys.argv) > 1:
    for actor in replayed(sys.argv[1]).actors:
        where = "dead" if actor.place is None else "at its end" if actor.place.ended else f"before {actor.place.wants}"
        print(f"{actor.token!r}: {where}; told {', '.join(sorted(actor.noticed)) or 'nothing'}")
else:
    for mutation in mutations():
        found = go(mutation)
        print(f"{mutation.what}: nothing tells" if found is None else wrong_line(mutation.what, found), flush=True)
