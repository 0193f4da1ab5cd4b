"""H2 on Django: raised, returned and refused at the commit, with ATOMIC_REQUESTS and without, in every kind of view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import BadRequest
from django.db import connections, transaction
from django.http import HttpResponse, JsonResponse
from django.urls import path as url
from django.utils.decorators import method_decorator
from django.utils.deprecation import MiddlewareMixin
from django.views import View

from tests.shells import django_site
from tests.shells.django_site import HERE, OURS, Caller, K, Site, replayed, same
from twicesafe.core.record import RecordState
from twicesafe.django import IdempotentMixin, idempotent
from twicesafe.stores.memory import MemoryStore

KINDS = ("function", "method", "dispatch", "api_view", "mixin", "viewset", "ninja")
Do = Callable[[], HttpResponse]


class MappedError(Exception):
    """Turned into 409 by an exception handler, of whatever framework."""


class Mapping(MiddlewareMixin):
    """Django's own way to have one."""

    def process_exception(self, request: Any, error: Exception) -> HttpResponse | None:
        return JsonResponse({"mapped": True}, status=409) if isinstance(error, MappedError) else None


def handler(error: Exception, context: dict[str, Any]) -> Any:
    """REST framework's."""
    from rest_framework.response import Response
    from rest_framework.views import exception_handler, set_rollback

    if isinstance(error, MappedError):
        set_rollback()
        return Response({"mapped": True}, 409)
    return exception_handler(error, context)


class ByName:
    """Authenticates within the view, as REST framework does: until then nobody is known."""

    def authenticate(self, request: Any) -> Any:
        return Caller(request.headers["X-User"]), None

    def authenticate_header(self, request: Any) -> str:
        return "Name"


def route(kind: str, do: Do, **contract: Any) -> Any:
    """`POST /jobs` does `do` in a view of this kind; `PUT /jobs` too, under no contract."""
    match kind:
        case "function":
            return url("jobs", idempotent(**contract)(lambda request: do()))
        case "method" | "dispatch":

            class Plain(View):
                def post(self, request: Any) -> HttpResponse:
                    return do()

                put = post

            name = "post" if kind == "method" else kind
            return url("jobs", method_decorator(idempotent(**contract), name=name)(Plain).as_view())
        case "ninja":
            return _ninja(do, contract)
        case _:
            return _rest(kind, do, contract)


def _rest(kind: str, do: Do, contract: dict[str, Any]) -> Any:
    from rest_framework.decorators import api_view, authentication_classes, permission_classes
    from rest_framework.views import APIView
    from rest_framework.viewsets import ViewSet

    # Not by settings, which REST framework has read when it was imported, whoever did that.
    if kind == "api_view":
        view = permission_classes([])(authentication_classes([ByName])(idempotent(**contract)(lambda request: do())))
        return url("jobs", api_view(["POST", "PUT"])(view))

    class Work(IdempotentMixin, ViewSet if kind == "viewset" else APIView):
        idempotency = contract
        authentication_classes = (ByName,)
        permission_classes = ()

        def post(self, request: Any) -> HttpResponse:
            return do()

        put = post

    return url("jobs", Work.as_view(*[{"post": "post", "put": "put"}] * (kind == "viewset")))


def _ninja(do: Do, contract: dict[str, Any]) -> Any:
    from ninja import NinjaAPI

    api = NinjaAPI(docs_url=None, openapi_url=None, urls_namespace=f"n{id(do)}")

    @api.exception_handler(MappedError)
    def mapped(request: Any, error: MappedError) -> HttpResponse:
        return api.create_response(request, {"mapped": True}, status=409)

    @api.post("/jobs")
    @idempotent(**contract)
    def work(request):
        return do()

    @api.put("/jobs")
    def put(request):
        return do()

    return url("", api.urls)


REST = {
    "EXCEPTION_HANDLER": f"{__name__}.handler",
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}
MIDDLEWARE = [f"{HERE}.Callers", f"{__name__}.Mapping", OURS]


@pytest.fixture(scope="module")
def sites(postgresql_server):
    made = {atomic: django_site.on_postgresql(postgresql_server, atomic=atomic) for atomic in (True, False)}
    yield made
    for site in made.values():
        site.close()


@pytest.fixture
def site(sites, atomic: bool):
    found: Site = sites[atomic]
    found.execute("TRUNCATE ledger; TRUNCATE twicesafe_records")
    with found.serving(MIDDLEWARE=MIDDLEWARE, REST_FRAMEWORK=REST):
        yield found


ATOMIC = pytest.mark.parametrize("atomic", [True, False], ids=["ATOMIC_REQUESTS", "autocommit"])
ALWAYS = pytest.mark.parametrize("atomic", [True], ids=["ATOMIC_REQUESTS"])
EACH = pytest.mark.parametrize("kind", KINDS)


