"""The protocol. Standard library only; no clock, randomness, sockets, async or logging: time and tokens come in."""
