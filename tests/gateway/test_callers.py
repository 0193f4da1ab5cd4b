"""Who a request comes from."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.gateway.scripted import Service, answer, problem_of
from twicesafe.errors import ConfigurationError
from twicesafe.gateway import CallerClaim

ISSUER, AUDIENCE = "https://login.example/", "shop"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, kid: str, algorithm: str, **more: str) -> dict[str, Any]:
    made: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, **more}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **claims: Any) -> str:
    given = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 600, **claims}
    return jwt.encode(
        {name: value for name, value in given.items() if value is not None}, key, algorithm, {"kid": kid} if kid else {}
    )


SET = {"keys": [jwk(RSA, "rsa", "RS256"), jwk(EC, "ec", "ES256", alg="ES256"), jwk(ED, "ed", "EdDSA", use="sig")]}


@pytest.fixture
def tokens(rig, tmp_path):
    """A gateway that goes by tokens; `ask` sends one."""
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(SET))
    rig.clock = 1000.0
    rig.set_up(caller=CallerClaim("sub", keys=str(path), issuer=ISSUER, audience=AUDIENCE, clock=lambda: rig.clock))
    rig.keys = path
    return rig


def ask(rig: Any, bearer: str, key: str = "k-1", scheme: str = "Bearer") -> Any:
    return rig.ask("POST", "/jobs", f"Authorization: {scheme} {bearer}", key=key, user="")


def test_callers_do_not_meet(rig):
    """I7, R6: one key of two callers is two intents, and neither sees the other's answer."""
    rig.service.script = lambda wire: wire.send(answer(rig.service.asked[-1].value("x-user-id").encode()))
    answered = [rig.ask(key="k-1", user=user) for user in ("ann", "ben", "ann", "ben")]
    assert len(rig.service.asked) == 2
    assert [one.body for one in answered] == [b"ann", b"ben", b"ann", b"ben"]


@pytest.mark.parametrize("lines", [[], ["X-User-Id:"], ["X-User-Id:  "]])
def test_nobody_has_no_keys(rig, lines):
    """R6: without an identity a keyed request is refused with 403 and never sent; an unkeyed one is not concerned."""
    answered = rig.ask("POST", "/", *lines, key="k-1", user="")
    assert rig.service.asked == []
    assert (answered.status, problem_of(answered)) == (403, "caller-unknown")
    assert rig.ask("POST", "/", *lines, user="").status == 201


@pytest.mark.parametrize(
    "lines", [["X-User-Id: ann", "X-User-Id: ben"], ["X-User-Id: \xff"], ["X-User-Id: " + "a" * 256]]
)
def test_an_identity_that_is_not_one(rig, lines):
    """R6: two lines, bytes that are no text, a name without end: 400, whoever wrote which."""
    answered = rig.ask("POST", "/", *lines, key="k-1", user="")
    assert rig.service.asked == []
    assert (answered.status, problem_of(answered)) == (400, "caller-unknown")


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "rsa"), (RSA, "PS256", "rsa"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed")],
)
def test_a_token_names_its_caller(tokens, key, algorithm, kid):
    """R6: another token of the same subject is the same caller, whatever it was signed with."""
    first = ask(tokens, token())
    again = ask(tokens, token(key, algorithm, kid, jti="another"))
    other = ask(tokens, token(sub="ben"))
    assert len(tokens.service.asked) == 2
    assert (first.status, again.values("idempotent-replayed"), other.values("idempotent-replayed")) == (
        201,
        ["true"],
        [],
    )


def unsigned(**head: str) -> str:
    parts = [{"typ": "JWT", **head}, {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 600}]
    return ".".join([base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]) + "."


def by_shared_secret() -> str:
    """HS256 with the public key as the secret, which a verifier that goes by the token's own algorithm accepts."""
    import hashlib
    import hmac

    secret = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    signed = unsigned(alg="HS256", kid="rsa").rstrip(".")
    mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


