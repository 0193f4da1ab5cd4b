"""Settings. `PROJECT` is JSON: what a test wants otherwise."""

from __future__ import annotations

import json
import os

SECRET_KEY = "test"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "tests.shells.django_project.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["PROJECT_FILE"]}}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "twicesafe.django",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "twicesafe.django.IdempotencyMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
STATIC_URL = "static/"
TWICESAFE = {"SCOPE": "tests.shells.django_project.urls.user_id"}
globals().update(json.loads(os.environ.get("PROJECT", "{}")))
