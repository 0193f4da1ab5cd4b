"""A user's settings and errors, for mypy --strict. Nothing here is ever run.

Whatever stands in this folder must go on being accepted as it is; a change that breaks it breaks somebody's build.
"""

from __future__ import annotations

from datetime import timedelta

from twicesafe import JSON, PUBLIC, Effects, FingerprintRule, KeyRule, KeySyntax, Operation, Policy, TwicesafeError

charge = Operation(
    "charge",
    Policy(
        effects=Effects.TRANSACTIONAL,
        required=True,
        key=KeyRule(KeySyntax.UUID),
        fingerprint=FingerprintRule(JSON, (b"api-version",)),
        key_retention=timedelta(days=30),
        body_retention=timedelta(days=1),
    ),
)
patient: Policy = charge.policy.but(wait=timedelta(seconds=2))
everybody = PUBLIC


def describe(error: TwicesafeError) -> str:
    """Every error that is raised on purpose is one kind of exception."""
    return str(error)
