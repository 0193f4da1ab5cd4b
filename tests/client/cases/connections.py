"""Connections that do not come about, break, or fall silent."""

from __future__ import annotations

from tests.client.cases.acts import (
    DOWN,
    IN_PROGRESS,
    OK,
    REPLAY,
    continued,
    corrupt_record,
    half_chunks,
    kept_then_reset,
    no_tls,
    nobody,
    reset_in_handshake,
    silence_in_head,
    word_by_word,
)
from tests.client.cases.case import (
    ATTEMPTS,
    BLIND,
    CHARGE,
    DEADLINE,
    DELETE,
    GET,
    HOPELESS,
    IMPATIENT,
    LIMITS,
    NOT_REPEATABLE,
    PATCH,
    PUT,
    SEARCH,
    Case,
    Otherwise,
    Trait,
    done,
    unknown,
)
from tests.client.certificates import Certificate
from tests.client.scripted import (
    answer,
    broken_gzip,
    close_after_commit,
    garbage,
    half_body,
    half_error,
    half_head,
    reset_after_commit,
    reset_before_reading,
    silence,
    silence_in_body,
)

FINE, GONE = answer(200), answer(204)
ONE_IS_TOO_MANY = Otherwise(1, 0, unknown(stop=NOT_REPEATABLE, sent="maybe"))
"""Who cannot prove that nothing was sent does not send it again."""

REFUSED = [
    Case(CHARGE, "at once", [OK], 1, done(), "nothing goes wrong"),
    Case(BLIND, "at once", [OK], 1, done(), "to be never repeated is no failure"),
    Case(CHARGE, "refused, then up", [nobody, nobody, OK], 1, done(), "the server was starting"),
    Case(
        BLIND, "refused, then up", [nobody, OK], 1, done(), "nothing was sent, so that it is not a second time",
        needs=Trait.PROOF, otherwise=ONE_IS_TOO_MANY,
    ),
    Case(CHARGE, "refused for good", [nobody] * 4, 0, unknown(stop=ATTEMPTS, sent="no"), "it was never sent: no doubt"),
    Case(
        GET, "refused for good", [nobody] * 2, 0, unknown(stop=ATTEMPTS, sent="no"), "what is safe is tried again too",
        limits=LIMITS._replace(attempts=2),
    ),
    Case(
        CHARGE, "dropped, then refused", [reset_after_commit, nobody, nobody, nobody], 1, unknown(stop=ATTEMPTS),
        "that the last attempt was not sent proves nothing about the first",
    ),
    Case(
        BLIND, "refused, then dropped", [nobody, reset_after_commit], 1, unknown(stop=NOT_REPEATABLE),
        "the attempt that was sent is the last", needs=Trait.PROOF, otherwise=ONE_IS_TOO_MANY,
    ),
]  # fmt: skip

BROKEN = [
    Case(CHARGE, "reset before the commit", [reset_before_reading, OK], 1, done(), "the first was not even read"),
    Case(
        BLIND, "reset before the commit", [reset_before_reading], 0, unknown(stop=NOT_REPEATABLE),
        "it began to leave, and nobody here can tell how much of it arrived",
    ),
    Case(PUT, "reset before the commit", [reset_before_reading, FINE], 1, done(200), "twice is once"),
    Case(CHARGE, "reset after the commit", [reset_after_commit, REPLAY], 2, done(replayed=True), "the key finds it"),
    Case(
        BLIND, "reset after the commit", [reset_after_commit], 1, unknown(stop=NOT_REPEATABLE),
        "a second time could charge twice",
    ),
    Case(PUT, "reset after the commit", [reset_after_commit, FINE], 2, done(200), "twice is once"),
    Case(DELETE, "closed after the commit", [close_after_commit, GONE], 2, done(204), "twice is once"),
    Case(
        DELETE, "dropped, then gone", [reset_after_commit, answer(404)], 2, unknown(404),
        "was it this one that deleted it, or was it never there?",
    ),
    Case(
        PATCH, "dropped, then changed", [reset_after_commit, answer(412)], 2, unknown(412),
        "changed by the first attempt, or by somebody else?",
    ),
    Case(PATCH, "dropped, then done", [reset_after_commit, FINE], 2, done(200), "the precondition still held"),
    Case(GET, "reset after the commit", [reset_after_commit, FINE], 2, done(200), "to ask changes nothing"),
    Case(SEARCH, "reset after the commit", [reset_after_commit, FINE], 2, done(200), "nor does a POST that only asks"),
    Case(CHARGE, "closed after the commit", [close_after_commit, REPLAY], 2, done(replayed=True), "without a word"),
    Case(BLIND, "closed after the commit", [close_after_commit], 1, unknown(stop=NOT_REPEATABLE), "without a word"),
    Case(CHARGE, "dropped for good", [reset_after_commit] * 4, 4, unknown(stop=ATTEMPTS), "the attempts have an end"),
    Case(
        CHARGE, "the replay is lost too", [reset_after_commit, half_head, close_after_commit, REPLAY], 4,
        done(replayed=True), "as often as it takes",
    ),
]  # fmt: skip

KEPT = [
    Case(
        CHARGE, "reset on a kept connection", [kept_then_reset, REPLAY], 3, done(replayed=True),
        "nobody else sends it again behind the back of who counts", waits=[(1, 1.5), (0, 1)], attempts=3,
        needs=Trait.KEPT,
    ),
    Case(
        PUT, "reset on a kept connection", [kept_then_reset, FINE], 3, done(200),
        "not even where a library takes it for harmless", waits=[(1, 1.5), (0, 1)], attempts=3,
        needs=Trait.KEPT,
    ),
]  # fmt: skip

