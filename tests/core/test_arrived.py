"""What a publisher sent is read back."""

from __future__ import annotations

import pytest

from tests.publishers.messages import made
from twicesafe.core.arrived import arrived
from twicesafe.core.message import attributes, ce_headers
from twicesafe.errors import InvalidMessageError


def test_every_binding_gives_the_message_back() -> None:
    """R28: whatever prefix and encoding a broker's binding has, the message that arrives is the one that was sent."""
    sent = made('aggregate 100% "ä"')._replace(headers=(("tenant", "a b"),))
    assert arrived(dict(ce_headers(sent)), sent.data) == sent
    for prefix in ("ce_", "cloudEvents_", "cloudEvents:"):
        assert arrived({f"{prefix}{k}": v.encode() for k, v in attributes(sent)}, sent.data) == sent
    fields = {f"ce-{name}": text for name, text in attributes(sent)}
    assert arrived(fields, sent.data, encoded=False) == sent
    elsewhere = sent._replace(aggregatetype="")
    assert arrived(dict(ce_headers(elsewhere)), sent.data) == elsewhere


@pytest.mark.parametrize("lacks", ["id", "source", "type"])
@pytest.mark.parametrize("how", ["missing", "empty"])
def test_what_identifies_a_message_has_to_be_there(lacks: str, how: str) -> None:
    """R29: an empty or missing id would make all that lack one the same message."""
    headers = dict(ce_headers(made()))
    headers[f"ce-{lacks}"] = ""
    if how == "missing":
        del headers[f"ce-{lacks}"]
    with pytest.raises(InvalidMessageError, match=f"no {lacks}"):
        arrived(headers, b"")


def test_another_version_is_not_guessed_at() -> None:
    """R29: a CloudEvent of a version that this one does not know is refused."""
    with pytest.raises(InvalidMessageError, match="another version"):
        arrived({**dict(ce_headers(made())), "ce-specversion": "2.0"}, b"")
