"""Views of every kind under a contract: where the claim stands among decorators, middlewares and methods."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.decorators import permission_required
from django.http import Http404, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path as url
from django.utils.decorators import method_decorator
from django.utils.deprecation import MiddlewareMixin
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from tests.shells import django_site
from tests.shells.django_site import HERE, OURS, Callers, K, Site, problem, replayed, same, worker
from twicesafe.core.record import RecordState
from twicesafe.django import IdempotentMixin, current, idempotent
from twicesafe.errors import ConfigurationError

DAY = timedelta(days=1)
GZIP = "django.middleware.gzip.GZipMiddleware"
CSRF = "django.middleware.csrf.CsrfViewMiddleware"
COMMON = "django.middleware.common.CommonMiddleware"


@dataclass
class Equal:
    """A view that can be compared, and so has no hash."""

    answer: str = "done"

    def __call__(self, request: Any) -> HttpResponse:
        return HttpResponse(self.answer)


@pytest.fixture
def site(tmp_path):
    made = django_site.on_file(tmp_path)
    yield made
    made.close()
    Callers.revoked.clear()


# --- decorators and methods ------------------------------------------------------------------------------------------


def test_what_a_decorator_above_refuses_leaves_no_record(site: Site) -> None:
    """E1, R22: a permission stands above the contract; without it nobody claims, and is replayed nothing later."""
    with site.serving(permission_required("work", raise_exception=True)(idempotent()(worker(site)))):
        assert site.post(user=None).status_code == 403
        assert site.rows() == 0
        first = site.post()
        Callers.revoked.add("ann")
        assert site.post().status_code == 403
        Callers.revoked.clear()
        same(first, site.post())
    assert site.rows() == 1


def test_a_view_that_has_no_hash_is_served(site: Site) -> None:
    """R3, H: an object that compares by value, under a contract or none: with a key and without."""
    with site.serving(url("plain", Equal()), url("jobs", idempotent(name="equal")(Equal()))):
        assert [site.post("/plain").content, site.post("/plain", key=None).content] == [b"done", b"done"]
        same(site.post(), site.post())


def test_a_decorator_that_hides_the_view_hides_no_contract(site: Site) -> None:
    """H1, E1: a decorator without functools.wraps above the contract changes nothing."""

    def plain(view: Any) -> Any:
        def called(request: Any) -> Any:
            return view(request)

        return csrf_exempt(called)

    with site.serving(plain(idempotent()(worker(site)))):
        same(site.post(), site.post())
    assert site.rows() == 1


@pytest.mark.parametrize("where", ["dispatch", "post", "bare method"])
def test_class_based_views_carry_a_contract(site: Site, where: str) -> None:
    """R10, R17: on dispatch or on a method, by method_decorator or directly; other methods pass through."""

    class Work(View):
        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("seen")

        def post(self, request: Any) -> HttpResponse:
            return worker(site)(request)

        put = post

    if where == "bare method":
        Work.post = idempotent()(Work.post)
    else:
        method_decorator(idempotent(), name=where)(Work)
    with site.serving(Work.as_view()):
        same(site.post(), site.post())
        assert site.rows() == 1
        assert site.post(method="get", body={}, content_type="").content == b"seen"
        for _ in range(2):
            assert not replayed(site.post(method="put"))
    assert site.rows() == 3


def test_routes_have_policies_of_their_own(site: Site) -> None:
    """R2, R3, R4: required keys, other methods and another header, each on the view that says so."""
    routes = [
        url("a", idempotent(required=True, name="a")(worker(site))),
        url("b", idempotent(methods={"PUT"}, header="X-Once", name="b")(worker(site))),
    ]
    with site.serving(*routes):
        assert problem(site.post("/a", key=None)) == "key-missing"
        assert problem(site.post("/a", key="")) == "key-invalid"
        assert site.rows() == 0
        for _ in range(2):
            site.post("/b", method="put", key=None, headers={"X-Once": K})
        assert site.rows() == 1
        assert problem(site.post("/a")) == "key-reused"
    assert site.rows() == 1


def test_nobody_shares_keys(site: Site) -> None:
    """G1, R6, E1: two users have two records, and whoever cannot be told from others is refused."""
    with site.serving(idempotent()(worker(site))):
        assert site.post().content != site.post(user="bob").content
        assert problem(site.post(user=None)) == "caller-unknown"
    assert site.rows() == 2


def test_a_contract_may_say_itself_who_is_calling(site: Site) -> None:
    """R6: an operation of other callers brings its own scope."""
    with site.serving(idempotent(scope=lambda request: request.headers.get("X-Tenant"))(worker(site))):
        first = site.post(user="ann", headers={"X-Tenant": "t"})
        same(first, site.post(user="bob", headers={"X-Tenant": "t"}))
        assert problem(site.post(headers={})) == "caller-unknown"
    assert site.rows() == 1


def test_a_view_is_not_called_without_the_middleware(site: Site) -> None:
    """R10, I2: a contract that nothing would keep is an error of the server's, and nothing runs."""
    with site.serving(idempotent()(worker(site)), MIDDLEWARE=[f"{HERE}.Callers"]):
        assert site.post().status_code == 500
        with pytest.raises(ConfigurationError, match="MIDDLEWARE"):
            django_site.request(Client(), "/jobs", b"{}")
    assert site.rows() == 0


