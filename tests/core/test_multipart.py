"""multipart/form-data without its boundary: what makes no difference, what makes one, and what is taken as sent."""

from __future__ import annotations

import gzip
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from twicesafe.core.multipart import MAX_PARTS, canonical_multipart


class Part(NamedTuple):
    """One field of a form."""

    name: str
    content: bytes
    filename: str | None = None
    content_type: str | None = None


def body_of(parts: list[Part], boundary: str) -> bytes:
    """The form as browsers send it."""
    pieces = []
    for name, content, filename, content_type in parts:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'
        if filename is not None:
            head += f'; filename="{filename}"'
        if content_type is not None:
            head += f"\r\nContent-Type: {content_type}"
        pieces.append(head.encode() + b"\r\n\r\n" + content + b"\r\n")
    return b"".join(pieces) + f"--{boundary}--\r\n".encode()


def form(parts: list[Part], boundary: str = "XyZ") -> bytes | None:
    """The canonical form of these parts."""
    found = canonical_multipart(f"multipart/form-data; boundary={boundary}".encode(), b"", body_of(parts, boundary))
    return None if found is None else found[1]


def raw(body: bytes, content_type: bytes = b"multipart/form-data; boundary=b") -> bytes | None:
    """The canonical form of a body written by hand."""
    found = canonical_multipart(content_type, b"", body)
    return None if found is None else found[1]


names = st.text("abcé[] ", min_size=0, max_size=4)
parts_of_forms = st.builds(
    Part,
    names,
    st.binary(max_size=30),
    st.none() | st.text("abcé .", max_size=5),
    st.none() | st.sampled_from(["text/plain", "image/png", "text/plain; charset=utf-8"]),
)
forms = st.lists(parts_of_forms, max_size=5)
boundaries = st.text("ABCabc019'()+_,-./:=?", min_size=6, max_size=70)


def arranged(parts: list[Part]) -> list[Part]:
    """What a form amounts to: parts of one name in their order, names in any."""
    return sorted(parts, key=lambda part: part.name)


def clear(parts: list[Part], boundary: str) -> bool:
    """Whether no part holds the boundary."""
    return all(boundary.encode() not in part.content for part in parts)


# --- what makes no difference, and what makes one --------------------------------------------------------------------


@given(forms, boundaries, boundaries)
def test_the_boundary_makes_no_difference(parts: list[Part], one: str, other: str) -> None:
    """R8, F1: the same parts under two random boundaries are one request."""
    assume(clear(parts, one) and clear(parts, other))
    quoted = f'multipart/form-data; boundary="{other}"'.encode()
    found = canonical_multipart(quoted, b"", body_of(parts, other))
    assert found is not None and found[0] == b"multipart/form-data"
    mine = canonical_multipart(f'multipart/form-data; boundary="{one}"'.encode(), b"", body_of(parts, one))
    assert mine == found


@given(forms, st.data())
def test_fields_in_another_order_are_one_form(parts: list[Part], data: st.DataObject) -> None:
    """R8, F1: two arrangements are one request exactly if parts of one name keep their order."""
    other = data.draw(st.permutations(parts))
    assume(clear(parts, "XyZ"))
    assert (form(parts) == form(other)) == (arranged(parts) == arranged(other))


@given(forms, forms)
def test_two_forms_differ_if_any_part_does(one: list[Part], other: list[Part]) -> None:
    """R8, F1: name, file name, content type and every byte of every part count."""
    assume(clear(one, "XyZ") and clear(other, "XyZ"))
    assert (form(one) == form(other)) == (arranged(one) == arranged(other))


@given(forms, st.data())
def test_one_changed_byte_is_another_request(parts: list[Part], data: st.DataObject) -> None:
    """F1: one changed byte in a file is a mismatch."""
    assume(parts and clear(parts, "XyZ"))
    place = data.draw(st.integers(0, len(parts) - 1))
    content = parts[place].content
    changed = [*parts]
    changed[place] = parts[place]._replace(content=content[:-1] + bytes([(content[-1] if content else 0) ^ 1]))
    assert form(changed) != form(parts)


def test_every_byte_value_is_kept() -> None:
    """D4, R8: a binary part is hashed as it is, line ends and dashes included."""
    every = bytes(range(256)) * 4 + b"\r\n--\r\n\r\n--Xy--\n"
    found = form([Part("file", every, "x.bin", "application/octet-stream")])
    assert found is not None and found.endswith(b"%d:%b" % (len(every), every))


