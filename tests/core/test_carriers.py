"""Keys that stand elsewhere than in a header."""

from __future__ import annotations

import gzip

import pytest

from twicesafe.core.carriers import Field, FormField, JsonMember, QueryParameter, body_may_carry, key_in
from twicesafe.core.keys import KeyRule
from twicesafe.core.policy import Policy
from twicesafe.core.presented import presented_key
from twicesafe.errors import ConfigurationError, InvalidKeyError, MissingKeyError

RULE = KeyRule()
MEMBER = (JsonMember("idempotency_key"),)
FIELD = (FormField("idempotency_key"),)
PARAMETER = (QueryParameter("request_id"),)
JSON = b"application/json; charset=utf-8"
URLENCODED = b"application/x-www-form-urlencoded"
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="idempotency_key"\r\n\r\nk-1\r\n'
    b'--b\r\nContent-Disposition: form-data; name="amount"\r\n\r\n100\r\n--b--\r\n'
)


def test_a_member_of_a_json_body() -> None:
    """R5: the outermost object's member is the key; the same name further in is not."""
    body = b'{"amount": 1, "idempotency_key": "k-1", "inner": {"idempotency_key": "other"}}'
    assert key_in((), MEMBER, RULE, content_type=JSON, body=body) == "k-1"
    assert key_in((), MEMBER, RULE, content_type=JSON, body=b'{"inner": {"idempotency_key": "k"}}') is None
    assert key_in((), MEMBER, RULE, content_type=JSON, body=b'[{"idempotency_key": "k"}]') is None
    assert key_in((), MEMBER, RULE, content_type=b"application/vnd.api+json", body=body) == "k-1"
    assert key_in((), MEMBER, RULE, content_type=b"text/plain", body=body) is None


@pytest.mark.parametrize("body", [b"", b"{", b'"\\ud800', b"[" * 100_000, b"\xff\xfe", b"9" * 5000, b"null"])
def test_what_is_no_json_has_no_key(body: bytes) -> None:
    """R5, K: a body that is no JSON, and has the member's name nowhere, carries no key and never raises."""
    assert key_in((), MEMBER, RULE, content_type=JSON, body=body) is None


@pytest.mark.parametrize("value", [b"1", b"true", b"[]", b'{"a": 1}', b'""', b'" "', b'"\xc3\xa9"'])
def test_a_member_that_is_no_key_is_refused(value: bytes) -> None:
    """R4: numbers, lists, empty and non-ASCII values are refused by the rule of every key."""
    with pytest.raises(InvalidKeyError):
        key_in((), MEMBER, RULE, content_type=JSON, body=b'{"idempotency_key": %b}' % value)


def test_null_is_no_key() -> None:
    """R5: a member that is null says that there is none."""
    assert key_in((), MEMBER, RULE, content_type=JSON, body=b'{"idempotency_key": null}') is None


def test_a_field_of_a_form() -> None:
    """R5: a hidden field works in both encodings of a form."""
    assert key_in((), FIELD, RULE, content_type=URLENCODED, body=b"amount=1&idempotency_key=k%2D1") == "k-1"
    assert key_in((), FIELD, RULE, content_type=b"multipart/form-data; boundary=b", body=FORM) == "k-1"
    assert key_in((), FIELD, RULE, content_type=URLENCODED, body=b"amount=1") is None
    with pytest.raises(InvalidKeyError):
        key_in((), FIELD, RULE, content_type=URLENCODED, body=b"idempotency_key=")


def test_a_name_beyond_ascii() -> None:
    """R5: a field's name may hold any character, in each of the places."""
    assert key_in((), (FormField("clé"),), RULE, content_type=URLENCODED, body=b"cl%C3%A9=k-1") == "k-1"
    assert key_in((), (QueryParameter("clé"),), RULE, query=b"cl%C3%A9=k-1") == "k-1"
    assert key_in((), (JsonMember("clé"),), RULE, content_type=JSON, body=rb'{"cl\u00e9": "k-1"}') == "k-1"


def test_a_parameter_of_the_query() -> None:
    """R5: the query carries a key whatever the body is."""
    assert key_in((), PARAMETER, RULE, query=b"a=1&request_id=k-1") == "k-1"
    assert key_in((), PARAMETER, RULE, query=b"a=1") is None


def test_a_compressed_body_is_read() -> None:
    """R5: a body that came compressed carries the key that it holds."""
    body = gzip.compress(b'{"idempotency_key": "k-1"}')
    assert key_in((), MEMBER, RULE, content_type=JSON, content_encoding=b"gzip", body=body) == "k-1"


