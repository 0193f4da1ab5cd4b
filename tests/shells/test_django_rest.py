"""REST framework and Ninja: what comes before the claim in them, what is recorded, and viewsets, files and schemas."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from asgiref.sync import sync_to_async
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import path as url

from tests.shells import django_site
from tests.shells.django_site import Caller, K, Site, replayed, same
from twicesafe.django import IdempotentMixin, current, idempotent

REST = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}


@pytest.fixture(params=[False, True], ids=["autocommit", "ATOMIC_REQUESTS"])
def site(request, tmp_path):
    made = django_site.on_file(tmp_path, atomic=request.param)
    with made.serving(REST_FRAMEWORK=REST):
        yield made
    made.close()
    Known.names = {"ann", "bob"}
    Rate.free = True


class Known:
    """Authenticates within the view: who is not known gets 401."""

    names: ClassVar[set[str]] = {"ann", "bob"}

    def authenticate(self, request: Any) -> Any:
        from rest_framework.exceptions import AuthenticationFailed

        name = request.headers.get("X-User", "")
        if name not in self.names:
            raise AuthenticationFailed
        return Caller(name), None

    def authenticate_header(self, request: Any) -> str:
        return "Name"


class Rate:
    """Lets a request through, or not yet."""

    free: ClassVar[bool] = True

    def allow_request(self, request: Any, view: Any) -> bool:
        return self.free

    def wait(self) -> float:
        return 7


def viewset(site: Site, **contract: Any) -> Any:
    """Routes of a viewset: `POST /things/` under the mixin, `POST /things/{pk}/ship/` under a contract of its own."""
    from rest_framework import serializers
    from rest_framework.decorators import action
    from rest_framework.parsers import JSONParser, MultiPartParser
    from rest_framework.renderers import BaseRenderer, JSONRenderer
    from rest_framework.response import Response
    from rest_framework.routers import SimpleRouter
    from rest_framework.viewsets import ViewSet

    class Text(BaseRenderer):
        media_type = "text/plain"
        format = "txt"

        def render(self, data: Any, media_type: Any = None, context: Any = None) -> bytes:
            return repr(data).encode()

    class ThingSerializer(serializers.Serializer):
        n = serializers.IntegerField(min_value=1)
        file = serializers.FileField(required=False)

    class Things(IdempotentMixin, ViewSet):
        idempotency = contract
        authentication_classes = (Known,)
        throttle_classes = (Rate,)
        parser_classes = (JSONParser, MultiPartParser)
        renderer_classes = (JSONRenderer, Text)

        def create(self, request: Any) -> Any:
            thing = ThingSerializer(data=request.data)
            thing.is_valid(raise_exception=True)
            file = thing.validated_data.get("file")
            return Response({"n": site.append(), "size": file.size if file else 0}, status=201)

        def list(self, request: Any) -> Any:
            return Response([])

        @action(detail=True, methods=["post"])
        @idempotent(header="X-Once")
        def ship(self, request: Any, pk: str) -> Any:
            return Response({"n": site.append(), "pk": pk, "key": current(request).key})

    router = SimpleRouter()
    router.register("things", Things, basename="thing")
    return router.urls


def send(site: Site, body: Any = None, path: str = "/things/", **how: Any) -> Any:
    return site.post(path, json.dumps({"n": 1} if body is None else body).encode(), **how)


def test_a_viewset_and_its_actions(site: Site) -> None:
    """R10, R17: the mixin covers the viewset's methods, an action keeps its own contract, a list passes through."""
    with site.serving(*viewset(site, required=True), REST_FRAMEWORK=REST):
        first = send(site)
        assert first.json() == {"n": 1, "size": 0}
        same(first, send(site))
        assert send(site, key=None).status_code == 400
        assert site.post("/things/", {}, method="get", content_type="").json() == []
        shipped = [send(site, path="/things/7/ship/", key=None, headers={"X-Once": K + "2"}) for _ in range(2)]
        assert shipped[0].json() == {"n": 2, "pk": "7", "key": K + "2"}
        same(*shipped)
    assert site.rows() == 2


def test_rest_framework_refuses_before_the_claim(site: Site) -> None:
    """E1, E3, R22: authentication and throttling leave no record, and refuse replays; 405 and 415 leave none either."""
    with site.serving(*viewset(site), REST_FRAMEWORK=REST):
        assert send(site, user="eve").status_code == 401
        Rate.free = False
        refused = send(site)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "7")
        Rate.free = True
        assert site.post("/things/", method="patch").status_code == 405
        assert site.record() is None and site.rows() == 0
        first = send(site)
        Known.names = set()
        assert send(site).status_code == 401
        Known.names = {"ann", "bob"}
        same(first, send(site))
        assert not replayed(send(site, user="bob"))
    assert site.rows() == 2


