"""Who may look, and who may do anything: nobody by default, and no other site in anybody's name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.place import CHEAP, KEY, PASSWORD, PEOPLE, Place, ask, place
from tests.dashboard.visitor import Caller
from twicesafe.dashboard import Dashboard, hash_password
from twicesafe.dashboard.people import LASTS, PERIOD, TRIES, TRIES_OF_ALL, Attempts, People, Visits
from twicesafe.errors import ConfigurationError
from twicesafe.stores.contract import AuditEntry
from twicesafe.stores.sqlite import AsyncSqliteStore

PATHS = ("/", "/records", f"/records/{'00' * 32}", "/messages", "/messages/m-1", "/events")
FORMS = ("/find", "/sign-out", f"/records/{'00' * 32}/settle", f"/records/{'00' * 32}/ask", "/messages/m-1/retry")


@pytest.fixture
def caller(shop: Place) -> Caller:
    return Caller(shop.url)


def test_it_is_off_until_somebody_may_look(tmp_path: Path) -> None:
    """R22: without people and without who, nothing is shown and nothing done, and the page says what to set."""
    with place(tmp_path, people=None) as shop:
        shop.unknown()
        for path in (*PATHS, "/sign-in"):
            status, _, body = ask(shop.url + path)
            assert status == 403, path
            assert b"no default password" in body and b"create_charge" not in body
        for path in (*FORMS, "/sign-in"):
            assert ask(shop.url + path, b"name=ann&password=")[0] == 403, path
        assert len(shop.store.outstanding().records) == 1


def test_a_stranger_is_shown_the_door(caller: Caller) -> None:
    """R22: whoever has not signed in is led to the sign-in from every page, and no form is taken."""
    for path in PATHS[:-1]:
        status, headers, _ = caller.get(path)
        assert (status, headers["location"]) == (303, "/dashboard/sign-in"), path
    assert caller.get("/events")[0] == 401
    for path in FORMS:
        assert caller.post(path) == (303, "/dashboard/sign-in"), path
    assert caller.sign_in(password="wrong") == 403
    assert caller.sign_in(name="bob") == 403
    assert caller.get("/")[0] == 303


def test_a_visit_is_a_cookie_that_only_this_site_sends(shop: Place, caller: Caller) -> None:
    """R22: HttpOnly, SameSite=Strict, for the dashboard's path only, Secure where it is HTTPS; ended by signing out."""
    assert caller.sign_in() == 303
    assert caller.get("/")[0] == 200
    _, headers, _ = ask(shop.url + "/sign-in")
    assert re.search("; HttpOnly; .*Path=/dashboard; SameSite=strict$", headers["set-cookie"])
    kept = caller.cookie
    assert caller.post("/sign-out")[0] == 303
    caller.cookie = kept
    assert caller.get("/")[0] == 303
    for changed in (kept[:-2] + "AA", kept.replace("YW5u", "Ym9i"), "twicesafe_dashboard=x.1.YW5u.y"):
        caller.cookie = changed
        assert caller.get("/")[0] == 303


def test_a_secure_visit_is_for_https_only(tmp_path: Path) -> None:
    """R22: told that browsers come by HTTPS, it sets no cookie that would go without it."""
    with place(tmp_path, secure=True) as shop:
        assert "; Secure" in ask(shop.url + "/sign-in")[1]["set-cookie"]


def test_another_sites_form_does_nothing(shop: Place, caller: Caller) -> None:
    """R22, R26: without this visit's proof, with another's, or sent by another site, a form changes nothing."""
    shop.unknown()
    caller.sign_in()
    address = "/records/" + shop.store.outstanding().records[0].digest.hex()
    caller.get(address)
    fields = {"seen": caller.seen(), "why": "because"}
    proof = caller.proof()
    other = Caller(shop.url)
    other.sign_in()
    other.get(address)
    for given, site in (
        ("", "same-origin"),
        (other.proof(), "same-origin"),
        (proof, "cross-site"),
        (proof, "same-site"),
    ):
        assert caller.post(f"{address}/release", given, site, **fields)[0] == 403
    assert caller.post("/sign-in", other.proof(), name="ann", password=PASSWORD)[0] == 403
    assert shop.store.audits(bytes.fromhex(address[9:])) == []
    assert caller.post(f"{address}/release", proof, **fields)[0] == 303
    assert shop.store.outstanding().records == ()


def test_nothing_is_done_without_a_reason_or_about_another_claim(shop: Place, caller: Caller) -> None:
    """R26, I3: a form needs a reason, and is about the claim that was looked at; of an older one it changes nothing."""
    shop.unknown()
    caller.sign_in()
    record = shop.store.outstanding().records[0]
    address = f"/records/{record.digest.hex()}"
    caller.get(address)
    seen, proof = caller.seen(), caller.proof()
    assert caller.post(f"{address}/settle", proof, seen=seen, why=" ", status="200")[0] == 409
    assert caller.post(f"{address}/settle", proof, seen=seen, why="x", status="99")[0] == 409
    shop.store.settle(record.ownership, None, 1, 1)
    shop.unknown()
    status, said = caller.post(f"{address}/release", proof, seen=seen, why="too late")
    assert len(shop.store.outstanding().records) == 1
    assert (status, "claimed anew" in said) == (409, True)
    assert shop.store.audits(record.digest) == []


