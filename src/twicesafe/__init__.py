"""Send it twice. It happens once."""

from __future__ import annotations

from twicesafe.core.fingerprint import JSON, MULTIPART, RAW, FingerprintRule
from twicesafe.core.keys import PUBLIC, KeyRule, KeySyntax
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects
from twicesafe.errors import TwicesafeError

__version__ = "0.1.0"

__all__ = [
    "JSON",
    "MULTIPART",
    "PUBLIC",
    "RAW",
    "Effects",
    "FingerprintRule",
    "KeyRule",
    "KeySyntax",
    "Operation",
    "Policy",
    "TwicesafeError",
]