@pytest.mark.parametrize("repeatable", [False, True])
def test_a_serializer_that_is_not_valid(site: Site, repeatable: bool) -> None:
    """E2: by default its 400 is the answer under this key; `repeatable` leaves the key to the corrected request."""
    how = {"repeatable": {400}} if repeatable else {}
    with site.serving(*viewset(site, **how), REST_FRAMEWORK=REST):
        first = send(site, {"n": 0})
        assert (first.status_code, site.rows()) == (400, 0)
        if repeatable:
            assert send(site).status_code == 201
        else:
            same(first, send(site, {"n": 0}))
            assert send(site).status_code == 422
    assert site.rows() == repeatable


def test_a_retry_is_answered_as_the_first_was_rendered(site: Site) -> None:
    """D2: status, content type and bytes are the first answer's, whatever the retry accepts."""
    with site.serving(*viewset(site), REST_FRAMEWORK=REST):
        first = send(site, headers={"Accept": "text/plain"})
        again = send(site, headers={"Accept": "application/json"})
        assert first.headers["Content-Type"].startswith("text/plain")
        same(first, again)
    assert site.rows() == 1


def test_rest_framework_parses_an_upload(site: Site) -> None:
    """H1: fields and files of a multipart body that was read for the fingerprint."""
    with site.serving(*viewset(site), REST_FRAMEWORK=REST):
        replies = [
            Client().post(
                "/things/",
                {"n": "3", "file": SimpleUploadedFile("f", bytes(range(256)))},
                headers={"Idempotency-Key": K, "X-User": "ann"},
            )
            for _ in range(2)
        ]
        assert replies[0].json() == {"n": 1, "size": 256}
        same(*replies)
    assert site.rows() == 1


# --- Ninja -----------------------------------------------------------------------------------------------------------


# Ninja reads Django's settings when it is imported, so they come first.
from ninja import File, NinjaAPI, Router, Schema, UploadedFile  # noqa: E402
from ninja.responses import Status  # noqa: E402


class Pay(Schema):
    """The annotations that name it are text, here as in many projects."""

    cents: int


def ninja(site: Site) -> Any:
    """`POST /pay` of a router, `POST /file`, and `POST /apay`, which is asynchronous."""

    def known(request: Any) -> Any:
        return request.headers.get("X-User", "") in Known.names

    api = NinjaAPI(auth=known, docs_url=None, openapi_url="/openapi.json", urls_namespace=f"n{id(site)}")
    router = Router()

    @router.post("/pay", response={201: dict[str, int], 402: dict[str, str]})
    @idempotent()
    def pay(request, body: Pay) -> Any:
        n = site.append()
        return Status(402, {"no": "funds"}) if body.cents > 100 else Status(201, {"n": n, "cents": body.cents})

    @router.post("/apay")
    @idempotent(effects="transactional")
    async def apay(request, body: Pay) -> Any:
        return {"n": await sync_to_async(site.append)(), "cents": body.cents}

    @router.post("/file")
    @idempotent()
    def upload(request, f: UploadedFile = File(...)) -> Any:  # noqa: B008 - Ninja's way
        return {"n": site.append(), "size": f.size}

    api.add_router("", router)
    return url("", api.urls)


def test_ninja_refuses_before_the_claim(site: Site) -> None:
    """E1, E2, R22: authentication and validation leave no record; corrected, the request runs under the same key."""
    with site.serving(ninja(site)):
        assert site.post("/pay", b'{"cents": 5}', user="eve").status_code == 401
        assert site.post("/pay", b'{"cents": "many"}').status_code == 422
        assert site.record() is None
        first = site.post("/pay", b'{"cents": 5}')
        assert (first.status_code, first.json()) == (201, {"n": 1, "cents": 5})
        Known.names = set()
        assert site.post("/pay", b'{"cents": 5}').status_code == 401
        Known.names = {"ann"}
        same(first, site.post("/pay", b'{"cents": 5}'))
        refused = site.post("/pay", b'{"cents": 500}', key="other")
        assert refused.status_code == 402
        same(refused, site.post("/pay", b'{"cents": 500}', key="other"))
    assert site.rows() == 2


def test_ninja_sees_the_function_as_it_was_written(site: Site) -> None:
    """H1: schemas, also where annotations are text, files, and the document that Ninja makes of them."""
    with site.serving(ninja(site)):
        body = site.post("/openapi.json", {}, method="get", content_type="").json()["paths"]["/pay"]["post"][
            "requestBody"
        ]
        assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Pay"}
        replies = [
            Client().post(
                "/file", {"f": SimpleUploadedFile("f", b"123")}, headers={"Idempotency-Key": K, "X-User": "ann"}
            )
            for _ in range(2)
        ]
        assert replies[0].json() == {"n": 1, "size": 3}
        same(*replies)
    assert site.rows() == 1


def test_asynchronous_operations_of_ninja(tmp_path) -> None:
    """H1, R23: of one path's operations some may be asynchronous; under WSGI as well."""
    site = django_site.on_file(tmp_path)
    try:
        with site.serving(ninja(site)):
            first = site.post("/apay", b'{"cents": 5}')
            assert first.json() == {"n": 1, "cents": 5}
            same(first, site.post("/apay", b'{"cents": 5}'))
        assert site.rows() == 1
    finally:
        site.close()
