"""The file of intents: whose it is, who uses it at once, and what it says when it cannot be used."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tests.client.reserving import called
from twicesafe.client import Intent, IntentStore, IntentStoreError, RetryPolicy, Standing
from twicesafe.client.intent_file import APPLICATION, LAYOUT
from twicesafe.errors import ConfigurationError
from twicesafe.stores.cryptography import Keyring

DAY = timedelta(days=1)
URL = "https://pay.example/charges"


def charge() -> Intent:
    return Intent.new("POST", URL, json={"amount": 100})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def an_account_that_is_nobodys() -> Iterator[None]:
    """Permissions do not hold whoever is root, as tests in containers are."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def within_reach() -> Iterator[Path]:
    """A folder that every account can enter."""
    folder = Path(tempfile.mkdtemp(prefix="twicesafe-intents-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    """R22, R34: the file is made 0600 in a folder made 0700, whatever the umask, and so is what lies beside it."""
    before = os.umask(0)
    try:
        store = IntentStore(tmp_path / "var" / "lib" / "intents.db")
        with closing(sqlite3.connect(tmp_path / "var/lib/intents.db")) as other:
            other.execute("SELECT * FROM intents")
            store.reserve("cart 17", charge(), remembers=DAY)
            modes = {path.name: mode(path) for path in (tmp_path / "var" / "lib").iterdir()}
    finally:
        os.umask(before)
    assert modes == {"intents.db": 0o600, "intents.db-wal": 0o600, "intents.db-shm": 0o600}
    assert mode(tmp_path / "var") == mode(tmp_path / "var" / "lib") == 0o700


def test_a_file_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    """R22: whoever made it readable for others is told, and how to undo it; nothing is written to it."""
    file = tmp_path / "intents.db"
    IntentStore(file)
    file.chmod(0o640)
    with pytest.raises(IntentStoreError, match="chmod 600"):
        IntentStore(file)
    file.chmod(0o600)
    assert IntentStore(file).listed() == ()


@pytest.mark.parametrize("path", ["", ":memory:", "file:intents.db"])
def test_what_is_no_file_is_refused(path: str) -> None:
    """R34: an intent in memory does not outlive its process."""
    with pytest.raises(ConfigurationError, match="path of a file"):
        IntentStore(path)
    with pytest.raises(ConfigurationError, match="busy_timeout"):
        IntentStore("intents.db", busy_timeout=timedelta(seconds=-1))


def foreign(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.commit()


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {LAYOUT + 1}")


def text(file: Path) -> None:
    file.write_text("an invoice, and no database at all\n" * 40)


@pytest.mark.parametrize(
    ("make", "said"), [(foreign, "something else"), (newer, "newer release"), (text, "another kind of file")]
)
def test_a_file_of_somebody_else_is_left_as_it_is(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    """R34: another database, one of a newer release, and no database: the error names the file, no byte changes."""
    file = tmp_path / "intents.db"
    make(file)
    file.chmod(0o600)
    before = file.read_bytes()
    with pytest.raises(IntentStoreError, match=said) as caught:
        IntentStore(file)
    assert str(file) in str(caught.value)
    assert file.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_file_of_an_earlier_layout_is_gone_on_with(tmp_path: Path) -> None:
    """R34: it had no note of the latest time; what it was written at counts, so a clock behind that was set back."""
    file, day = tmp_path / "intents.db", 86_400_000_000
    times = [100 * day]
    store = IntentStore(file, clock=lambda: times[-1])
    store.runs.begin(store.reserve("cart 17", charge(), remembers=DAY), RetryPolicy(), None)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE clock")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    for now, standing in ((100 * day, Standing.UNKNOWN), (99 * day, Standing.OVERDUE)):
        times.append(now)
        found = IntentStore(file, clock=lambda: times[-1]).find("cart 17")
        assert found is not None
        assert found.standing is standing


def test_a_damaged_file_is_not_made_anew(tmp_path: Path) -> None:
    """R34: a page is garbage: whatever needs it says so and names the file, and what is readable stays readable."""
    file = tmp_path / "intents.db"
    store = IntentStore(file)
    for number in range(12):
        store.reserve(f"cart {number:02}", Intent.new("POST", URL, content=b"x" * 3000), remembers=DAY)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        pages = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'intents'").fetchone()[0]
    data = bytearray(file.read_bytes())
    data[size * (pages - 1) : size * pages] = b"\xff" * size
    file.write_bytes(data)
    for work in (lambda: store.listed(), lambda: store.reserve("cart 99", charge(), remembers=DAY)):
        with pytest.raises(IntentStoreError, match=r"damaged\. Keep it") as caught:
            work()
        assert str(file) in str(caught.value)
    assert file.stat().st_size == len(data)


def test_a_file_that_cannot_be_written_is_named(within_reach: Path) -> None:
    """R34: read-only, in a folder out of reach, or gone meanwhile: nothing is lost, and none is made in its place."""
    file = within_reach / "intents.db"
    store = IntentStore(file)
    reserved = store.reserve("cart 17", charge(), remembers=DAY)
    if os.geteuid() == 0:
        os.chown(file, 65534, -1)
    file.chmod(0o400)
    within_reach.chmod(0o555)
    try:
        with an_account_that_is_nobodys():
            for path in (file, within_reach / "new" / "intents.db", within_reach / "new.db"):
                with pytest.raises(IntentStoreError) as caught:
                    IntentStore(path)
                assert str(path) in str(caught.value)
    finally:
        within_reach.chmod(0o755)
    file.chmod(0o600)
    found = store.find("cart 17")
    assert found is not None and found.intent == reserved.intent
    file.rename(within_reach / "elsewhere.db")
    with pytest.raises(IntentStoreError, match="gone"):
        store.reserve("cart 18", charge(), remembers=DAY)
    assert not file.exists()
    with pytest.raises(IntentStoreError, match=str(within_reach)):
        IntentStore(within_reach)


def test_a_file_that_somebody_holds_is_waited_for_so_long(tmp_path: Path) -> None:
    """R34: another process in the middle of a write is waited out up to `busy_timeout`; then nothing was changed."""
    file = tmp_path / "intents.db"
    store = IntentStore(file, busy_timeout=timedelta(0))
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(IntentStoreError, match="stayed locked"):
            store.reserve("cart 17", charge(), remembers=DAY)
        assert store.listed() == ()
        other.execute("COMMIT")
    assert store.reserve("cart 17", charge(), remembers=DAY).name == "cart 17"


def test_many_threads_make_one_file_and_one_intent(tmp_path: Path) -> None:
    """R34, I8: threads that open a new file and reserve one name at once all get one key, and no error."""
    file, together = tmp_path / "intents.db", threading.Barrier(6, timeout=20)
    got: list[str] = []

    def reserve() -> None:
        together.wait()
        got.append(IntentStore(file).reserve("cart 17", charge(), remembers=DAY).intent.key)

    threads = [threading.Thread(target=reserve) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(got) == 6 and len(set(got)) == 1


def test_what_is_forgotten_is_off_the_disk(tmp_path: Path) -> None:
    """R22, R34: the body of a forgotten intent is not left in free pages of the file."""
    store = IntentStore(tmp_path / "intents.db")
    store.reserve("cart 17", Intent.new("POST", URL, content=b"4242 4242 4242"), remembers=DAY)
    store.forget("cart 17")
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"4242 4242" not in written


def test_content_that_was_changed_is_not_sent(tmp_path: Path) -> None:
    """R34, I8: bytes that somebody changed, or moved to another name, are no intent; nothing is sent in its place."""
    file = tmp_path / "intents.db"
    plain, sealed = IntentStore(file), IntentStore(file, keys=Keyring({"1": Keyring.new_key()}, "1"))
    for store, name in ((plain, "a"), (plain, "b"), (sealed, "c"), (sealed, "d"), (plain, "e")):
        store.reserve(name, charge(), remembers=DAY)
    with closing(sqlite3.connect(file)) as connection:
        for name, content in (("a", b"{}\n"), ("b", b""), ("e", b'{"method":"POST"')):
            connection.execute("UPDATE intents SET content = ? WHERE name = ?", (content, name))
        connection.execute(
            "UPDATE intents SET content = (SELECT content FROM intents WHERE name = 'd') WHERE name = 'c'"
        )
        connection.commit()
    for name in ("a", "b", "c", "e"):
        found = sealed.find(name)
        assert found is not None
        with pytest.raises(IntentStoreError, match=f"'{name}' in .*cannot be read"):
            sealed.send(None, found, by=called(lambda: pytest.fail("it was sent")))
        assert sealed.find(name) == found
    whole = sealed.find("d")
    assert whole is not None and whole.intent.url == URL


@pytest.mark.parametrize("odd", ["UPDATE runs SET verdict = 'odd'", "UPDATE intents SET contract = 'odd'"])
def test_what_this_release_does_not_know_is_left_as_it_is(tmp_path: Path, odd: str) -> None:
    """R34: of a verdict or a contract that nobody here knows: the file is named, and nothing is sent or changed."""
    file = tmp_path / "intents.db"
    store = IntentStore(file)
    reserved = store.reserve("cart 17", charge(), remembers=DAY)
    store.runs.begin(reserved, RetryPolicy(), None)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(odd)
        before = list(connection.iterdump())
    for work in (
        lambda: store.find("cart 17"),
        lambda: store.listed(),
        lambda: store.forget("cart 17", even_unknown=True),
        lambda: store.send(None, reserved, by=called(lambda: pytest.fail("it was sent"))),
    ):
        with pytest.raises(IntentStoreError, match="does not know") as caught:
            work()
        assert str(file) in str(caught.value)
    with closing(sqlite3.connect(file)) as connection:
        assert list(connection.iterdump()) == before


def test_half_a_character_is_no_name_and_no_reason(tmp_path: Path) -> None:
    """R34: as a command line has it for bytes that are no text: it says so, and nothing is changed."""
    store = IntentStore(tmp_path / "intents.db")
    store.reserve("cart 17", charge(), remembers=DAY)
    for work in (
        lambda: store.find("\udcff"),
        lambda: store.listed("\udcff"),
        lambda: store.forget("\udcff"),
        lambda: store.settle("\udcff", done=True, why="it is there"),
        lambda: store.settle("cart 17", done=True, why="\udcff"),
        lambda: store.settle("cart 17", done=True, why=" "),
    ):
        with pytest.raises(ConfigurationError):
            work()
    found = store.find("cart 17")
    assert found is not None and found.standing is Standing.RESERVED


@pytest.mark.parametrize("url", ["https://[pay.example/", "https://pay.example:99999/", "https://pay.example:x/"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    """R34: nothing is kept that nobody could ever send."""
    store = IntentStore(tmp_path / "intents.db")
    with pytest.raises(ConfigurationError, match="address"):
        store.reserve("cart 17", Intent.new("POST", url, json=1), remembers=DAY)
    assert store.listed() == ()