def test_the_form_is_written_as_promised() -> None:
    """R8: the form is stored in fingerprints, so its bytes are what the documentation says, for ever."""
    found = form([Part("b", b"2"), Part("a", b"\r\n", "ä.txt", "text/plain"), Part("b", b"1")])
    assert found == b"".join(
        [
            sized('content-disposition:form-data; name="a"; filename="ä.txt"\r\ncontent-type:text/plain'.encode()),
            sized(b"\r\n"),
            b'39:content-disposition:form-data; name="b"1:2',
            b'39:content-disposition:form-data; name="b"1:1',
        ]
    )


def sized(piece: bytes) -> bytes:
    """A piece with its length before it."""
    return b"%d:%b" % (len(piece), piece)


def test_headers_of_a_part_in_another_order_are_one_part() -> None:
    """R8: the order of header lines, the case of their names and blanks around values are spelling."""
    one = raw(b'--b\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: text/plain\r\nX: 1\r\n\r\nz\r\n--b--')
    two = raw(b'--b\r\nx:1 \r\nCONTENT-TYPE:\ttext/plain\r\ncontent-disposition:form-data; name="a"\r\n\r\nz\r\n--b--')
    assert one == two is not None
    assert raw(b'--b\r\nContent-Disposition: form-data; name="a"\r\nX: 2\r\n\r\nz\r\n--b--') != one


def test_lines_of_one_name_keep_their_order() -> None:
    """R8: where a reader would believe the last of two lines, their order counts."""
    head = b'--b\r\nContent-Disposition: form-data; name="a"\r\n'
    one = raw(head + b"X: 1\r\nX: 2\r\n\r\nz\r\n--b--")
    two = raw(head + b"X: 2\r\nX: 1\r\n\r\nz\r\n--b--")
    assert one is not None and two is not None and one != two


@pytest.mark.parametrize(
    "disposition",
    [
        b'form-data; name="a"',
        b"form-data; name=a",
        b'Form-Data; name=""',
        b'form-data; name="a"; filename="x.txt"',
        b'form-data; name="a"; filename=""',
        b"form-data; name=a; filename=x.txt",
        b'form-data; name="a"; filename="x"; filename*=utf-8\'\'%c3%a4',
        b'form-data; name="a"; filename="quote\\".txt"',
        b'form-data;name="a" ; filename="x"',
        'form-data; name="ä"'.encode(),
        'form-data; name="ä"'.encode("latin-1"),
    ],
)
def test_what_clients_send_is_understood(disposition: bytes) -> None:
    """F1: browsers, curl, requests, httpx, aiohttp, .NET and Java name their parts in these ways."""
    assert raw(b"--b\r\nContent-Disposition: " + disposition + b"\r\n\r\nz\r\n--b--\r\n") is not None


def test_an_empty_form_is_a_form() -> None:
    """R8: no field at all is a form without parts, and different from one with an empty part."""
    assert raw(b"--b--\r\n") == raw(b"--b--") == b""
    assert form([Part("", b"")]) != b""


def test_other_parameters_of_the_type_count() -> None:
    """R8: of the content type only the boundary is left out."""
    body = body_of([Part("a", b"z")], "b")
    one = canonical_multipart(b"multipart/form-data; boundary=b", b"", body)
    two = canonical_multipart(b"Multipart/Form-Data; charset=utf-8; boundary=b", b"", body)
    assert one is not None and two is not None
    assert two == (b'multipart/form-data;charset="utf-8"', one[1])


def test_a_gzipped_form_is_the_plain_one() -> None:
    """F1: one form, gzip-encoded once and plain once, is one request."""
    body = body_of([Part("a", b"z" * 100)], "b")
    content_type = b"multipart/form-data; boundary=b"
    plain = canonical_multipart(content_type, b"", body)
    assert plain is not None
    assert canonical_multipart(content_type, b"gzip", gzip.compress(body)) == plain
    assert canonical_multipart(content_type, b"br", body) is None


# --- what is taken as sent -------------------------------------------------------------------------------------------

