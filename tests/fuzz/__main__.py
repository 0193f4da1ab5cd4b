"""Follows the properties of these tests for longer than `make test` does.

    python -m tests.fuzz [--seconds 240] [--seed SEED] [--at-once 2] [--only PROPERTY] [--bytes HEX]

Every property is driven by bytes: by atheris, which minds which lines of twicesafe they reach, where that is installed,
and at random otherwise. The seed is printed. What fails is told with the bytes that it failed on, and ends with 1;
`--only` and `--bytes` try them again. The demo is tried by its OpenAPI documents then, where schemathesis is installed.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.fuzz import served

LONGEST: Final = 4096
"""Bytes that one example is made of at most."""
SEEDS: Final = 40
"""Examples at random to begin with: of a few bytes nothing can be made."""

Property = Callable[[bytes], object]


def properties(of: str = "*") -> Mapping[str, Any]:
    """The tests of this folder that have a property, by name, or those of one file."""
    found = {}
    for file in sorted(Path(__file__).parent.glob(f"test_{of}.py")):
        module = importlib.import_module(f"tests.fuzz.{file.stem}")
        for name, one in vars(module).items():
            if hasattr(one, "hypothesis"):
                found[f"{file.stem.removeprefix('test_')}.{name.removeprefix('test_')}"] = one
    return found


def _driven(name: str, test: Any) -> Property:
    """The property as a function of bytes, which says what it was given when it fails, and ends the process."""
    inner = test.hypothesis.inner_test
    given: dict[str, object] = {}

    def remembered(*values: object, **named: object) -> object:
        given.clear()
        given.update(named, **{f"_{place}": value for place, value in enumerate(values)})
        return inner(*values, **named)

    test.hypothesis.inner_test = remembered
    drive = test.hypothesis.fuzz_one_input

    def one(data: bytes) -> None:
        try:
            drive(data)
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print(
                f"{name} failed on {given}\nAgain: python -m tests.fuzz --only {name} --bytes {data.hex()}", flush=True
            )
            os._exit(1)

    return one


def _named(name: str) -> Any:
    return properties(name.partition(".")[0])[name]


def follow(name: str, seconds: float, seed: int, folder: str | None = None) -> None:
    """Drive one property for so long, in this process, whose files go into the folder."""
    try:
        import atheris
    except ModuleNotFoundError:
        one = _driven(name, _named(name))
        for data in _at_random(seed, seconds):
            one(data)
        return
    with atheris.instrument_imports(include=["twicesafe"]):
        one = _driven(name, _named(name))
    # A process of libFuzzer's never comes back from Fuzz(): the folder is left to whoever started it.
    corpus = Path(tempfile.mkdtemp(dir=folder))
    for place, data in zip(range(SEEDS), _at_random(seed, math.inf), strict=False):
        (corpus / str(place)).write_bytes(data)
    limits = [f"-seed={seed}", f"-max_total_time={int(seconds)}", f"-max_len={LONGEST}", "-len_control=0"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={corpus}/", str(corpus)], one)
    atheris.Fuzz()


def _at_random(seed: int, seconds: float) -> Iterator[bytes]:
    chance, end = random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end:
        yield chance.randbytes(chance.randrange(1, LONGEST))


def follow_all(names: list[str], seconds: float, seed: int, at_once: int) -> list[str]:
    """Drive each in a process of its own, several at a time. What failed."""
    share = max(1, int(seconds * at_once / len(names)))
    with ThreadPoolExecutor(at_once) as pool, tempfile.TemporaryDirectory(prefix="twicesafe-fuzz-") as folder:
        return [name for name in pool.map(partial(_apart, seconds=share, seed=seed, folder=folder), names) if name]


def _apart(name: str, seconds: int, seed: int, folder: str) -> str:
    command = [sys.executable, "-m", "tests.fuzz", "--only", name, "--seconds", str(seconds), "--seed", str(seed)]
    command += ["--folder", folder]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"{'failed' if ran.returncode else 'held':7} {name}", flush=True)
    if ran.returncode:
        print(ran.stdout[-4000:] + ran.stderr[-2000:], flush=True)
    return name if ran.returncode else ""


def main() -> int:
    """Follow what was asked for; how it ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=240.0, help="for all of them together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--bytes", default="")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.bytes:
        _driven(asked.only, _named(asked.only))(bytes.fromhex(asked.bytes))
    elif asked.only:
        follow(asked.only, asked.seconds, asked.seed, asked.folder)
    else:
        names = list(properties())
        print(f"{len(names)} properties, seed {asked.seed}", flush=True)
        failed = follow_all(names, asked.seconds, asked.seed, asked.at_once)
        if served.is_there():
            failed += served.try_served(asked.seed)
        else:
            print("left out: the demo by its documents, which takes schemathesis", flush=True)
        print(f"{'failed: ' + ', '.join(failed) if failed else 'all held'}, seed {asked.seed}", flush=True)
        return 1 if failed else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