FORGED = {
    "expired": lambda: token(exp=int(time.time()) - 60),
    "without an end": lambda: token(exp=None),
    "not yet valid": lambda: token(nbf=int(time.time()) + 600),
    "of another issuer": lambda: token(iss="https://evil.example/"),
    "of no issuer": lambda: token(iss=None),
    "for somebody else": lambda: token(aud="bank"),
    "for nobody": lambda: token(aud=None),
    "unsigned": lambda: unsigned(alg="none", kid="rsa"),
    "signed with the public key": by_shared_secret,
    "signed by a stranger": lambda: token(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
    "signed by another key of the set": lambda: token(EC, "ES256", "rsa"),
    "by an algorithm that is not taken": lambda: token(RSA, "RS512"),
    "by an unknown key": lambda: token(kid="gone"),
    "by no key in particular": lambda: token(kid=None),
    "changed": lambda: token()[:-8] + "AAAAAAAA",
    "garbage": lambda: "a.b.c",
    "not ASCII": lambda: "\xff\xfe",
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_token_that_does_not_hold(tokens, forged):
    """R6, R22: 401 with a challenge, on a replay as well, and nothing is sent."""
    bearer = FORGED[forged]()
    refused = ask(tokens, bearer)
    assert tokens.service.asked == []
    assert (refused.status, problem_of(refused)) == (401, "caller-unknown")
    assert refused.values("www-authenticate")[0].startswith('Bearer error="invalid_token"')
    assert bearer.encode("latin-1") not in refused.body
    assert ask(tokens, token()).status == 201
    assert ask(tokens, bearer).status == 401
    assert len(tokens.service.asked) == 1


@pytest.mark.parametrize(("scheme", "bearer", "status"), [("Basic", "YTpi", 401), ("Bearer", "", 401), ("", "", 401)])
def test_no_token(tokens, scheme, bearer, status):
    """R6: another scheme, or nothing: 401 that asks for a token."""
    refused = ask(tokens, bearer, scheme=scheme)
    assert tokens.service.asked == []
    assert (refused.status, refused.values("www-authenticate")) == (status, ["Bearer"])


def test_two_tokens(tokens):
    """R6: which of two lines counts is not guessed."""
    refused = tokens.ask("POST", "/", f"Authorization: Bearer {token()}", "Authorization: Bearer x", key="k", user="")
    assert (refused.status, tokens.service.asked) == (400, [])


@pytest.mark.parametrize("subject", [None, "", 7, ["ann"], "a" * 256])
def test_a_token_without_the_claim(tokens, subject):
    """R6: a valid token that names nobody is 403, like a missing header."""
    if subject in (7, ["ann"]):
        bearer = token(tenant=subject)
        tokens.set_up(caller=CallerClaim("tenant", keys=str(tokens.keys), issuer=ISSUER, audience=AUDIENCE))
    else:
        bearer = token(sub=subject)
    refused = ask(tokens, bearer)
    assert (refused.status, tokens.service.asked) == (403, [])


def test_keys_change(tokens):
    """R22: a new key is found when a token names it, a key that was taken away is trusted for five minutes at most."""
    new = ec.generate_private_key(ec.SECP256R1())
    assert ask(tokens, token(), "k-1").status == 201
    tokens.keys.write_text(json.dumps({"keys": [jwk(new, "new", "ES256")]}))
    assert ask(tokens, token(new, "ES256", "new"), "k-2").status == 401
    assert ask(tokens, token(), "k-2").status == 201
    tokens.clock += 11
    assert ask(tokens, token(new, "ES256", "new"), "k-3").status == 201
    assert ask(tokens, token(), "k-4").status == 401
    tokens.keys.unlink()
    tokens.clock += 1000
    assert ask(tokens, token(new, "ES256", "new"), "k-5").status == 201
    tokens.keys.write_text(json.dumps({"keys": [jwk(RSA, "rsa", "RS256")]}))
    tokens.clock += 11
    assert ask(tokens, token(new, "ES256", "new"), "k-6").status == 401


def test_keys_by_url(rig):
    """R6: the set may be at a URL, which is asked once; while it cannot be had nobody is let through."""
    keys = Service()
    try:
        rig.clock = 0.0
        rig.set_up(
            caller=CallerClaim(
                "sub", keys=f"{keys.url}/jwks", issuer=ISSUER, audience=AUDIENCE, clock=lambda: rig.clock
            )
        )
        keys.script = lambda wire: wire.send(answer(b"no", status=b"500 Oh"))
        refused = ask(rig, token())
        assert (refused.status, refused.values("retry-after"), rig.service.asked) == (503, ["1"], [])
        keys.script = lambda wire: wire.send(answer(json.dumps(SET).encode(), status=b"200 OK"))
        rig.clock += 11
        assert [ask(rig, token()).status for _ in range(3)] == [201] * 3
        assert len(keys.asked) == 2
    finally:
        keys.close()


@pytest.mark.parametrize(
    "keys", [[], [{"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"}], [{"kty": "?"}], [jwk(RSA, "rsa", "RS256", use="enc")]]
)
def test_sets_without_a_key_to_verify_by(rig, tmp_path, keys):
    """R6: secrets and keys for encryption verify nothing."""
    path = Path(tmp_path / "jwks.json")
    path.write_text(json.dumps({"keys": keys}))
    rig.set_up(caller=CallerClaim("sub", keys=str(path), issuer=ISSUER, audience=AUDIENCE))
    assert (ask(rig, token()).status, rig.service.asked) == (503, [])


@pytest.mark.parametrize("odd", [jwk(EC, [], "ES256"), {**jwk(EC, "odd", "ES256"), "crv": []}, {"kty": []}, 7])
def test_a_set_with_an_odd_key(rig, tmp_path, odd):
    """R6: what is no key is passed over, and the others are as good as before."""
    path = Path(tmp_path / "jwks.json")
    path.write_text(json.dumps({"keys": [odd, jwk(RSA, "rsa", "RS256")]}))
    rig.set_up(caller=CallerClaim("sub", keys=str(path), issuer=ISSUER, audience=AUDIENCE))
    assert ask(rig, token()).status == 201


def test_a_set_that_cannot_be_read(rig, tmp_path):
    """R6: whatever the document is, nobody is let through, and that is said."""
    path = Path(tmp_path / "jwks.json")
    path.write_text("[" * 1_000_000)
    rig.set_up(caller=CallerClaim("sub", keys=str(path), issuer=ISSUER, audience=AUDIENCE))
    assert (ask(rig, token()).status, rig.service.asked) == (503, [])


@pytest.mark.parametrize("algorithms", [(), ("HS256",), ("none",), ("RS256", "HS512")])
def test_algorithms_are_pairs_of_keys(algorithms):
    """R6: an algorithm whose verifiers could sign is refused where the gateway is made."""
    with pytest.raises(ConfigurationError, match="algorithms"):
        CallerClaim("sub", keys="x", issuer=ISSUER, audience=AUDIENCE, algorithms=algorithms)