GOOD = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nz\r\n--b--\r\n'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b",
        b"--b\r\n",
        b"--c--\r\n",
        b"preamble\r\n" + GOOD,
        b"\r\n" + GOOD,
        GOOD + b"epilogue",
        GOOD + b"\r\n",
        GOOD[:-4],
        GOOD[:-8],
        GOOD.replace(b"\r\n", b"\n"),
        GOOD.replace(b"--b\r\n", b"--b \r\n"),
        GOOD.replace(b"--b\r\n", b"--bc\r\n"),
        GOOD.replace(b"--b\r\n", b"--bxy"),
        GOOD.replace(b"\r\n\r\n", b"\r\n"),
        b"--b\r\n\r\nno header\r\n--b--\r\n",
        GOOD.replace(b"Content-Disposition", b"Content-Type"),
        GOOD.replace(b"Content-Disposition:", b"Content-Disposition"),
        GOOD.replace(b"Content-Disposition:", b"Content-Disposition :"),
        GOOD.replace(b"Content-Disposition: ", b": "),
        GOOD.replace(b"Content-Disposition: ", b"Content-Disposition:\r\n "),
        GOOD.replace(b'name="a"', b'name="a"\r\nContent-Disposition: form-data; name="b"'),
        GOOD.replace(b'name="a"', b'name="a"\0'),
        GOOD.replace(b'name="a"', b'name="a"\nX: 1'),
        GOOD.replace(b'name="a"', b'name="a"\r X: 1'),
        *[GOOD.replace(b'name="a"', b'name="a"\r\nX: 1' + stray + b"2") for stray in (b"\0", b"\r", b"\n")],
        GOOD.replace(b'name="a"', b'name="a"; name="b"'),
        GOOD.replace(b'name="a"', b'name="a\\"b"'),
        GOOD.replace(b'name="a"', b'name="a'),
        GOOD.replace(b'name="a"', b"name="),
        GOOD.replace(b'name="a"', b'filename="x"'),
        GOOD.replace(b'name="a"', b'filename="x"; name="a"'),
        GOOD.replace(b'name="a"', b'name="a"; filename="C:\\"'),
        GOOD.replace(b'name="a"', b'name="a"; size=1'),
        GOOD.replace(b"form-data", b"attachment"),
        GOOD.replace(b"\r\nz\r\n", b"\r\nz\r\n--b\r\nz\r\n"),
    ],
)
def test_malformed_forms_are_taken_as_sent(body: bytes) -> None:
    """R8: where parsers may differ about what was sent, nothing is merged with anything."""
    assert raw(GOOD) is not None
    assert raw(body) is None


@pytest.mark.parametrize(
    "content_type",
    [
        b"",
        b"multipart/form-data",
        b"multipart/form-data; boundary=",
        b'multipart/form-data; boundary=""',
        b"multipart/form-data; boundary=b; boundary=b",
        b'multipart/form-data; boundary="b "',
        b'multipart/form-data; boundary="b;"',
        b"multipart/form-data; boundary=" + b"b" * 71,
        b"multipart/mixed; boundary=b",
        b"application/x-www-form-urlencoded",
    ],
)
def test_other_types_are_taken_as_sent(content_type: bytes) -> None:
    """R8: without exactly one boundary of RFC 2046 there are no parts."""
    assert raw(GOOD, content_type) is None


def test_a_thousand_parts_and_no_more() -> None:
    """K: the work for one body is bounded."""
    assert form([Part("a", b"")] * MAX_PARTS) is not None
    assert form([Part("a", b"")] * (MAX_PARTS + 1)) is None


@given(st.text('-b\r\n:;="axform-dContet Disposition', max_size=120).map(str.encode))
def test_no_body_makes_it_raise(body: bytes) -> None:
    """K: any bytes are a form or taken as sent."""
    assert isinstance(raw(body), bytes | None)
    assert isinstance(raw(b'--b\r\nContent-Disposition: form-data; name="a"\r\n' + body), bytes | None)


def test_hostile_headers_cost_no_more_than_their_length() -> None:
    """K: no header makes the parser go over it again and again: these would take minutes otherwise."""
    for long in (
        b'name="a"' + b" " * 200_000 + b"x",
        b'name="a"' + b"; filename=x" * 20_000 + b'"',
        b'name="a"; filename="' + b"\\" * 200_001 + b'"',
        b"name=" + b"a" * 200_000 + b"=",
        b'name="a"; filename=' + b"a" * 200_000 + b'"',
    ):
        assert raw(GOOD.replace(b'name="a"', long)) is None
