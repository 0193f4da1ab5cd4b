"""The storm: real server processes on one store, hundreds of clients, and a plan of faults between them.

It asks one question: is there exactly one effect per intent when everything that can break does? `plan.py` says what
breaks, `proxy.py`, `fleet.py` and `postgresql.py` break it, `clients.py` keeps asking, `census.py` counts the ledger.
"""
