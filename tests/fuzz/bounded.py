"""How far `make test` follows a property: the same few examples each time. `make fuzz` follows it for minutes."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

bounded: Final = settings(
    max_examples=25, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)

octets: Final = st.binary(max_size=60)
"""Whatever may come over a wire."""

texts: Final = st.one_of(st.text(max_size=30), octets.map(lambda data: data.decode("latin-1")))
"""Text as it may come from anywhere, halves of surrogate pairs excepted."""


def pieces(*known: bytes) -> st.SearchStrategy[bytes]:
    """Runs of what a grammar is made of, with anything in between."""
    return st.lists(st.one_of(st.sampled_from(known), st.binary(max_size=3)), max_size=12).map(b"".join)
