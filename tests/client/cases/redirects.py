"""Redirects, followed and not: the key goes where its origin is, and nowhere else."""

from __future__ import annotations

from tests.client.cases.acts import OK, redirect_elsewhere
from tests.client.cases.case import (
    BLIND,
    CHARGE,
    GET,
    NOT_REPEATABLE,
    PUT,
    Case,
    Expected,
    Operation,
    Otherwise,
    Trait,
    done,
    refused,
    unknown,
)
from tests.client.scripted import Act, answer, redirect, reset_after_commit

FINE = answer(200)

HIDDEN = Otherwise(1, 1, unknown())
"""A browser says of a redirect that there was one, and no more."""


def left(operation: Operation, act: Act, expected: Expected, why: str, hidden: Otherwise = HIDDEN) -> Case:
    """A redirect that is not followed."""
    return Case(operation, f"{expected.status}", [act], 1, expected, why, needs=Trait.SHOWN, otherwise=hidden)


LEFT = [
    left(CHARGE, redirect(307, "/v2"), refused(307), "it says to ask elsewhere"),
    left(CHARGE, redirect(308, "/v2"), refused(308), "it says to ask elsewhere"),
    left(CHARGE, redirect(301, "/v2"), unknown(301), "nobody can say what a GET would find there"),
    left(CHARGE, redirect(302, "/login"), unknown(302), "a page to log in is nothing done"),
    left(CHARGE, redirect(303, "/charges/1"), done(303), "done, and there is where to look at it"),
    left(BLIND, redirect(302, "/login"), unknown(302), "a page to log in is nothing done"),
    left(BLIND, redirect(303, "/charges/1"), done(303), "the answer of a form"),
    left(PUT, redirect(303, "/things"), unknown(303), "no answer to a PUT"),
    left(
        GET, redirect(302, "/login"), refused(302), "nothing was to be done",
        Otherwise(1, 1, Expected("rejected", None)),
    ),
    Case(CHARGE, "304", [answer(304)], 1, unknown(304), "no answer to a POST"),
    Case(GET, "304", [answer(304)], 1, done(304), "what is known is still so"),
]  # fmt: skip

FOLLOWED = [
    *[
        Case(
            CHARGE, f"{status}, followed", [redirect(status, "/v2"), OK], 2, done(), "on one origin the key goes along",
            attempts=1, elsewhere=[], needs=Trait.REDIRECTS,
        )
        for status in (307, 308)
    ],
    *[
        Case(
            CHARGE, f"{status} to another origin", [redirect_elsewhere(status)], 1, refused(status),
            "there the key means nothing, and the effect is not carried off",
            elsewhere=[], needs=Trait.REDIRECTS,
        )
        for status in (307, 308)
    ],
    *[
        Case(
            CHARGE, f"{status}, not followed", [redirect(status, "/login")], 1, unknown(status),
            "a page that answers 200 is nothing done", elsewhere=[], needs=Trait.REDIRECTS,
        )
        for status in (301, 302)
    ],
    Case(
        CHARGE, "303, followed", [redirect(303, "/charges/1"), FINE], 2, done(200), "done, and looked at",
        attempts=1, elsewhere=[], needs=Trait.REDIRECTS,
    ),
    Case(
        CHARGE, "303 to another origin", [redirect_elsewhere(303)], 1, done(200), "looked at, without the key",
        elsewhere=[FINE], needs=Trait.REDIRECTS,
    ),
    Case(
        GET, "302, followed", [redirect(302, "/there"), FINE], 2, done(200), "to look is safe everywhere",
        attempts=1, elsewhere=[], needs=Trait.REDIRECTS,
    ),
    Case(
        GET, "301 to another origin", [redirect_elsewhere(301)], 1, done(200), "to look is safe everywhere",
        elsewhere=[FINE], needs=Trait.REDIRECTS,
    ),
    Case(
        BLIND, "307, then dropped", [redirect(307, "/v2"), reset_after_commit], 2, unknown(stop=NOT_REPEATABLE),
        "not repeated where it was led to either", attempts=1, elsewhere=[], needs=Trait.REDIRECTS,
    ),
]  # fmt: skip

CASES = [*LEFT, *FOLLOWED]
