"""Servers that take another request for the same, or the same for another."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.conformance.gallery.honest import Honest, Record, digest, members
from tests.conformance.gallery.shop import Answer, Asked


class ComparesNothing(Honest):
    """A key is all there is to a request."""

    def fingerprint(self, asked: Asked) -> str:
        return ""


class IgnoresBody(Honest):
    """Compares method and URL."""

    def canonical(self, body: bytes) -> str:
        return ""


class IgnoresQuery(Honest):
    """A trial run and the real one are one."""

    def fingerprint(self, asked: Asked) -> str:
        return super().fingerprint(asked._replace(query=""))


class IgnoresPath(Honest):
    """One resource is another."""

    def fingerprint(self, asked: Asked) -> str:
        return super().fingerprint(asked._replace(path=""))


class IgnoresMethod(Honest):
    """To make and to change are one."""

    def fingerprint(self, asked: Asked) -> str:
        return super().fingerprint(asked._replace(method=""))


class ComparesDoubles(Honest):
    """Numbers are what a double makes of them."""

    def canonical(self, body: bytes) -> str:
        try:
            return json.dumps(json.loads(body, parse_int=float, object_pairs_hook=members))
        except ValueError:
            return body.hex()


class DropsNull(Honest):
    """A member that is null is not there."""

    def canonical(self, body: bytes) -> str:
        def without(pairs: list[tuple[str, Any]]) -> list[Any]:
            return members([pair for pair in pairs if pair[1] is not None])

        try:
            return json.dumps(json.loads(body, parse_int=str, parse_float=str, object_pairs_hook=without))
        except ValueError:
            return body.hex()


class RunsAnother(Honest):
    """What is said is part of the key: another body is another order."""

    def name(self, asked: Asked, key: str) -> str:
        return json.dumps([super().name(asked, key), self.fingerprint(asked)])


class RunsAnotherOrder(Honest):
    """The same members in another order are another request, and are done."""

    def name(self, asked: Asked, key: str) -> str:
        try:
            order = list(json.loads(asked.body))
        except ValueError:
            order = []
        return json.dumps([super().name(asked, key), order])


class WaitsUncompared(Honest):
    """Whoever comes while the first is at work waits for its answer, whatever they asked for."""

    def mismatch(self, record: Record, asked: Asked) -> Answer:
        return super().mismatch(record, asked) if record.answer else self.in_progress(record)

    async def keyed(self, asked: Asked, name: str) -> Answer:
        answer = await super().keyed(asked, name)
        while answer.status == 409:
            await asyncio.sleep(0.02)
            found = self.record(name)
            if found is None:
                break
            if found.answer is not None:
                answer = self.replay(found.answer)
        return answer


class ForgetsOnMismatch(Honest):
    """Another request under a used key costs the first its record."""

    def mismatch(self, record: Record, asked: Asked) -> Answer:
        self.release(record)
        return super().mismatch(record, asked)


class FailsOnMismatch(Honest):
    """Another request under a used key is a failure of the server's."""

    def mismatch(self, record: Record, asked: Asked) -> Answer:
        return super().mismatch(record, asked)._replace(status=500)


class RefusesOtherwise(Honest):
    """Has a status of its own for another request under a used key."""

    def mismatch(self, record: Record, asked: Asked) -> Answer:
        return super().mismatch(record, asked)._replace(status=409)


class ShowsAnswer(Honest):
    """Says what the key was used for: in the body of its refusal stands the first answer."""

    def mismatch(self, record: Record, asked: Asked) -> Answer:
        refusal = super().mismatch(record, asked)
        if record.answer is None:
            return refusal
        told = {**json.loads(refusal.body), "first": json.loads(record.answer.body)}
        return refusal._replace(body=json.dumps(told).encode())


def same_content(asked: Asked) -> str:
    """By what a request says, its key apart."""
    return digest(asked.account, asked.path, asked.query, asked.body.hex())


class TakesContentForIntent(Honest):
    """What was ordered once is not ordered again, whatever the key."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, str] = {}

    def name(self, asked: Asked, key: str) -> str:
        return self.known.get(same_content(asked)) or super().name(asked, key)

    def settle(self, asked: Asked, record: Record, prepared: Answer | str) -> Answer:
        answer = super().settle(asked, record, prepared)
        if self.keeps(answer):
            self.known.setdefault(same_content(asked), record.name)
        return answer
