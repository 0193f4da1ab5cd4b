"""What may happen to a request, case by case, and what every client of ours has to make of it.

A case is an operation, what the server does at each connection, and what has to be seen then: how many requests it read
to their end, all with one key and the same bytes; how long the client waited; the outcome. No clock runs and no chance
is drawn but in the few cases whose server stays silent.
"""

from __future__ import annotations

from tests.client.cases import connections, limits, redirects, refusals, retry_after, statuses

GROUPS = {
    "connections": connections.CASES,
    "servers in trouble": statuses.CASES,
    "final answers": refusals.CASES,
    "Retry-After": retry_after.CASES,
    "redirects": redirects.CASES,
    "limits and bodies": limits.CASES,
}

CASES = [case for cases in GROUPS.values() for case in cases]
