"""Layers of Django's around and inside: compression, conditions, slashes, CSRF, uploads."""

from __future__ import annotations

import gzip
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.middleware.csrf import get_token
from django.test import Client
from django.urls import path as url
from django.utils.deprecation import MiddlewareMixin

from tests.shells import django_site
from tests.shells.django_site import HERE, OURS, Callers, K, Site, problem, same, worker
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


def _plain(response: Any) -> bytes:
    return gzip.decompress(response.content) if response.headers.get("Content-Encoding") else response.content


def test_a_path_is_the_same_behind_every_server(site: Site) -> None:
    """F3, K: a server that does not tell the raw path gives the one that clients write, percent signs and all."""
    with site.serving(url("jobs/<path:rest>", idempotent()(worker(site)))):
        for path in ("/jobs/ada@example.com:refund,now;a=b!$&'()*+~", "/jobs/caf%C3%A9%20au"):
            same(site.post(path, key=path[:12]), site.post(path, key=path[:12], REQUEST_URI=path))
    assert site.rows() == 2


@pytest.mark.parametrize("inside", [False, True], ids=["around", "inside"])
def test_compression_around_and_inside(site: Site, inside: bool) -> None:
    """D4, D2: byte-equal inside, and fit for the retry's own Accept-Encoding around; never coded twice."""
    middleware = [f"{HERE}.Callers", OURS, GZIP] if inside else [f"{HERE}.Callers", GZIP, OURS]
    with site.serving(idempotent()(worker(site, text="x" * 1000)), MIDDLEWARE=middleware):
        first = site.post(headers={"Accept-Encoding": "gzip"})
        again = site.post(headers={"Accept-Encoding": "gzip"})
        plain = site.post(headers={"Accept-Encoding": "identity"})
        assert first.headers["Content-Encoding"] == "gzip"
        assert _plain(first) == _plain(again) == _plain(plain)
        if inside:
            assert plain.content == again.content == first.content
        else:
            assert "Content-Encoding" not in plain.headers
    assert site.rows() == 1


def test_conditional_requests_around_do_not_change_what_is_stored(site: Site) -> None:
    """D2: ConditionalGetMiddleware and a slash that is missing are layers around: their answers are no record."""
    middleware = [f"{HERE}.Callers", COMMON, "django.middleware.http.ConditionalGetMiddleware", OURS]
    with site.serving(url("jobs/", idempotent()(worker(site))), MIDDLEWARE=middleware, APPEND_SLASH=True):
        assert site.post("/jobs").status_code in (301, 404, 500)
        assert site.record() is None
        same(site.post("/jobs/"), site.post("/jobs/"))
    assert site.rows() == 1


def test_csrf_looks_into_an_upload_before_the_view(site: Site) -> None:
    """H1, E1: the token in a multipart form is checked, then the view reads fields and file; without it no claim."""

    @idempotent()
    def work(request: Any) -> HttpResponse:
        site.append()
        return HttpResponse(request.FILES["f"].read() + request.POST["a"].encode())

    def form(request: Any) -> HttpResponse:
        return HttpResponse(get_token(request))

    with site.serving(url("jobs", work), url("form", form), MIDDLEWARE=[f"{HERE}.Callers", CSRF, OURS]):
        client = Client(enforce_csrf_checks=True)
        token = client.get("/form").content.decode()
        headers = {"Idempotency-Key": K, "X-User": "ann"}

        def send(**fields: Any) -> Any:
            file = SimpleUploadedFile("f.bin", bytes(range(256)) * 20_000)
            return client.post("/jobs", {"a": "1", "f": file, **fields}, headers=headers)

        assert send().status_code == 403
        assert site.rows() == 0 and site.record() is None
        small = idempotent(body_limit=1000)
        assert small is not None
        assert problem(send(csrfmiddlewaretoken=token)) == "body-too-large"
    assert site.rows() == 0


def test_uploads_over_djangos_memory_are_read(site: Site) -> None:
    """H1, R9: files larger than DATA_UPLOAD_MAX_MEMORY_SIZE are Django's business as ever; other bodies are refused."""

    @idempotent(body_limit=10_000_000)
    def work(request: Any) -> HttpResponse:
        site.append()
        if request.content_type != "multipart/form-data":
            return HttpResponse(request.body)
        return HttpResponse(request.FILES["f"].read() + request.POST["a"].encode())

    headers = {"Idempotency-Key": K, "X-User": "ann"}
    with site.serving(work, DATA_UPLOAD_MAX_MEMORY_SIZE=1000, MIDDLEWARE=[f"{HERE}.Callers", CSRF, OURS]):
        replies = [
            Client().post("/jobs", {"a": "1", "f": SimpleUploadedFile("f", bytes(range(256)) * 20)}, headers=headers)
            for _ in range(2)
        ]
        same(*replies)
        assert replies[0].content == bytes(range(256)) * 20 + b"1"
        assert site.rows() == 1
        assert site.post(key="other", body=b"x" * 1001).status_code == 400
        assert site.record("other") is None
    assert site.rows() == 1


class ReadsUploads(MiddlewareMixin):
    """Takes an upload's stream for itself."""

    def process_request(self, request: Any) -> None:
        request.read()


def test_a_body_that_is_gone_is_a_mistake_and_no_empty_body(site: Site) -> None:
    """H1, R8: where a middleware around has read the stream, the request fails and claims nothing."""
    middleware = [f"{HERE}.Callers", f"{__name__}.ReadsUploads", OURS]
    with site.serving(idempotent()(worker(site)), MIDDLEWARE=middleware):
        assert site.post().status_code == 500
    assert site.rows() == 0 and site.record() is None