def test_a_view_has_one_contract(site: Site) -> None:
    """R7: two contracts on one way to a view are an error, and nothing runs."""
    with site.serving(idempotent(name="outer")(idempotent(name="inner")(worker(site)))):
        assert site.post().status_code == 500
    assert site.rows() == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: idempotent(lambda request: None), "with parentheses"),
        (lambda: idempotent(methods={"GET"}), "GET takes no key"),
        (lambda: idempotent()(View), "is a class"),
        (lambda: idempotent(effects="nothing"), "effects"),
    ],
)
def test_a_contract_that_cannot_be_is_refused_where_it_is_made(site: Site, wrong: Any, said: str) -> None:
    """R13: a mistake shows when the module of the views is imported."""
    with site.serving(), pytest.raises(ConfigurationError, match=said):
        wrong()


def test_the_mixin_is_for_rest_framework(site: Site) -> None:
    """R10: on a view of Django's own, which would never claim, it is refused where the URLconf is made."""

    class Work(IdempotentMixin, View):
        pass

    with pytest.raises(ConfigurationError, match="method_decorator"):
        Work.as_view()


def test_a_view_knows_its_key(site: Site) -> None:
    """R15, R25: `current` gives the key, keys derived from it, and a way to say that nothing was done."""

    @idempotent()
    def work(request: Any) -> HttpResponse:
        try:
            keyed = current(request)
        except LookupError:
            return HttpResponse("none")
        if request.GET:
            keyed.nothing_done()
            return HttpResponse(status=422)
        return JsonResponse({"key": keyed.key, "derived": keyed.derived_key("pay"), "n": site.append()})

    with site.serving(work):
        assert site.post(key=None).content == b"none"
        assert site.post("/jobs?no").status_code == 422
        first = site.post()
        assert first.json()["key"] == K and len(first.json()["derived"]) == 36
        same(first, site.post())
    assert site.rows() == 1


@pytest.mark.parametrize("kept", [True, False])
def test_a_duplicate_may_be_answered_anew(site: Site, kept: bool) -> None:
    """R18, R19: where the body is not kept, or by choice, from what is stored and the state of now; nothing runs."""

    def rebuild(stored: Any, request: Any) -> HttpResponse:
        return JsonResponse({"was": stored.status, "body": stored.body is not None, "rows": site.rows()}, status=201)

    how = {"duplicates": "rebuilt"} if kept else {"response_limit": 1}
    with site.serving(idempotent(rebuild=rebuild, **how)(worker(site))):
        assert site.post().json() == {"n": 1}
        again = site.post()
        assert (again.status_code, again.json()) == (201, {"was": 201, "body": kept, "rows": 1})
        assert replayed(again)
    assert site.rows() == 1


def test_every_view_may_be_protected(site: Site) -> None:
    """R2, E1: with EVERY_VIEW undecorated views are under the policy of the settings; routing refuses as ever."""
    routes = [url("jobs", worker(site)), url("own", idempotent(required=True)(worker(site)))]
    with site.serving(*routes, every_view=True, TWICESAFE={"POLICY": {"key_retention": DAY * 2}}):
        same(site.post(), site.post())
        assert site.rows() == 1
        assert site.post("/nowhere", key="other").status_code == 404
        assert site.record("other") is None
        assert problem(site.post("/own", key=None)) == "key-missing"
        assert site.post().headers["idempotency-key-retention"] == "172800"
    with site.serving(worker(site)):
        site.post(), site.post()
    assert site.rows() == 3


# --- what Django makes of exceptions ---------------------------------------------------------------------------------


class MappedError(Exception):
    pass


class Mapping(MiddlewareMixin):
    """Maps an exception of the application's."""

    def process_exception(self, request: Any, error: Exception) -> HttpResponse | None:
        return JsonResponse({"mapped": True}, status=409) if isinstance(error, MappedError) else None


@pytest.mark.parametrize(("error", "status"), [(Http404, 404), (MappedError, 409), (ZeroDivisionError, 500)])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_recorded_answer_is_what_the_first_caller_saw(site: Site, error: Any, status: int, when: str) -> None:
    """E4, R16: Django's errors, mapped ones and those nobody handles, each before and after the effect."""

    @idempotent()
    def work(request: Any) -> HttpResponse:
        if when == "after":
            site.append()
        raise error

    middleware = [f"{HERE}.Callers", f"{__name__}.Mapping", OURS]
    with site.serving(work, MIDDLEWARE=middleware):
        first = site.post()
        same(first, site.post())
        assert (first.status_code, bool(first.content)) == (status, True)
    assert site.rows() == (when == "after")


def test_an_exception_may_leave_the_outcome_unknown(site: Site) -> None:
    """R16, I6: with unknown_on_error the first caller sees the error page, and the key is held."""

    @idempotent(unknown_on_error=True)
    def work(request: Any) -> HttpResponse:
        site.append()
        raise ZeroDivisionError

    with site.serving(work):
        assert site.post().status_code == 500
        assert problem(site.post()) == "outcome-unknown"
    record = site.record()
    assert record is not None and record.state is RecordState.UNKNOWN
    assert site.rows() == 1


@pytest.mark.parametrize("torn", [KeyboardInterrupt, SystemExit])
def test_a_view_that_is_torn_out_of_its_work_is_held(site: Site, torn: Any) -> None:
    """B7, I6: a worker that is told to exit in the middle leaves an unknown outcome, at once, and goes."""

    @idempotent()
    def work(request: Any) -> HttpResponse:
        site.append()
        raise torn

    with site.serving(work):
        with pytest.raises(torn):
            site.post()
        assert problem(site.post()) == "outcome-unknown"
    assert site.rows() == 1
