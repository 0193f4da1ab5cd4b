"""One error tree. Imports nothing.

An error that an HTTP caller can meet knows its status and its problem type; every message says what to do, and none
holds a full key, a body or a secret.
"""

from __future__ import annotations


class TwicesafeError(Exception):
    """Root of every error twicesafe raises on purpose."""


class ConfigurationError(TwicesafeError):
    """A setting is wrong. Raised where the setting is made, never while a request is served."""


# --- what a caller can be told ---------------------------------------------------------------------------------------


class RequestError(TwicesafeError):
    """The request cannot be served as sent. `status` and `problem` are what an HTTP caller is answered with."""

    status: int = 400
    problem: str = "bad-request"


class MissingKeyError(RequestError):
    """The operation requires an idempotency key and none was sent."""

    problem = "key-missing"


class InvalidKeyError(RequestError):
    """The idempotency key breaks the published format. Checked before any look-up."""

    problem = "key-invalid"


class BodyTooLargeError(RequestError):
    """The request body is over the operation's limit. Nothing was claimed."""

    status = 413
    problem = "body-too-large"


class ScopeError(RequestError):
    """The caller could not be identified, so a record would belong to nobody. Nothing was claimed."""

    status = 403
    problem = "caller-unknown"


class KeyReusedError(RequestError):
    """The key already names another request (I4)."""

    status = 422
    problem = "key-reused"


class InProgressError(RequestError):
    """Another attempt at the same intent is running. Ask again with the same key."""

    status = 409
    problem = "in-progress"


class OutcomeUnknownError(RequestError):
    """Nobody can prove what became of this intent (I6). A new key could do it twice."""

    status = 409
    problem = "outcome-unknown"


# --- what a store can meet -------------------------------------------------------------------------------------------


class StoreError(TwicesafeError):
    """A store did not do what it was asked."""


class StoreUnavailableError(StoreError):
    """The store could not be reached, or gave up before it changed anything."""


class AmbiguousWriteError(StoreError):
    """The store was asked to write and its answer was lost: the write may stand or not. Read back before deciding."""


class SchemaError(StoreError):
    """The database's tables are missing or of another version. The message names the command that mends it."""


class CommitRefusedError(StoreError):
    """A constraint of the application's own, checked at the commit, refused it: rolled back, for good."""


class LeaseLostError(StoreError):
    """The claim is no longer this owner's (I3): nothing was changed. Inside a transaction it was rolled back."""


class SealKeyMissingError(StoreUnavailableError):
    """A stored answer was encrypted with a key that this process does not have. The message names its id."""


class SealBrokenError(StoreError):
    """A stored answer was changed, moved to another record, or encrypted with a key that was thrown away."""


class FingerprintAlgorithmError(StoreError):
    """The record was fingerprinted by an algorithm this version does not know; a newer release wrote it."""


# --- what a client can meet ------------------------------------------------------------------------------------------


class ClientError(TwicesafeError):
    """A client could not send an operation, or was told that it did not succeed."""


class BodyNotRepeatableError(ClientError):
    """The request's body could not be sent a second time. Raised before it was sent a first time."""


class OutcomeError(ClientError):
    """Raised only where asked for, by `raise_for_outcome()`. `outcome` is the whole of what is known."""

    def __init__(self, message: str, outcome: object) -> None:
        super().__init__(message)
        self.outcome = outcome

    @property
    def key(self) -> str | None:
        """The idempotency key: whoever asks again asks with this one."""
        key: str | None = getattr(self.outcome, "key", None)
        return key


class RejectedError(OutcomeError):
    """The server said no."""


class UnknownError(OutcomeError):
    """Nobody can say yet whether the operation took effect. Asking again with the same key settles it."""
