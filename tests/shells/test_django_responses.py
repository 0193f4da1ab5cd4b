"""Responses of every kind of Django's: cookies, templates, files, streams."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import path as url

from tests.shells import django_site
from tests.shells.django_site import Callers, Site, problem, same
from twicesafe.core.record import RecordState
from twicesafe.django import idempotent

DAY = timedelta(days=1)
GZIP = "django.middleware.gzip.GZipMiddleware"
CSRF = "django.middleware.csrf.CsrfViewMiddleware"
COMMON = "django.middleware.common.CommonMiddleware"


@pytest.fixture
def site(tmp_path):
    made = django_site.on_file(tmp_path)
    yield made
    made.close()
    Callers.revoked.clear()


def test_cookies_are_a_rule(site: Site) -> None:
    """D1, D3: two cookies with dates are not handed out again, or again line by line where the policy says so."""

    def work(request: Any) -> HttpResponse:
        site.append()
        response = HttpResponse("x")
        response.set_cookie("a", "1", expires="Mon, 21 Oct 2030 07:28:00 GMT")
        response.set_cookie("b", 'quoted "two"', max_age=60, samesite="Lax", secure=True)
        return response

    with site.serving(url("not", idempotent(name="not")(work)), url("jobs", idempotent(store_cookies=True)(work))):
        assert not (site.post("/not"), site.post("/not"))[1].cookies
        first = site.post(key="other")
        assert len(first.cookies) == 2
        same(first, site.post(key="other"))
    assert site.rows() == 2


@pytest.mark.parametrize("effects", ["opaque", "keyed", "transactional"])
def test_an_answer_that_nobody_could_send_holds_no_key(site: Site, effects: str) -> None:
    """B7, E4, R16: a cookie that is no header line fails after the work; nothing of that is left running."""

    @idempotent(effects=effects, name=effects)
    def view(request: Any) -> HttpResponse:
        site.append()
        response = HttpResponse("done")
        response.set_cookie("price", "10 \u20ac")
        return response

    with site.serving(view):
        assert [site.post().status_code, site.post().status_code] == [500, 500]
    assert site.rows() == {"opaque": 1, "keyed": 2, "transactional": 0}[effects]
    record = site.record()
    assert (None if record is None else record.state) == {
        "opaque": RecordState.COMPLETED,
        "keyed": RecordState.CLAIMED,
        "transactional": None,
    }[effects]


def test_templates_are_rendered_before_they_are_recorded(site: Site) -> None:
    """E4, D2: a TemplateResponse is recorded as it was sent, callbacks after rendering included."""

    @idempotent()
    def work(request: Any) -> HttpResponse:
        response = TemplateResponse(request, "n.html", {"n": site.append()})
        response.add_post_render_callback(lambda rendered: rendered.headers.__setitem__("X-After", "1"))
        return response

    loaders = [("django.template.loaders.locmem.Loader", {"n.html": "<b>{{ n }}</b>"})]
    templates = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "OPTIONS": {"loaders": loaders}}]
    with site.serving(work, TEMPLATES=templates):
        first = site.post()
        assert (first.content, first.headers["X-After"]) == (b"<b>1</b>", "1")
        same(first, site.post())
    assert site.rows() == 1


def test_files_are_sent_whole_and_closed(site: Site, tmp_path) -> None:
    """K, A4, D4: a FileResponse under the limit is recorded whole, one over it reaches its first caller; both close."""
    (tmp_path / "file").write_bytes(bytes(range(256)) * 80)
    opened: list[Any] = []

    def work(request: Any) -> HttpResponse:
        site.append()
        opened.append((tmp_path / "file").open("rb"))
        return FileResponse(opened[-1], as_attachment=True, filename="a, b.bin")

    with site.serving(url("small", idempotent(response_limit=100)(work)), url("jobs", idempotent(name="w")(work))):
        first, again = site.post(), site.post()
        assert first.content == bytes(range(256)) * 80
        same(first, again)
        assert site.rows() == 1
        first = site.post("/small", key="other")
        assert b"".join(first.streaming_content) == bytes(range(256)) * 80
        first.close()
        assert problem(site.post("/small", key="other")) == "result-not-kept"
    assert all(file.closed for file in opened)
    assert site.rows() == 2


def test_a_stream_flows_and_is_closed_once(site: Site) -> None:
    """D5, R18, I11: pieces leave as they are made, the record is whole at the end, the generator is closed."""
    made: list[str] = []

    @idempotent()
    def work(request: Any) -> HttpResponse:
        site.append()

        def pieces() -> Any:
            try:
                for piece in ("one ", "two ", "three"):
                    made.append(piece)
                    yield piece
            finally:
                made.append("closed")

        return StreamingHttpResponse(pieces())

    with site.serving(work):
        first = site.post()
        flowing = iter(first.streaming_content)
        assert next(flowing) == b"one "
        assert made == ["one "]
        record = site.record()
        assert record is not None and record.state is RecordState.CLAIMED
        assert b"".join(flowing) == b"two three"
        first.close()
        assert made[3:] == ["closed"]
        assert site.post().content == b"one two three"
    assert site.rows() == 1


def test_a_stream_whose_reader_goes_is_seen_through(site: Site) -> None:
    """A1, R14, R18: the server closes the response after one piece; the rest is read for the record, then closed."""
    made: list[str] = []

    @idempotent()
    def work(request: Any) -> HttpResponse:
        site.append()

        def pieces() -> Any:
            try:
                for piece in ("one ", "two"):
                    made.append(piece)
                    yield piece
            finally:
                made.append("closed")

        return StreamingHttpResponse(pieces())

    with site.serving(work):
        first = site.post()
        next(iter(first.streaming_content))
        first.close()
        assert made == ["one ", "two", "closed"]
        assert site.post().content == b"one two"
    assert site.rows() == 1
