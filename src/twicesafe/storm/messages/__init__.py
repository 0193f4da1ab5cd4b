"""The storm of messages: writers, relays that are killed, a broker that is restarted, and a consumer with an inbox.

    python -m twicesafe.storm.messages --store postgresql --to rabbitmq --messages 20000

It asks: is every message of a committed transaction delivered, each aggregate's in the order of commits, and handled
exactly once? `writers.py` writes them, `relay.py` and `consumer.py` are the processes that die, `rabbitmq.py`,
`nats.py` and `webhooks.py` are what stands between, and `census.py` counts what `books.py` holds.
"""
