"""Small applications in Flask, with an extension and a ledger each."""

from __future__ import annotations

import flask

from twicesafe import PUBLIC
from twicesafe.flask import Idempotency
from twicesafe.stores.memory import MemoryStore

KEY = {"Idempotency-Key": "k-1"}
MARKER = "Idempotent-Replayed"


def made(store=None, **how):
    """An application, its extension, and a ledger."""
    app = flask.Flask("shop")
    app.secret_key = "x"
    safe = Idempotency(app, store or MemoryStore(), scope=how.pop("scope", PUBLIC), observer=lambda event: None, **how)
    return app, safe, []


def post(app, path="/jobs", headers=KEY, **how):
    return app.test_client().post(path, headers=headers, **how)
