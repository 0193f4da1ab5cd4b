"""Servers that keep what is no result, lose what is one, or give it back as something else."""

from __future__ import annotations

import json
import time

from tests.conformance.gallery.honest import Honest, Record
from tests.conformance.gallery.shop import Answer, Asked


class KeepsUnavailable(Honest):
    """A 503 is the answer for ever."""

    def keeps(self, answer: Answer) -> bool:
        return super().keeps(answer) or answer.status == 503


class KeepsThrottled(Honest):
    """A 429 is the answer for ever."""

    def keeps(self, answer: Answer) -> bool:
        return super().keeps(answer) or answer.status == 429


class BurnsKeys(Honest):
    """A refusal is the answer to whatever comes under its key."""

    def keeps(self, answer: Answer) -> bool:
        return super().keeps(answer) or answer.status == 422

    def mismatch(self, record: Record, asked: Asked) -> Answer:
        if record.answer is not None and record.answer.status == 422:
            return self.replay(record.answer)
        return super().mismatch(record, asked)


class FailsAfterTheWork(Honest):
    """Does the work, fails then, and forgets the key as if nothing had been done."""

    def settle(self, asked: Asked, record: Record, prepared: Answer | str) -> Answer:
        if isinstance(prepared, Answer) and prepared.status == 503:
            with self.transaction():
                self.shop.perform(asked, json.loads(asked.body)["ref"])
        return super().settle(asked, record, prepared)


class ReplaysAs200(Honest):
    """What was made is found."""

    def replay(self, answer: Answer) -> Answer:
        return super().replay(answer)._replace(status=200)


class ReplaysBodyOnly(Honest):
    """Status and body are kept, and nothing else."""

    def replay(self, answer: Answer) -> Answer:
        return super().replay(answer._replace(lines=answer.lines[:1]))


class JoinsHeaders(Honest):
    """Header lines are a mapping: of those with one name the last is left."""

    def replay(self, answer: Answer) -> Answer:
        return super().replay(answer._replace(lines=tuple(dict(answer.lines).items())))


class ReplaysAnew(Honest):
    """Every answer says when it was given."""

    def replay(self, answer: Answer) -> Answer:
        told = {**json.loads(answer.body), "at": time.time_ns()}
        return super().replay(answer._replace(body=json.dumps(told).encode()))


class HidesReplays(Honest):
    """A replay looks like the first answer."""

    def replay(self, answer: Answer) -> Answer:
        return answer


class MarksEverything(Honest):
    """Every answer says that it is a replay."""

    def settle(self, asked: Asked, record: Record, prepared: Answer | str) -> Answer:
        return self.replay(super().settle(asked, record, prepared))