def test_no_retry_gets_an_answer_that_cannot_be_sent(shop: Place, caller: Caller) -> None:
    """R26: a 204 with a body is refused on its page and in no trail; one without is what every retry then gets."""
    shop.unknown()
    caller.sign_in()
    record = shop.store.outstanding().records[0]
    address = f"/records/{record.digest.hex()}"
    caller.get(address)
    fields = {"seen": caller.seen(), "why": "seen at the provider's", "status": "204"}
    status, said = caller.post(f"{address}/settle", body="{}", **fields)
    assert len(shop.store.outstanding().records) == 1
    assert (status, "has no body" in said, shop.store.audits(record.digest)) == (409, True, [])
    assert caller.post(f"{address}/settle", body="", **fields)[0] == 303
    assert shop.charge() == (204, b"")
    settled = shop.store.read(record.digest).record
    assert settled is not None and settled.response is not None and settled.response.headers == ()


def test_the_application_says_who_asks(tmp_path: Path) -> None:
    """R22, R26: mounted with the application's own sign-in, its names are the trail's, and strangers are out."""

    async def who(request: Any) -> str | None:
        return {"one": "ben"}.get(request.headers.get("x-session", "one"))

    with place(tmp_path, people=None, who=who) as shop:
        shop.unknown()
        caller = Caller(shop.url)
        record = shop.store.outstanding().records[0]
        address = f"/records/{record.digest.hex()}"
        assert caller.get(address)[0] == 200
        seen, proof = caller.seen(), caller.proof()
        assert ask(shop.url, None, {"x-session": "two"})[0] in (307, 403)
        assert ask(shop.url + "/", None, {"x-session": "two"})[0] == 403
        assert caller.post(f"{address}/release", "", seen=seen, why="w")[0] == 403
        assert caller.post(f"{address}/release", proof, seen=seen, why="w")[0] == 303
        assert [one.who for one in shop.store.audits(record.digest)] == ["ben"]


def test_a_key_is_found_and_not_repeated(shop: Place, caller: Caller) -> None:
    """R22: found by the key itself, which is in no address and on no page; nor is a body or an answer."""
    shop.charge()
    caller.sign_in()
    caller.get("/records")
    status, address = caller.post("/find", key=KEY, scope="user-7")
    assert status == 303 and KEY not in address
    page = caller.get(address.removeprefix("/dashboard"))[2]
    assert "completed" in page and KEY[-4:] in page
    assert KEY not in page and "amount" not in page
    assert caller.get("/records") and caller.post("/find", key=KEY, scope="user-8")[0] == 303
    caller.get("/records")
    for wrong in ({"key": "ключ"}, {"key": "k", "scope": "s" * 256}):
        status, said = caller.post("/find", caller.proof(), **wrong)
        assert (status, "ключ" in said) == (400, False)
        caller.get("/records")
    assert caller.get(f"/records/{'0' * 64}")[0] == 404
    assert caller.get("/records/nothing")[0] == 404


def test_every_answer_is_under_the_strict_policy(shop: Place, caller: Caller) -> None:
    """R22: whatever it answers may load its own files only, stands in no frame, and is kept by no browser."""
    caller.sign_in()
    paths = ("/", "/sign-in", "/dashboard.css", "/live.js", "/nothing", "/records", f"/records/{'1' * 64}")
    for path in paths:
        headers = caller.get(path)[1]
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'"), path
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy and "form-action 'self'" in policy
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


# --- passwords and visits --------------------------------------------------------------------------------------------


def test_wrong_passwords_are_few(shop: Place, caller: Caller) -> None:
    """R22: after ten wrong ones no password is looked at for a while, not even the right one."""
    for _ in range(TRIES):
        assert caller.sign_in(password="wrong") == 403
    assert caller.sign_in() == 429
    assert caller.get("/")[0] == 303


def test_attempts_are_counted_by_address_and_together() -> None:
    """R22: ten of one address, a hundred of all, in five minutes; a right one counts for nothing."""
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    for _ in range(TRIES - 1):
        attempts.wrong("a")
    attempts.wrong("a")
    attempts.right("a")
    assert attempts.wait("a") == 0
    attempts.wrong("a")
    assert (attempts.wait("a"), attempts.wait("b")) == (PERIOD, 0)
    now[0] = PERIOD - 0.5
    assert attempts.wait("a") == 1
    now[0] = PERIOD
    assert attempts.wait("a") == 0
    for number in range(TRIES_OF_ALL):
        attempts.wrong(f"c-{number}")
    assert attempts.wait("d") == PERIOD


