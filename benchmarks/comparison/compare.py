"""Checks packages that make a server idempotent, each in a virtual environment of its own: `python compare.py FOLDER`.

It needs the command redis-server. What it makes, and a report of each package, is left in the folder.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).parent
PEERS = {
    "asgi-idempotency-header": ["asgi-idempotency-header==0.2.0", "redis>=4.2,<5"],
    "fastapi-idempotency": ["fastapi-idempotency==0.1.1"],
    "fastapi-idempotency-key": ["fastapi-idempotency-key[sqlite]==0.1.1"],
    "idemkit": ["idemkit[asgi,redis]==1.0.2"],
}
SHOP = ["fastapi", "uvicorn"]
SKIPPED = ["after-expiry", "restart-after-answer", "crash-while-running"]
"""Nobody is told how to make keys old, or to restart the shop."""


def free_port() -> int:
    """A port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def await_port(port: int) -> None:
    """Wait until somebody listens."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nobody listens on port {port}")


def python_with(folder: Path, packages: list[str]) -> Path:
    """The interpreter of a virtual environment with these packages."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages, *SHOP], check=True)
    return python


def checked(name: str, python: Path, folder: Path, redis: int) -> dict[str, str]:
    """The verdicts of all trials of the shop with this package."""
    port = free_port()
    environment = {
        **os.environ, "PEER": name, "REDIS_URL": f"redis://127.0.0.1:{redis}",
        "SQLITE_FILE": str(folder / f"{name}.db"),
    }  # fmt: skip
    command = [python, "-m", "uvicorn", "shop:app", "--port", str(port), "--log-level", "critical"]
    shop = subprocess.Popen(command, cwd=HERE, env=environment)
    try:
        await_port(port)
        report = folder / f"{name}.json"
        target = (HERE / "target.toml").read_text(encoding="utf-8").replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        (folder / f"{name}.toml").write_text(target, encoding="utf-8")
        skipped = [part for trial in SKIPPED for part in ("--skip", trial)]
        check = [sys.executable, "-m", "twicesafe", "check", folder / f"{name}.toml", "--format", "json", *skipped]
        subprocess.run([*check, "--out", report], check=False)
        findings = json.loads(report.read_text(encoding="utf-8"))["findings"]
        return {finding["trial"]: finding["verdict"] for finding in findings}
    finally:
        shop.terminate()
        shop.wait()


def main(folder: Path) -> None:
    """Check them all, and print a table in Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    redis = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
                             stdout=subprocess.DEVNULL, cwd=folder)  # fmt: skip
    try:
        await_port(port)
        pythons = {name: python_with(folder / name, packages) for name, packages in PEERS.items()}
        pythons["twicesafe"] = Path(sys.executable)
        found = {name: checked(name, python, folder, port) for name, python in pythons.items()}
    finally:
        redis.terminate()
        redis.wait()
    print("| trial |", " | ".join(found), "|")
    print("|---|" + "---|" * len(found))
    for trial in found["twicesafe"]:
        print(f"| {trial} |", " | ".join(verdicts[trial] for verdicts in found.values()), "|")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
