"""The census: the ledger against what the clients were told."""

from __future__ import annotations

from twicesafe.storm.census import Ending, Findings, Report, Told, take

PAID = Told(Ending.SUCCESS, frozenset({"a"}))


def test_one_row_and_its_client_told_so() -> None:
    """R42: one effect per intent, and every client knows its own."""
    ledger = {0: ["a"], 1: ["b"]}
    assert take([[ledger]], [PAID, Told(Ending.SUCCESS, frozenset({"b"}))]) == Findings(2, 0, 0, 0, 0)


def test_every_row_beyond_the_first_is_a_duplicate() -> None:
    """R42: three rows for one intent are two duplicates, whatever its client was told."""
    assert take([[{0: ["a", "b", "c"]}]], [PAID]) == Findings(3, 2, 0, 0, 0)


def test_an_intent_without_a_row_is_lost() -> None:
    """R42: what was never done although its client kept asking is lost, and its outcome unknown to the client."""
    assert take([[{}]], [Told(Ending.NO_ANSWER)]) == Findings(0, 0, 1, 1, 0)


def test_a_success_that_is_not_in_the_ledger_is_lost() -> None:
    """R42: a client told of a payment that does not exist was lied to, although another row exists."""
    assert take([[{0: ["b"]}]], [PAID]) == Findings(1, 0, 1, 0, 0)


def test_two_stories_about_one_payment_are_a_loss() -> None:
    """R11, R42: attempts at one intent that were told different payments: one of them does not stand."""
    assert take([[{0: ["a"]}]], [Told(Ending.SUCCESS, frozenset({"a", "b"}))]) == Findings(1, 0, 1, 0, 0)


def test_a_client_that_learned_nothing_is_unknown() -> None:
    """I6: the row is there, but its client does not know."""
    assert take([[{0: ["a"]}]], [Told(Ending.NO_ANSWER)]) == Findings(1, 0, 0, 1, 0)


def test_a_refusal_of_what_was_done_is_unknown() -> None:
    """I6: a client told that it failed, although it did not, knows less than nothing."""
    assert take([[{0: ["a"]}]], [Told(Ending.REJECTED)]) == Findings(1, 0, 0, 1, 0)


def test_a_key_that_answers_in_progress_for_ever_is_stuck() -> None:
    """R27: stuck, and of course unknown to its client."""
    assert take([[{0: ["a"]}]], [Told(Ending.STUCK)]) == Findings(1, 0, 0, 1, 1)


def test_every_ledger_has_to_agree() -> None:
    """R42: one entry in each ledger; where one lacks it, has two, or has another than its fellow, that is damage."""
    paid, fee = {0: ["a"]}, {0: ["f"]}
    assert take([[paid, paid], [fee, fee], [{0: ["r"]}]], [PAID]) == Findings(1, 0, 0, 0, 0)
    assert take([[paid, paid], [fee, {}]], [PAID]) == Findings(1, 0, 1, 0, 0)
    assert take([[paid, {0: ["b"]}]], [PAID]) == Findings(1, 0, 1, 0, 0)
    assert take([[paid, paid], [fee, {0: ["g"]}]], [PAID]) == Findings(1, 0, 1, 0, 0)
    assert take([[paid, paid], [{0: ["f", "g"]}, fee]], [PAID]) == Findings(1, 1, 1, 0, 0)
    assert take([[paid, paid], [{0: ["r", "s"]}]], [PAID]) == Findings(1, 1, 0, 0, 0)


def test_the_last_answer_counts_and_every_payment_told() -> None:
    """R42: what the final round hears replaces the ending, and adds to what was told before."""
    assert Told(Ending.STUCK).then(PAID) == PAID
    assert PAID.then(Told(Ending.STUCK)) == Told(Ending.STUCK, frozenset({"a"}))
    assert PAID.then(Told(Ending.NO_ANSWER)) == PAID


def test_a_report_is_clean_without_duplicates_losses_and_stuck_keys() -> None:
    """R42: any of the three is damage; an unknown outcome alone is not."""
    clean = {"duplicates": 0, "lost": 0, "stuck": 0}

    def report(**counts: int) -> Report:
        return Report(
            intents=1, attempts=1, effects=1, unknown=1, faults={}, store="sqlite", seed=1, seconds=1.0,
            **{**clean, **counts},
        )  # fmt: skip

    assert report().clean
    assert [report(**{name: 1}).clean for name in clean] == [False, False, False]
