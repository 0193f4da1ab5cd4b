"""Signatures of webhooks, against those of Standard Webhooks' own libraries."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import timedelta
from itertools import product

import pytest

from twicesafe.core.signatures import read_secrets, sign, signable, verify
from twicesafe.errors import ConfigurationError, InvalidMessageError, SignatureError

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + "c2VjcmV0" * 4
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'
THEN = 1_614_265_330
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
"""What the specification's libraries make of the above, by their own tests."""


def headers(**changed: str) -> dict[str, str]:
    """Those of the specification's libraries' tests."""
    lines = {"webhook-id": ID, "webhook-timestamp": str(THEN), "webhook-signature": SIGNATURE}
    return lines | {f"webhook-{name}": value for name, value in changed.items()}


def test_signatures_are_those_of_other_libraries() -> None:
    """R28: what is signed here is verified elsewhere, and the other way round."""
    assert dict(sign(read_secrets(SECRET), ID, THEN, BODY)) == headers()
    assert verify(read_secrets(SECRET), headers(), BODY, THEN) == ID


@pytest.mark.parametrize(
    ("changed", "body"),
    [
        ({"id": "msg_other"}, BODY),
        ({"timestamp": str(THEN + 1)}, BODY),
        ({"signature": SIGNATURE[:-3] + "aE="}, BODY),
        ({"signature": SIGNATURE.replace("v1,", "v2,")}, BODY),
        ({"signature": "v1,"}, BODY),
        ({"signature": "v1,größe"}, BODY),
        ({"signature": ""}, BODY),
        ({"id": ""}, BODY),
        ({"timestamp": ""}, BODY),
        ({"timestamp": "soon"}, BODY),
        ({"timestamp": f"{THEN}.5"}, BODY),
        ({}, BODY + b" "),
    ],
)
def test_whatever_was_changed_is_noticed(changed: dict[str, str], body: bytes) -> None:
    """R28: id, time and body are what was signed, or the webhook is refused."""
    with pytest.raises(SignatureError):
        verify(read_secrets(SECRET), headers(**changed), body, THEN)


def test_one_signature_is_of_one_webhook() -> None:
    """R28, I9: whoever cuts a signed text elsewhere has no second webhook of it: of `m.9` at 5 with the body `b`, none
    of `m` at 9 with the body `5.b`. Tried with all short texts of a letter, a number and a dot."""
    secrets, cut = read_secrets(SECRET), {}
    words = ["".join(letters) for length in range(1, 6) for letters in product("a5.", repeat=length)]
    for message_id, timestamp, body in product(words, ("5", "55"), ("", "5.", "5.a", ".", "5.5.", "a", "55.a")):
        try:
            made = dict(sign(secrets, message_id, int(timestamp), body.encode()))
        except InvalidMessageError:
            continue
        assert cut.setdefault(made["webhook-signature"], (message_id, timestamp, body)) == (message_id, timestamp, body)
    assert len(cut) > 1000


@pytest.mark.parametrize("message_id", [f"m.{THEN}", "m.5.x", ".5"])
def test_an_id_that_could_be_another_and_a_time_is_refused(message_id: str) -> None:
    """R28: also of a sender that signs it; encoded it is the same id."""
    secrets = read_secrets(SECRET)
    with pytest.raises(InvalidMessageError):
        sign(secrets, message_id, THEN, BODY)
    text = f"{message_id}.{THEN}.".encode() + BODY
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    lines = headers(id=message_id, signature=f"v1,{signature}")
    with pytest.raises(SignatureError, match="between dots"):
        verify(secrets, lines, BODY, THEN)
    encoded = signable(message_id)
    assert "." not in encoded
    assert verify(secrets, dict(sign(secrets, encoded, THEN, BODY)), BODY, THEN) == encoded


@pytest.mark.parametrize("message_id", [ID, "order.a5", "v1.order", "5.order", "a..b"])
def test_an_id_that_is_no_other_stays_as_it_is(message_id: str) -> None:
    """R28: receivers know it by what it is."""
    assert signable(message_id) == message_id
    assert (
        verify(read_secrets(SECRET), dict(sign(read_secrets(SECRET), message_id, THEN, b"")), b"", THEN) == message_id
    )


@pytest.mark.parametrize(("off", "taken"), [(-300, True), (300, True), (-301, False), (301, False)])
def test_an_old_signature_is_refused(off: int, taken: bool) -> None:
    """R28: what was signed five minutes ago, or by a clock five minutes ahead, is taken; what is further is not."""
    if taken:
        assert verify(read_secrets(SECRET), headers(), BODY, THEN + off) == ID
        return
    with pytest.raises(SignatureError, match="too long ago"):
        verify(read_secrets(SECRET), headers(), BODY, THEN + off, timedelta(minutes=5))


def test_secrets_can_be_changed() -> None:
    """R28: while a secret is changed, sender and receiver agree whichever of them goes first."""
    old, new, both = read_secrets(SECRET), read_secrets(OTHER), read_secrets([OTHER, SECRET])
    for signing, taking in ((both, old), (both, new), (old, both), (new, both)):
        assert verify(taking, dict(sign(signing, ID, THEN, BODY)), BODY, THEN) == ID
    with pytest.raises(SignatureError, match="none of the secrets"):
        verify(new, headers(), BODY, THEN)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2hvcnQ=", "not base64 at all, is it?", []])
def test_a_secret_that_protects_nothing_is_refused(secret: str | list[str]) -> None:
    """R28: an empty, short or unreadable secret is a mistake in the configuration, and is not repeated in the error."""
    with pytest.raises(ConfigurationError) as caught:
        read_secrets(secret)
    assert not isinstance(secret, str) or len(secret) < 10 or secret not in str(caught.value)
    assert SECRET not in repr(read_secrets(SECRET)) and "MfKQ" not in repr(read_secrets(SECRET))