def http_error(kind: str) -> Exception:
    """A 400 as the framework raises it."""
    if kind == "ninja":
        from ninja.errors import HttpError

        return HttpError(400, "no")
    if kind in ("api_view", "mixin", "viewset"):
        from rest_framework.exceptions import ValidationError

        return ValidationError("no")
    return BadRequest()


def ending(site: Site, how: str, kind: str = "function") -> Do:
    """Append, then end as told."""

    def do() -> HttpResponse:
        n = site.append(sign=7 if how == "commit" else 1)
        match how:
            case "returns":
                return JsonResponse({"n": n}, status=400)
            case "raises":
                raise http_error(kind)
            case "mapped":
                raise MappedError
            case "unhandled":
                raise ZeroDivisionError
        return JsonResponse({"n": n}, status=201)

    return do


STATUS = {"returns": 400, "raises": 400, "mapped": 409, "unhandled": 500, "commit": 500, "succeeds": 201}


@ATOMIC
@EACH
@pytest.mark.parametrize("how", ["succeeds", "returns", "raises", "mapped"])
def test_a_transactional_answer_agrees_with_the_data(site: Site, kind: str, how: str) -> None:
    """H2a-c, R23: a success commits with its record; a 4xx, returned, raised or mapped, rolls back and is recorded."""
    with site.serving(
        route(kind, ending(site, how, kind), effects="transactional"), MIDDLEWARE=MIDDLEWARE, REST_FRAMEWORK=REST
    ):
        first = site.post()
        assert first.status_code == STATUS[how]
        assert site.rows() == (how == "succeeds")
        same(first, site.post())
    assert site.rows() == (how == "succeeds")


@ATOMIC
@EACH
@pytest.mark.parametrize("how", ["unhandled", "commit"])
def test_what_fails_at_last_frees_the_key(site: Site, kind: str, how: str) -> None:
    """H2d, R16: an exception that nobody handled and a commit that a deferred constraint refused leave nothing."""
    with site.serving(
        route(kind, ending(site, how, kind), effects="transactional"), MIDDLEWARE=MIDDLEWARE, REST_FRAMEWORK=REST
    ):
        for _ in range(2):
            reply = site.post()
            assert (reply.status_code, replayed(reply)) == (500, False)
            assert site.rows() == 0 and site.record() is None
    with site.serving(
        route(kind, ending(site, "succeeds"), effects="transactional"), MIDDLEWARE=MIDDLEWARE, REST_FRAMEWORK=REST
    ):
        assert site.post().status_code == 201
    assert site.rows() == 1


@ALWAYS
@EACH
@pytest.mark.parametrize("how", ["succeeds", "returns", "raises", "mapped", "unhandled", "commit"])
def test_an_opaque_answer_agrees_with_the_data(site: Site, kind: str, how: str) -> None:
    """H2, I2: ATOMIC_REQUESTS begins inside of the claim: raised is rolled back, returned is committed, and what is
    recorded is what the caller was told of it."""
    with site.serving(route(kind, ending(site, how, kind)), MIDDLEWARE=MIDDLEWARE, REST_FRAMEWORK=REST):
        first = site.post()
        committed = how in ("succeeds", "returns")
        assert site.rows() == committed
        assert first.status_code == STATUS[how]
        same(first, site.post())
    assert site.rows() == committed


@ALWAYS
@EACH
def test_what_is_under_no_contract_stays_atomic(site: Site, kind: str) -> None:
    """H2: other methods of the same view, and requests without a key, are rolled back as ATOMIC_REQUESTS says."""
    with site.serving(route(kind, ending(site, "unhandled")), MIDDLEWARE=MIDDLEWARE, REST_FRAMEWORK=REST):
        for how in ({"method": "put"}, {"key": None}, {"method": "put", "key": None}):
            assert site.post(**how).status_code in (405, 500)
            assert site.rows() == 0
    assert site.record() is None


@ATOMIC
def test_requests_without_a_key_are_transactions_too(site: Site, atomic: bool) -> None:
    """R23, H2: a transactional operation without a key commits its success and rolls its 4xx back."""
    with site.serving(route("function", ending(site, "succeeds"), effects="transactional")):
        for n in (1, 2):
            assert site.post(key=None).json() == {"n": n}
    for how in ("returns", "raises", "unhandled", "commit"):
        with site.serving(route("function", ending(site, how), effects="transactional"), MIDDLEWARE=MIDDLEWARE):
            assert site.post(key=None).status_code == STATUS[how]
    assert site.rows() == 2


