"""twicesafe for Django: an operation's contract stands on its view, and the ORM's work is its transaction.

    # settings.py
    INSTALLED_APPS = [..., "twicesafe.django"]
    MIDDLEWARE = [..., "twicesafe.django.IdempotencyMiddleware"]        # the last one
    TWICESAFE = {"SCOPE": "shop.callers.user_id"}

    # views.py
    @idempotent(effects="transactional", required=True)
    def charge(request): ...

The same decorator goes on functions, on methods of class-based views, on views and viewsets of Django REST Framework,
and on operations of Django Ninja, synchronous or asynchronous.
"""

from __future__ import annotations

from twicesafe.core.keys import PUBLIC
from twicesafe.django.contract import idempotent
from twicesafe.django.middleware import IdempotencyMiddleware
from twicesafe.django.rest import IdempotentMixin
from twicesafe.django.threads import draining
from twicesafe.django.visit import current

__all__ = ["PUBLIC", "IdempotencyMiddleware", "IdempotentMixin", "current", "draining", "idempotent"]
