"""A payment provider to test against: another system, with a ledger of its own, that breaks on demand.

    python -m twicesafe.demo.provider --ledger provider.db --window 86400

    POST /charges        {"reference": "order-1", "amount": 4200}, with an Idempotency-Key or without
    GET  /charges?key=K  what was charged under a key, and whether a request under it is being worked on
    POST /faults         {"fault": "error_after"}: the next charge meets it; of one order with a "reference"
    GET  /faults         which faults struck so far, and how often

As real ones do, it recognises a key for some time, its window, and forgets it then: the same request under the same key
is another charge afterwards. What it charged it can be asked about for ever. It is a process of its own, because it has
to survive those who call it, and they it; within a test it runs as a `ProviderServer` in a thread.
"""
