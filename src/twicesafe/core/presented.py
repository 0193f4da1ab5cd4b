"""The key that a request presents, wherever its operation's policy lets it stand (R3, R5)."""

from __future__ import annotations

from collections.abc import Sequence

from twicesafe.core.carriers import key_in
from twicesafe.core.policy import Policy
from twicesafe.errors import MissingKeyError


def presented_key(
    policy: Policy,
    lines: Sequence[bytes],
    *,
    first_sent: Sequence[bytes] = (),
    query: bytes = b"",
    content_type: bytes = b"",
    content_encoding: bytes = b"",
    body: bytes = b"",
) -> str | None:
    """The key, or None where the request may go without one. RequestError otherwise.

    `lines` are those of the policy's header, `first_sent` those of the other that it may require. The body counts where
    `carriers.body_may_carry` says so of its type.
    """
    found = key_in(
        lines,
        policy.fields,
        policy.key,
        query=query,
        content_type=content_type,
        content_encoding=content_encoding,
        body=body,
        empty_is_none=policy.empty_is_none,
    )
    if found is None and policy.required:
        raise MissingKeyError(f"this operation requires {policy.key_name}: send a new UUID for every intent")
    if policy.first_sent is not None:
        assert policy.clock is not None
        policy.first_sent.check(first_sent, policy.clock(), keyed=found is not None)
    return found
