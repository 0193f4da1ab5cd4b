"""A page for the people who run it: what is in progress, stale and unknown, and what they do about it.

    from twicesafe.dashboard import Dashboard, Tally

    tally = Tally()
    app.mount("/dashboard", Dashboard(open_store(URL), people={"ann": "scrypt$..."}, tally=tally))

It is off until somebody may sign in: see Dashboard.
"""

from __future__ import annotations

from twicesafe.dashboard.application import Dashboard
from twicesafe.dashboard.people import hash_password
from twicesafe.dashboard.tally import Tally

__all__ = ["Dashboard", "Tally", "hash_password"]
