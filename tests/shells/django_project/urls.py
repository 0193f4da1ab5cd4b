"""One operation, and the admin."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from twicesafe.django import idempotent


def user_id(request: HttpRequest) -> str | None:
    """Who is calling."""
    return str(request.user.pk) if request.user.is_authenticated else None


@idempotent(effects="transactional")
def work(request: HttpRequest) -> HttpResponse:
    """The answer names what no operator is to see."""
    return JsonResponse({"secret": "swordfish"}, status=201)


urlpatterns = [path("admin/", admin.site.urls), path("jobs", work)]