HALF = [
    Case(CHARGE, "half a head", [half_head, REPLAY], 2, done(replayed=True), "201 alone is no answer"),
    Case(BLIND, "half a head", [half_head], 1, unknown(stop=NOT_REPEATABLE), "201 alone is no answer"),
    Case(
        CHARGE, "half a body", [half_body, REPLAY], 2, done(replayed=True), "the key makes the answer whole",
        needs=Trait.OUTCOME,
    ),
    Case(
        CHARGE, "some of the chunks", [half_chunks, REPLAY], 2, done(replayed=True), "no last chunk, no whole answer",
        needs=Trait.OUTCOME,
    ),
    Case(
        BLIND, "half a body", [half_body], 1, unknown(201, NOT_REPEATABLE), "the status that arrived is kept",
        needs=Trait.OUTCOME,
    ),
    Case(PUT, "half a body", [half_body, FINE], 2, done(200), "twice is once", needs=Trait.OUTCOME),
    Case(CHARGE, "half an error", [half_error, OK], 2, done(), "503 says enough"),
    Case(
        CHARGE, "a coding that is broken", [broken_gzip, REPLAY], 2, done(replayed=True), "whole, and unreadable",
        needs=Trait.OUTCOME,
    ),
    Case(CHARGE, "no HTTP", [garbage, REPLAY], 2, done(replayed=True), "what the server did before that, who knows"),
    Case(BLIND, "no HTTP", [garbage], 1, unknown(stop=NOT_REPEATABLE), "what the server did before that, who knows"),
    Case(GET, "no HTTP", [garbage, FINE], 2, done(200), "to ask changes nothing"),
    Case(CHARGE, "word by word", [word_by_word(201, b'{"charge":1}')], 1, done(), "slow is not broken"),
    Case(
        CHARGE, "an interim answer", [continued(201, b'{"charge":1}')], 1, done(), "100 is not the answer",
        needs=Trait.INTERIM,
    ),
]  # fmt: skip

SILENT = [
    Case(
        CHARGE, "silence", [silence, REPLAY], 2, done(replayed=True), "its time is over, the key is not",
        limits=IMPATIENT,
    ),
    Case(BLIND, "silence", [silence], 1, unknown(stop=NOT_REPEATABLE), "it may be at work yet", limits=IMPATIENT),
    Case(GET, "silence", [silence, FINE], 2, done(200), "to ask changes nothing", limits=IMPATIENT),
    Case(
        CHARGE, "silence in the head", [silence_in_head, REPLAY], 2, done(replayed=True), "201 alone is no answer",
        limits=IMPATIENT,
    ),
    Case(
        CHARGE, "silence in the body", [silence_in_body, REPLAY], 2, done(replayed=True), "nor is a head alone",
        limits=IMPATIENT, needs=Trait.OUTCOME,
    ),
    Case(
        CHARGE, "silence, in progress, done", [silence, IN_PROGRESS, IN_PROGRESS, REPLAY], 4, done(replayed=True),
        "the attempt that was given up is at work, and answers in the end",
        waits=[(0, 0.5), (1, 1.5), (1, 2)], limits=IMPATIENT,
    ),
    Case(
        CHARGE, "silence until the deadline", [silence], 1, unknown(stop=DEADLINE), "the deadline clips the attempt",
        limits=LIMITS._replace(deadline=1.0),
    ),
    Case(
        CHARGE, "down, then silence until the deadline", [DOWN, silence], 2, unknown(stop=DEADLINE),
        "the deadline clips what is left of it", waits=[(0, 0.1)],
        limits=LIMITS._replace(deadline=1.5, first_delay=0.1),
    ),
]  # fmt: skip

TRUSTED = Certificate.TRUSTED
ENCRYPTED = [
    Case(CHARGE, "TLS, at once", [OK], 1, done(), "nothing goes wrong", certificate=TRUSTED),
    Case(
        CHARGE, "TLS, corrupt after the commit", [corrupt_record, REPLAY], 2, done(replayed=True),
        "charged, and the answer fails its check", certificate=TRUSTED,
    ),
    Case(
        BLIND, "TLS, corrupt after the commit", [corrupt_record], 1, unknown(stop=NOT_REPEATABLE),
        "an error of TLS is no proof that nothing was sent", certificate=TRUSTED,
    ),
    Case(
        CHARGE, "TLS, reset in the handshake", [reset_in_handshake, OK], 1, done(), "nothing was sent yet",
        certificate=TRUSTED,
    ),
    Case(
        BLIND, "TLS, reset in the handshake", [reset_in_handshake, OK], 1, done(),
        "nothing was sent yet, so that it is not a second time",
        certificate=TRUSTED, needs=Trait.PROOF, otherwise=ONE_IS_TOO_MANY,
    ),
    Case(
        CHARGE, "no TLS there", [no_tls] * 2, 0, unknown(stop=ATTEMPTS, sent="no"), "a proxy that is starting, perhaps",
        limits=LIMITS._replace(attempts=2), certificate=TRUSTED,
    ),
    Case(
        CHARGE, "a stranger's certificate", [OK], 0, unknown(stop=HOPELESS, sent="no"), "trust does not come by asking",
        certificate=Certificate.STRANGERS, needs=Trait.DISTRUST,
    ),
    Case(
        CHARGE, "another host's certificate", [OK], 0, unknown(stop=HOPELESS, sent="no"), "nor does another name",
        certificate=Certificate.OTHERS, needs=Trait.DISTRUST,
    ),
]  # fmt: skip

CASES = [*REFUSED, *BROKEN, *KEPT, *HALF, *SILENT, *ENCRYPTED]
