"""Send it twice. It happens once."""

from __future__ import annotations

from twicesafe.core.carriers import FormField, JsonMember, QueryParameter
from twicesafe.core.fingerprint import JSON, MULTIPART, RAW, FingerprintRule
from twicesafe.core.keys import PUBLIC, KeyRule, KeySyntax
from twicesafe.core.limits import Limits
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects, StoredResponse
from twicesafe.errors import TwicesafeError

__version__ = "0.1.0"

__all__ = [
    "JSON",
    "MULTIPART",
    "PUBLIC",
    "RAW",
    "Effects",
    "FingerprintRule",
    "FormField",
    "JsonMember",
    "KeyRule",
    "KeySyntax",
    "Limits",
    "Operation",
    "Policy",
    "QueryParameter",
    "StoredResponse",
    "TwicesafeError",
]