@pytest.mark.parametrize(
    ("fields", "types", "body"),
    [
        (MEMBER, {"content_type": JSON, "content_encoding": b"gzip"}, b"no gzip"),
        (MEMBER, {"content_type": JSON, "content_encoding": b"br"}, b'{"idempotency_key": "k-1"}'),
        (MEMBER, {"content_type": JSON}, b'{"idempotency_key": "k-1", "amount": %b}' % (b"9" * 5000)),
        (MEMBER, {"content_type": JSON}, b'{"idempotency_key": "k-1", "deep": %b}' % (b"[" * 100_000 + b"]" * 100_000)),
        (MEMBER, {"content_type": JSON}, b'{"idempotency_key": "k-1", "name": "Andr\xe9"}'),
        (MEMBER, {"content_type": JSON}, b'{"idempotency_key": "k-1", "name": "a\tb"}'),
        (MEMBER, {"content_type": JSON}, b'{"idempotency_key": "k-1",} // the last comma'),
        (MEMBER, {}, b"{'idempotency_key': 'k-1'}"),
        (FIELD, {"content_type": b"multipart/form-data; boundary=b"}, b"preamble\r\n" + FORM),
        (FIELD, {"content_type": b'multipart/form-data; boundary=b; a="\\""'}, FORM),
    ],
)
def test_a_body_that_hides_its_key_is_refused(fields: tuple[Field, ...], types: dict[str, bytes], body: bytes) -> None:
    """R5, I2: what may hold a key that cannot be read is not run without it, unless another place names the key."""
    with pytest.raises(InvalidKeyError):
        key_in((), fields, RULE, body=body, **types)
    assert key_in([b"k-1"], fields, RULE, body=body, **types) == "k-1"


def test_a_form_of_another_grammar_without_the_field_has_no_key() -> None:
    """R5: a form that only lacks the field passes, however it is written."""
    form = b"preamble\r\n" + FORM.replace(b"idempotency_key", b"other")
    assert key_in((), FIELD, RULE, content_type=b"multipart/form-data; boundary=b", body=form) is None


@pytest.mark.parametrize(
    ("fields", "content_type", "read"),
    [
        (MEMBER, JSON, True),
        (MEMBER, b"application/vnd.api+json", True),
        (MEMBER, b"", True),
        (MEMBER, b"application/octet-stream", False),
        (MEMBER, URLENCODED, False),
        (FIELD, URLENCODED, True),
        (FIELD, b"multipart/form-data; boundary=b", True),
        (FIELD, JSON, False),
        (PARAMETER, JSON, False),
        ((), JSON, False),
        ((*PARAMETER, *FIELD, *MEMBER), b"image/png", False),
    ],
)
def test_only_a_body_that_may_carry_a_key_is_read_for_it(
    fields: tuple[Field, ...], content_type: bytes, *, read: bool
) -> None:
    """R5: a large upload of another type flows on without being held back."""
    assert body_may_carry(fields, content_type) is read


def test_a_body_without_a_type_may_be_json() -> None:
    """R5: some frameworks take a body without Content-Type for JSON, and so does the search for its key."""
    assert key_in((), MEMBER, RULE, body=b'{"idempotency_key": "k-1"}') == "k-1"
    assert key_in((), MEMBER, RULE, body=b"anything") is None


def test_a_request_presents_its_key_by_its_policy() -> None:
    """R3, R5: in the header, in a field, or not at all where none is required."""
    policy = Policy(fields=(*MEMBER, *PARAMETER))
    assert presented_key(policy, [b"k-1"], query=b"request_id=k-1") == "k-1"
    assert presented_key(policy, (), content_type=JSON, body=b'{"idempotency_key": "k-1"}') == "k-1"
    assert presented_key(policy, (), content_type=JSON, body=b"{}") is None
    with pytest.raises(MissingKeyError, match="Idempotency-Key"):
        presented_key(policy.but(required=True), ())


def test_where_fields_count_no_header_line_is_the_key_at_once() -> None:
    """R4: the short way past the other places is for policies that have none."""
    assert Policy().plain_key(b"k-1") and not Policy(fields=MEMBER).plain_key(b"k-1")


def test_two_places_have_to_agree() -> None:
    """R4: one key in two places is one key; two keys are refused, two members of one name too."""
    body = b'{"idempotency_key": "k-1"}'
    assert key_in([b'"k-1"'], MEMBER, RULE, content_type=JSON, body=body) == "k-1"
    with pytest.raises(InvalidKeyError):
        key_in([b"k-2"], MEMBER, RULE, content_type=JSON, body=body)
    with pytest.raises(InvalidKeyError):
        key_in((), MEMBER, RULE, content_type=JSON, body=b'{"idempotency_key": "a", "idempotency_key": "b"}')
    with pytest.raises(InvalidKeyError):
        key_in((), PARAMETER, RULE, query=b"request_id=a&request_id=b")


def test_empty_may_mean_none() -> None:
    """R5: by choice an empty key is none."""
    assert key_in([b""], MEMBER, RULE, content_type=JSON, body=b'{"idempotency_key": ""}', empty_is_none=True) is None


def test_a_policy_names_at_least_one_place() -> None:
    """R5: without a header there has to be a field, and a field has to be one."""
    assert Policy(header="", fields=MEMBER).key_name == "idempotency_key"
    with pytest.raises(ConfigurationError, match="has to stand somewhere"):
        Policy(header="")
    with pytest.raises(ConfigurationError, match="fields must be"):
        Policy(fields=("idempotency_key",))  # type: ignore[arg-type]