@ATOMIC
@pytest.mark.parametrize("effects", ["transactional", "opaque"])
def test_hooks_run_once_after_the_commit(site: Site, effects: str, atomic: bool) -> None:
    """R17, R23, K: on_commit hooks see the effect committed, run once for the intent, and never for what is undone."""
    told: list[int] = []

    def work(request: Any) -> HttpResponse:
        n = site.append()
        transaction.on_commit(lambda: told.append(site.rows()), using=site.alias)
        if request.GET:
            raise ZeroDivisionError
        return JsonResponse({"n": n})

    with site.serving(idempotent(effects=effects)(work)):
        same(site.post(), site.post())
        assert told == [1]
        if atomic or effects == "transactional":
            assert site.post("/jobs?no", key="other").status_code == 500
            assert told == [1]
            assert site.rows() == 1


@ATOMIC
def test_a_savepoint_of_the_views_own_undoes_a_part(site: Site, atomic: bool) -> None:
    """R23: atomic() in a view is a savepoint, whatever is around it."""

    def work(request: Any) -> HttpResponse:
        site.append()
        with transaction.atomic(using=site.alias):
            site.append()
            transaction.set_rollback(True, using=site.alias)
        return JsonResponse({"n": site.rows(), "inside": connections[site.alias].in_atomic_block})

    with site.serving(idempotent(effects="transactional")(work)):
        first = site.post()
        assert first.json() == {"n": 1, "inside": True}
        same(first, site.post())
    assert site.rows() == 1


@ATOMIC
def test_a_kept_failure_keeps_its_row(site: Site, atomic: bool) -> None:
    """R15, H2: a returned status that the policy commits keeps what the view wrote, and is replayed."""

    def work(request: Any) -> HttpResponse:
        return JsonResponse({"n": site.append()}, status=402)

    with site.serving(idempotent(effects="transactional", commits={402})(work)):
        same(site.post(), site.post())
    assert site.rows() == 1


@ALWAYS
def test_a_view_that_wants_no_transaction_gets_none(site: Site, atomic: bool) -> None:
    """H2: non_atomic_requests is kept, above the contract and below it."""
    seen: list[bool] = []

    def work(request: Any) -> HttpResponse:
        seen.append(site.in_atomic)
        return JsonResponse({"n": site.append()})

    opt_out = transaction.non_atomic_requests(using=site.alias)
    with site.serving(url("a", opt_out(idempotent()(work))), url("b", idempotent()(opt_out(work)))):
        for path in ("/a", "/b"):
            same(site.post(path, key=path * 9), site.post(path, key=path * 9))
    assert seen == [False, False]
    assert site.rows() == 2


@ALWAYS
def test_a_method_of_an_object_is_a_view_as_any_other(site: Site, atomic: bool) -> None:
    """H2: its transaction is inside of the claim; what it raises is rolled back and recorded."""

    class Till:
        @idempotent()
        def charge(self, request: Any) -> HttpResponse:
            return ending(site, "succeeds")()

        @idempotent()
        def fail(self, request: Any) -> HttpResponse:
            return ending(site, "unhandled")()

    with site.serving(url("charge", Till().charge), url("fail", Till().fail)):
        for path, rows in (("/charge", 1), ("/fail", 1)):
            same(site.post(path, key=path * 9), site.post(path, key=path * 9))
            assert site.rows() == rows


@ALWAYS
def test_where_it_cannot_be_told_which_view_is_called_none_loses_its_transaction(site: Site, atomic: bool) -> None:
    """H2, I11: of two views behind one callback, the one without a contract keeps ATOMIC_REQUESTS; the claim of the
    other, inside of a transaction, would be no claim, and is refused whatever store would keep it."""

    def either(old: Any, new: Any) -> Any:
        def view(request: Any) -> Any:
            return (old if request.GET else new)(request)

        return view

    old, new = (lambda request: ending(site, "unhandled")()), idempotent()(lambda request: ending(site, "succeeds")())
    with site.serving(either(old, new), TWICESAFE={"STORE": MemoryStore()}):
        assert [site.post("/jobs?old=1").status_code, site.post().status_code] == [500, 500]
    assert site.rows() == 0


@ALWAYS
def test_every_view_is_claimed_before_its_transaction(site: Site, atomic: bool) -> None:
    """I2, H2: with EVERY_VIEW an undecorated view's transaction is inside of the claim by itself."""
    with site.serving(
        url("good", lambda request: ending(site, "succeeds")()),
        url("bad", lambda request: ending(site, "commit")()),
        every_view=True,
    ):
        same(site.post("/good"), site.post("/good"))
        first = site.post("/bad", key="other")
        assert first.status_code == 500
        same(first, site.post("/bad", key="other"))
    assert site.rows() == 1


@ALWAYS
def test_a_claim_inside_a_transaction_is_refused(site: Site, atomic: bool) -> None:
    """I11, R23: in an atomic block around the request nothing could be durable: it fails, and nothing runs."""
    with site.serving(idempotent()(lambda request: ending(site, "succeeds")())), transaction.atomic(using=site.alias):
        assert site.post().status_code == 500
    assert site.rows() == 0
    record = site.record(K)
    assert record is None or record.state is not RecordState.COMPLETED
