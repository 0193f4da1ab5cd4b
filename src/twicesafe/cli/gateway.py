"""`twicesafe gateway`."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any, Final

from twicesafe.cli.existing import check_there
from twicesafe.cli.terminal import COULD_NOT, needing, typer
from twicesafe.errors import ConfigurationError

EPILOG: Final = """
\b
Examples:
  twicesafe gateway --upstream http://127.0.0.1:3000 --store sqlite:///records.db --scope-header X-User-Id
  twicesafe gateway --upstream http://shop:3000 --store postgresql://gate@db/records \\
      --scope-claim sub --jwks https://login.example/jwks.json \\
      --jwt-issuer https://login.example/ --jwt-audience shop --effects keyed

\b
Durations are seconds, or a number with ms, s, m, h or d behind it. The store's tables are made by `twicesafe schema
apply --store URL`.

\b
Exit status:
  0  stopped by Ctrl-C or SIGTERM, when its requests had ended
  2  it could not be started; one line on standard error says why
"""

_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(|ms|s|m|h|d)")
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+)):(\d{1,5})")


def _seconds(text: object) -> float:
    found = _DURATION.fullmatch(str(text))
    if found is None:
        raise typer.BadParameter("a duration is a number of seconds, or 500ms, 30s, 5m, 24h, 30d")
    return float(found[1]) * _UNITS[found[2]]


def _statuses(text: object) -> str:
    if re.fullmatch(r"(\d{3}(,\d{3})*)?", str(text)) is None:
        raise typer.BadParameter("statuses are written 502,504")
    return str(text)


def _duration(tells: str, shown: str | bool = True) -> Any:
    return typer.Option(parser=_seconds, metavar="DURATION", show_default=shown, help=tells)


def gateway(
    upstream: Annotated[
        str, typer.Option(envvar="TWICESAFE_UPSTREAM", help="The service: http://HOST:PORT or https://HOST:PORT.")
    ],
    store: Annotated[
        str,
        typer.Option(
            envvar="TWICESAFE_STORE",
            help="URL of a store: sqlite:///FILE, postgresql://USER:PASSWORD@HOST/DATABASE, redis://HOST.",
        ),
    ],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where callers find it.")] = "127.0.0.1:8080",
    server: Annotated[str, typer.Option(metavar="uvicorn|granian", help="What serves it.")] = "uvicorn",
    scope_header: Annotated[
        str, typer.Option(metavar="NAME", help="The header, set by a proxy in front, that says who a caller is.")
    ] = "",
    scope_claim: Annotated[
        str, typer.Option(metavar="CLAIM", help="The claim of a caller's bearer token that says who it is.")
    ] = "",
    scope_public: Annotated[bool, typer.Option("--scope-public", help="All callers share their keys.")] = False,
    jwks: Annotated[str, typer.Option(metavar="URL|FILE", help="The keys that tokens are signed by.")] = "",
    jwt_issuer: Annotated[str, typer.Option(metavar="ISS", help="What a token's iss has to be.")] = "",
    jwt_audience: Annotated[str, typer.Option(metavar="AUD", help="What a token's aud has to hold.")] = "",
    jwt_algorithms: Annotated[
        str, typer.Option(metavar="NAMES", help="The signatures that are taken.")
    ] = "RS256,PS256,ES256,EdDSA",
    effects: Annotated[
        str, typer.Option(metavar="opaque|keyed", help="keyed: the service itself does a key's work once.")
    ] = "opaque",
    methods: Annotated[str, typer.Option(metavar="METHODS", help="What takes keys.")] = "POST,PATCH",
    header: Annotated[str, typer.Option(metavar="NAME", help="The header that carries a caller's key.")] = (
        "Idempotency-Key"
    ),
    upstream_header: Annotated[
        str, typer.Option(metavar="NAME", help="The header that carries the derived key; as --header by default.")
    ] = "",
    key_syntax: Annotated[str, typer.Option(metavar="opaque|uuid", help="What keys look like.")] = "opaque",
    require_key: Annotated[bool, typer.Option("--require-key", help="Refuse requests without a key.")] = False,
    retention: Annotated[float, _duration("How long a key is remembered.", "24h")] = 86_400.0,
    body_retention: Annotated[
        float | None, _duration("How long its answer is kept; as long as the key by default.", shown=False)
    ] = None,
    lease: Annotated[float, _duration("How long a key is blocked when a gateway dies.", "30s")] = 30.0,
    wait: Annotated[float, _duration("How long a duplicate waits for the first attempt.", "0s")] = 0.0,
    new_keys: Annotated[
        int, typer.Option(min=0, show_default="any number", help="New keys that one caller may use.")
    ] = 0,
    new_keys_in_all: Annotated[
        int, typer.Option(min=0, show_default="any number", help="New keys that all callers together may use.")
    ] = 0,
    new_keys_within: Annotated[float, _duration("The time in which they may use so many.", "60s")] = 60.0,
    released: Annotated[
        str, typer.Option(parser=_statuses, metavar="STATUSES", help="Answers that say that nothing was done.")
    ] = "408,425,429,503",
    rerun: Annotated[
        str | None,
        typer.Option(
            parser=_statuses,
            metavar="STATUSES",
            show_default="502,504; keyed: 500 too",
            help="Failures that leave open what was done: keyed work runs again, opaque work is unknown.",
        ),
    ] = None,
    store_cookies: Annotated[bool, typer.Option("--store-cookies", help="Replays set cookies again.")] = False,
    body_limit: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="The largest request under a key.")
    ] = 1_048_576,
    response_limit: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="The largest answer that is kept.")
    ] = 1_048_576,
    problem_base: Annotated[str, typer.Option(metavar="URI", help="What problem types begin with.")] = (
        "urn:twicesafe:problem:"
    ),
    connect_timeout: Annotated[float, _duration("For a connection to the service.", "5s")] = 5.0,
    read_timeout: Annotated[float, _duration("To an answer's first byte, and between two pieces of it.", "60s")] = 60.0,
    write_timeout: Annotated[float, _duration("For a piece of a request to leave.", "60s")] = 60.0,
    keep_alive: Annotated[
        float, _duration("How long an idle connection is used again: less than the service keeps it.", "2s")
    ] = 2.0,
    connections: Annotated[int, typer.Option(min=1, help="Connections to the service, at most.")] = 256,
    upstream_ca: Annotated[
        str, typer.Option(metavar="FILE", help="Certificates that the service's own is checked by.")
    ] = "",
    host_header: Annotated[
        str, typer.Option(metavar="client|upstream", help="Whose Host line the service sees.")
    ] = "client",
    forwarded: Annotated[
        str,
        typer.Option(
            metavar="append|replace",
            help="What becomes of X-Forwarded-* and Forwarded that came; replace where no proxy is in front.",
        ),
    ] = "append",
    health: Annotated[
        str, typer.Option(metavar="PATH", help="A path that is answered here: 200 while the store can be reached.")
    ] = "",
    drain: Annotated[
        float, _duration("How long a stop waits for requests, and then for work whose caller is gone.", "10s")
    ] = 10.0,
) -> None:
    """Make retries safe in front of a service in any language, as a reverse proxy that lets each key happen once.

    No transaction is shared with the service. Where its answer is lost, an opaque request is held as unknown and never
    sent again; a keyed one is sent again under the same derived key, which the service has to know.
    """
    host, port = _host_and_port(listen)
    check_there(store)
    with needing("gateway"):
        from twicesafe.gateway.serving import SERVERS
        from twicesafe.gateway.settings import Settings
    if server not in SERVERS:
        raise ConfigurationError(f"--server: must be one of {', '.join(SERVERS)}, not {server!r}")
    settings = Settings(
        upstream=upstream,
        store=store,
        scope_header=scope_header,
        scope_claim=scope_claim,
        scope_public=scope_public,
        jwks=jwks,
        jwt_issuer=jwt_issuer,
        jwt_audience=jwt_audience,
        jwt_algorithms=_listed(jwt_algorithms),
        effects=effects,
        methods=_listed(methods),
        header=header,
        upstream_header=upstream_header,
        key_syntax=key_syntax,
        require_key=require_key,
        retention=retention,
        body_retention=body_retention,
        lease=lease,
        wait=wait,
        new_keys=new_keys,
        new_keys_in_all=new_keys_in_all,
        new_keys_within=new_keys_within,
        released=tuple([int(status) for status in _listed(released)]),
        rerun=None if rerun is None else tuple([int(status) for status in _listed(rerun)]),
        store_cookies=store_cookies,
        body_limit=body_limit,
        response_limit=response_limit,
        problem_base=problem_base,
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        write_timeout=write_timeout,
        keep_alive=keep_alive,
        connections=connections,
        upstream_ca=upstream_ca,
        host_header=host_header,
        forwarded=forwarded,
        health=health,
        drain=drain,
    )
    try:
        served = SERVERS[server](settings, host, port, lambda where: _announce(where, upstream))
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"--server: the package {missing.name} is missing: pip install {missing.name}"
        ) from missing
    if not served:
        raise typer.Exit(COULD_NOT)


def _announce(where: str, upstream: str) -> None:
    sys.stderr.write(f"Passing requests at http://{where} on to {upstream}.\n")


def _listed(text: str) -> tuple[str, ...]:
    return tuple([word.strip() for word in text.split(",") if word.strip()])


def _host_and_port(listen: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(listen)
    if found is None or int(found[3]) > 65_535:
        raise ConfigurationError(f"--listen: must be HOST:PORT, as 127.0.0.1:8080 or [::1]:8080, not {listen!r}")
    return found[1] or found[2], int(found[3])
