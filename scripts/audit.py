"""What advisories say of the packages in a directory: `python scripts/audit.py DIRECTORY`, by way of pip-audit and OSV.

Whether the database can be reached is found out first, because pip-audit ends alike whatever went wrong. Once it
answers, everything has to be asked about: whatever is found and whatever cannot be asked is a failure. Ends with 0
where nothing was found, 1 where something was or pip-audit failed, and 3 where nobody answered for twenty seconds; with
`--unreachable-passes` the last is said on stderr too, and ends with 0.

PIP_AUDIT_OSV_URL names another database, as it does for pip-audit itself.
"""

from __future__ import annotations

import argparse
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

OSV = "https://api.osv.dev/v1/query"

CLEAN, FAILED, UNREACHABLE = 0, 1, 3

QUESTION = b'{"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "25.1"}'


def unreachable(address: str, seconds: float, pause: float = 2.0) -> str | None:
    """Why nobody answers there, or None once anybody did, with whatever status; asked anew until the time is over."""
    reasons = [f"no answer in {seconds:g} s"]
    headers = {"Content-Type": "application/json"}
    reached = threading.Event()

    def ask() -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            request = urllib.request.Request(address, QUESTION, headers)  # noqa: S310 - named by whoever runs this
            try:
                urllib.request.urlopen(request, timeout=left).close()  # noqa: S310 - as above
            except urllib.error.HTTPError:
                reached.set()
            except OSError as error:
                reason = getattr(error, "reason", error)
                if isinstance(reason, ssl.SSLCertVerificationError):
                    reached.set()  # by somebody else, perhaps: pip-audit refuses them too, and that is to be seen
                else:
                    reasons.append(" ".join(str(reason).split()))
            else:
                reached.set()
            if reached.wait(pause):
                return

    # A thread, since no time-out ends the look-up of a name.
    threading.Thread(target=ask, daemon=True).start()
    return None if reached.wait(seconds) else reasons[-1]


def audit(tool: list[str], packages: Path, address: str) -> int:
    """What pip-audit makes of the packages there: CLEAN or FAILED, and why in one line on stderr."""
    arguments = ["--strict", "--vulnerability-service", "osv", "--progress-spinner", "off", "--osv-url", address]
    command = [*tool, *arguments, "--path", str(packages)]
    status = subprocess.run(command, check=False).returncode  # noqa: S603 - of this script alone
    if status == 0:
        return CLEAN
    print(
        f"audit: FAILED: something was found, or not everything could be asked about: see above (status {status})",
        file=sys.stderr,
    )
    return FAILED


def main(arguments: list[str] | None = None, *, tool: list[str] | None = None, seconds: float = 20) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description="Ask OSV, an advisory database, about the packages in a directory.")
    parser.add_argument("packages", type=Path, metavar="DIRECTORY", help="a site-packages directory")
    parser.add_argument(
        "--unreachable-passes", action="store_true", help="end with 0 where the database is not reached"
    )
    asked = parser.parse_args(arguments)
    if not asked.packages.is_dir():
        print(f"audit: FAILED: {asked.packages} is no directory", file=sys.stderr)
        return FAILED
    address = os.environ.get("PIP_AUDIT_OSV_URL", OSV)
    if why := unreachable(address, seconds):
        print(
            f"audit: NOT AUDITED: {address} cannot be reached ({why}); no dependency was checked against any advisory",
            file=sys.stderr,
        )
        return CLEAN if asked.unreachable_passes else UNREACHABLE
    return audit(tool or [sys.executable, "-m", "pip_audit"], asked.packages, address)


if __name__ == "__main__":
    sys.exit(main())
