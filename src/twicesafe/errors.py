"""One error tree. Imports nothing.

An error that an HTTP caller can meet knows its status and its problem type; every message says what to do, and none
holds a full key, a body or a secret.
"""

from __future__ import annotations


class TwicesafeError(Exception):
    """Root of every error twicesafe raises on purpose."""


class ConfigurationError(TwicesafeError):
    """A setting is wrong. Raised where the setting is made, never while a request is served."""


class RebuildError(TwicesafeError):
    """An operation's `rebuild` raised, or gave no answer. Told to the observer; the duplicate got what is stored."""


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


class BodyIncompleteError(RequestError):
    """The request body ended before its end, or cannot be read to it. Nothing was claimed."""

    problem = "body-incomplete"


class FirstSentInvalidError(RequestError):
    """When the request was first sent is to be said, and was not, or not as a time. Checked before any look-up."""

    problem = "first-sent-invalid"


class FirstSentExpiredError(RequestError):
    """The request was first sent too long ago to tell whether it was carried out. Nothing was claimed."""

    status = 412
    problem = "first-sent-expired"


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


class PreconditionError(RequestError):
    """The request's precondition was refused, and nothing was done: If-Match, If-None-Match and their kind."""


class PreconditionInvalidError(PreconditionError):
    """The precondition cannot be read. Without it the change could be made to a state that it was not made for."""

    problem = "precondition-invalid"


class PreconditionFailedError(PreconditionError):
    """The state that the change was made for is not the current one."""

    status = 412
    problem = "precondition-failed"


class PreconditionRequiredError(PreconditionError):
    """The operation requires a precondition and none was sent."""

    status = 428
    problem = "precondition-required"


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


class CallRefusedError(ClientError):
    """The request could not be sent a second time under the key of its call, or has no call. It was not sent."""


class RedirectedElsewhereError(ClientError):
    """The server redirected a keyed operation to another origin, where its key means nothing. It was not sent there."""


class IntentStoreError(ClientError):
    """A file of intents could not be used. Nothing in it was lost; the message names the file and says what to do."""


class IntentChangedError(ClientError):
    """The name or the key is reserved for an intent with other bytes. Nothing was reserved, and nothing sent."""


class IntentSettledError(ClientError):
    """What became of the intent is known, and to send it again could do it again. It was not sent."""


class IntentOverdueError(ClientError):
    """Nobody knows what became of the intent, and its server may have forgotten its key. It was not sent (I6)."""


class FailedAnswerError(ClientError):
    """The server answered that it failed. Circuit breakers are told so; nothing raises it."""


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


# --- what a caller of a plain function can meet ----------------------------------------------------------------------


class ValueNotKeptError(TwicesafeError):
    """A value cannot be kept as bytes so that the same comes back. For arguments, raised before anything is claimed."""


class ResultNotKeptError(TwicesafeError):
    """The function has run under this key, and what it gave is not kept. Nothing was run again."""


class FailedBeforeError(TwicesafeError):
    """The function has run under this key, and raised. Nothing was run again; this is the answer to every retry."""


# --- what an operation of several steps can meet ---------------------------------------------------------------------


class HeldError(TwicesafeError):
    """The operation cannot go on by itself: its outcome is held as unknown until somebody settles it (I6)."""


class DefinitionChangedError(HeldError):
    """The operation's steps are not those that it took before. It is held for a human, never guessed."""


class AttemptsExhaustedError(HeldError):
    """The operation was resumed often enough, and never came to its end. It is held for a human."""


class StepGivenUpError(TwicesafeError):
    """A step was given up for a time-out of the operation's own, which therefore goes no further and has no result.

    The next attempt takes the step again.
    """


class CallUnknownError(HeldError):
    """A call to another system may have been carried out, and there is no safe way to find out or to ask again."""


class CallRejectedError(TwicesafeError):
    """Another system refused a call for good. Raised anew on every attempt, with what it said the first time."""


# --- what messages can meet ------------------------------------------------------------------------------------------


class InvalidMessageError(TwicesafeError, ValueError):
    """A message lacks something, or has something that not every database and broker can carry. Nothing was written."""


class MessageExistsError(TwicesafeError):
    """A message of this id is in the outbox already. Nothing was written, and the transaction goes on."""


class NotInTransactionError(TwicesafeError):
    """The connection commits each statement by itself, so what is written would be tied to nothing. Nothing was."""


class RefusedError(TwicesafeError):
    """A publisher's word that a message can never be delivered as it is. Says why, and repeats nothing of its data."""


class NotDeliveredError(TwicesafeError):
    """A message was not acknowledged. It may have arrived all the same; it has to be tried again, under the same id.

    `retry_after`: seconds that its receiver asks to be left alone, None where it does not say.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SignatureError(TwicesafeError):
    """A webhook is not signed by anybody who has one of the secrets, or not lately. Nothing was done about it."""
