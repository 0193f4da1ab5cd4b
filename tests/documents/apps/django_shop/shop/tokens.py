"""Who is asking: users by bearer token."""

from functools import wraps

from django.contrib.auth import get_user_model
from django.http import HttpResponse

USERS = {"Bearer ada-1": "ada", "Bearer ada-2": "ada", "Bearer bob-1": "bob"}


class TokenMiddleware:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        name = USERS.get(request.headers.get("Authorization", ""))
        if name is not None:
            request.user, _ = get_user_model().objects.get_or_create(username=name)
        return self.get_response(request)


def signed_in(view):
    """401 for anybody else."""

    @wraps(view)
    def wrapped(request):
        return view(request) if request.user.is_authenticated else HttpResponse(status=401)

    return wrapped