def test_a_password_is_kept_as_a_hash() -> None:
    """R22: salted, slow, compared in constant time; short ones and what is no hash are refused."""
    one, other = (hash_password(PASSWORD, CHEAP) for _ in range(2))
    assert one != other and PASSWORD not in one
    people = People({"ann": one})
    assert people.is_right("ann", PASSWORD)
    assert not people.is_right("ann", PASSWORD + " ")
    assert not people.is_right("bob", PASSWORD)
    with pytest.raises(ConfigurationError, match="12 characters"):
        hash_password("short")
    for wrong in ({"ann": PASSWORD}, {"a b": one}, {"": one}):
        with pytest.raises(ConfigurationError):
            People(wrong)


def test_visits_end() -> None:
    """R22: after twelve hours, with another password, and with another secret."""
    now = [1000.0]
    secret = "s" * 32
    visits = Visits(People(PEOPLE), secret, clock=lambda: now[0])
    cookie = visits.cookie(visits.begin("ann"))
    same = Visits(People(PEOPLE), secret.encode(), clock=lambda: now[0])
    found = same.read(cookie)
    assert found is not None and found.name == "ann"
    assert Visits(People({"ann": hash_password(PASSWORD, CHEAP)}), secret, clock=lambda: now[0]).read(cookie) is None
    assert Visits(People({}), secret, clock=lambda: now[0]).read(cookie) is None
    assert Visits(People(PEOPLE), "t" * 32, clock=lambda: now[0]).read(cookie) is None
    assert Visits(People(PEOPLE), clock=lambda: now[0]).read(cookie) is None
    now[0] += LASTS
    assert same.read(cookie) is None
    with pytest.raises(ConfigurationError, match="32 bytes"):
        Visits(People(PEOPLE), "short")


def test_a_dashboard_that_could_not_work_is_refused(shop: Place) -> None:
    """House: both ways to say who may look, or a store that cannot list its records, are said at once."""
    store: Any = AsyncSqliteStore(shop.file)
    with pytest.raises(ConfigurationError, match="blocking store"):
        Dashboard(store)
    with pytest.raises(ConfigurationError, match="not both"):
        Dashboard(shop.store, people=PEOPLE, who=lambda request: "ann")
    silent: Any = object()
    with pytest.raises(ConfigurationError, match="cannot list records"):
        Dashboard(silent)


def test_what_strangers_chose_is_shown_as_text(shop: Place, caller: Caller) -> None:
    """R22: names that hold markup or control characters are shown, and are neither."""
    digest = bytes(32)
    bad = "<b onclick=x>\u202e"
    entry = AuditEntry(b"1" * 16, 0, digest, bad, bad, bad, "release", bad, bad)
    shop.store.audit(entry)
    caller.sign_in()
    page = caller.get(f"/records/{digest.hex()}")[2]
    assert "&lt;b onclick=x&gt;\\u202e" in page
    assert "<b onclick" not in page and "\u202e" not in page


def test_addresses_that_people_make_up_lead_nowhere(shop: Place, caller: Caller) -> None:
    """R22: what can be no message's id is not found, as any other address that leads nowhere."""
    caller.sign_in()
    for address in ("/messages/", "/messages/%00", f"/messages/{'x' * 300}", "/messages/%F0%9F%98%80%0A"):
        status, _, page = caller.get(address)
        assert (status, "Not found" in page) == (404, True), address
    caller.get("/records")
    for address in ("/messages/%00/retry", f"/messages/{'x' * 300}/discard"):
        assert caller.post(address, why="x")[0] == 404, address
        caller.get("/records")


def test_a_reason_says_something(shop: Place, caller: Caller) -> None:
    """R26: what would leave nothing in the trail is no reason."""
    shop.unknown()
    caller.sign_in()
    record = shop.store.outstanding().records[0]
    address = f"/records/{record.digest.hex()}"
    caller.get(address)
    assert caller.post(f"{address}/release", seen=caller.seen(), why="\0 \0")[0] == 409
    assert shop.store.audits(record.digest) == [] and len(shop.store.outstanding().records) == 1


def test_who_gives_a_name_or_none(tmp_path: Path) -> None:
    """R22: what is no name lets nobody in, such as a user object that has forgotten its name, or a bare True."""
    given: list[Any] = []
    with place(tmp_path, people=None, who=lambda request: given[0]) as shop:
        shop.unknown()
        for odd in (True, 7, b"ann", object(), ["ann"]):
            given[:] = [odd]
            status, headers, body = ask(shop.url + "/records")
            assert (status, b"create_charge" in body) == (500, False)
            assert "content-security-policy" in headers


def test_names_are_as_the_trail_can_keep_them(tmp_path: Path) -> None:
    """R26: whatever an application calls its people, it can be written down and shown."""
    given = [""]
    with place(tmp_path, people=None, who=lambda request: given[0]) as shop:
        caller = Caller(shop.url)
        for name, kept in (("an\0n", "an\\x00n"), ("a\udc80", "a\\udc80"), ("n" * 300, "n" * 255)):
            given[:] = [name]
            shop.unknown()
            record = shop.store.outstanding().records[0]
            address = f"/records/{record.digest.hex()}"
            caller.get(address)
            assert caller.post(f"{address}/release", seen=caller.seen(), why="x")[0] == 303
            assert shop.store.audits(record.digest)[-1].who == kept
            assert kept in caller.get(address)[2]
