"""What a person is told when a database fails, and that nothing that was kept is lost by it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import OperationalError

from opsk.errors import StoreError
from opsk.store.database import engine as engine_module
from opsk.store.database.engine import open_store
from opsk.store.database.errors import store_error
from opsk.store.database.urls import default_url, format_url, store_url
from opsk.store.export import export
from opsk.store.records.jobs import find_jobs
from opsk.store.writing import DirectWriter
from tests.fakes import database_servers
from tests.fakes.store_records import interval, job


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "opsk.db"
    opened = open_store(f"sqlite:///{path}")
    DirectWriter(opened).write([job()])
    opened.dispose()
    return path


def test_a_full_disk_keeps_what_was_there_and_nothing_of_what_came(file: Path) -> None:
    engine = open_store(f"sqlite:///{file}")

    @event.listens_for(engine, "connect")
    def _full(connection: sqlite3.Connection, _record: object) -> None:
        # SQLite then says what it says when the disk is full.
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 2}")

    engine.dispose()
    with pytest.raises(StoreError, match="disk is full") as caught:
        DirectWriter(engine).write([job("new", prediction={"a": "x" * 100_000}), *map(interval, range(50))])
    assert "safe" in caught.value.hint
    assert [found.job for found in find_jobs(engine)] == ["4711"]
    engine.dispose()
    again = open_store(f"sqlite:///{file}")
    assert DirectWriter(again).write([job("new")]).new == 1


def test_a_locked_file_is_said_after_the_wait(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 50)
    monkeypatch.setattr("opsk.store.database.transactions._ATTEMPTS", 2)
    engine = open_store(f"sqlite:///{file}")
    holder = sqlite3.connect(file)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another program has it locked"):
        DirectWriter(engine).write([job("new")])
    assert len(find_jobs(engine)) == 1  # readers do not wait
    holder.rollback()
    assert DirectWriter(engine).write([job("new")]).new == 1


@pytest.mark.parametrize("bytes_left", [50, 4096, 10_000])
def test_a_file_that_is_cut_off_is_damaged_and_stays_as_it_is(file: Path, bytes_left: int) -> None:
    assert file.stat().st_size > 2 * bytes_left
    cut = file.read_bytes()[:bytes_left]
    file.write_bytes(cut)
    with pytest.raises(StoreError, match=r"damaged|not a database") as caught:
        list(export(open_store(f"sqlite:///{file}")))
    assert caught.value.hint
    assert file.read_bytes()[:50] == cut[:50]


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    text_file = tmp_path / "opsk.db"
    text_file.write_bytes(b"this is no database, not at all" * 100)
    with pytest.raises(StoreError, match="not a database"):
        open_store(f"sqlite:///{text_file}")
    assert text_file.read_bytes() == b"this is no database, not at all" * 100


_READ_AND_WRITE = """
import sys
from opsk.errors import StoreError
from opsk.store.database.engine import open_store
from opsk.store.records.jobs import find_jobs
from opsk.store.writing import DirectWriter
from tests.fakes.store_records import job
print("read", len(find_jobs(open_store(sys.argv[1], writing=False))))
try:
    DirectWriter(open_store(sys.argv[1])).write([job("new")])
except StoreError as error:
    print(error.message, "|", error.hint)
"""


def test_a_file_that_may_only_be_read_is_read_and_not_written(file: Path, root: Path) -> None:
    words = [sys.executable, "-c", _READ_AND_WRITE, f"sqlite:///{file}"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write all files, and there is no setpriv here")
        words = ["setpriv", "--inh-caps=-dac_override", "--bounding-set=-dac_override", *words]
    file.chmod(0o444)
    file.parent.chmod(0o555)
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    file.parent.chmod(0o755)
    assert done.stderr == ""
    assert done.stdout.startswith("read 1\n")
    assert "can only be read" in done.stdout


def test_a_server_that_is_not_there_is_said_without_the_password(tmp_path: Path) -> None:
    for url, option in (("postgresql", "host"), ("mariadb", "unix_socket")):
        with pytest.raises(StoreError, match="does not answer") as caught:
            open_store(f"{url}://opsk:s3cret@/opsk?{option}={tmp_path}/none")
        assert "s3cret" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_wrong_password_and_a_missing_database_are_told_apart(kind: str, request: pytest.FixtureRequest) -> None:
    right = make_url(request.getfixturevalue(f"{kind}_server").format("opsk"))
    with pytest.raises(StoreError, match="refuses this user") as caught:
        open_store(right.set(password="wr0ng").render_as_string(hide_password=False))
    assert "wr0ng" not in f"{caught.value.message} {caught.value.hint}"
    with pytest.raises(StoreError, match="no such database"):
        open_store(right.set(database="nosuch").render_as_string(hide_password=False))


def test_a_server_that_lets_only_read_is_said(postgresql_server: str) -> None:
    url = database_servers.new_database(postgresql_server, "postgres")
    engine = open_store(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"ALTER DATABASE {engine.url.database} SET default_transaction_read_only = on"))
    engine.dispose()
    with pytest.raises(StoreError, match="can only be read"):
        DirectWriter(open_store(url)).write([job()])


def test_a_store_without_its_table_says_what_to_do(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("drop table jobs"))
    with pytest.raises(StoreError, match="not the tables") as caught:
        find_jobs(engine)
    assert "opsk store check" in caught.value.hint


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "nosuch://x/y", "oracle://x/y", "postgresql://u:s3cret@h:port/x", "mariadb://u:s3cret@h:99999999/x",
     "sqlite:////proc/no/such/opsk.db", "sqlite:////dev/null/opsk.db", "sqlite://u:s3cret@host/x", "sqlite:///file:opsk.db?uri=true",
     "postgresql+nosuch://u:s3cret@h/x", "mariadb+mysqldb://u:s3cret@h/x", "mysql://u:s3cret@/x?nosuch=1"],
)  # fmt: skip
def test_a_url_that_leads_nowhere_is_an_error_with_a_hint(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url)
    assert caught.value.hint
    assert "s3cret" not in f"{caught.value.message} {caught.value.hint}"


def test_what_is_shown_of_a_url_has_no_secrets() -> None:
    said = format_url(store_url("postgresql://ada:s3cret@db/opsk?sslpassword=s3cret&password=s3cret"))
    assert "s3cret" not in said
    assert said.startswith("postgresql+psycopg://ada:***@db/opsk")


def test_words_of_a_database_lose_the_password() -> None:
    url = URL.create("postgresql+psycopg", username="ada", password="s3cret", host="db")
    error = OperationalError("select", {}, Exception("connection with password=s3cret failed"))
    assert "s3cret" not in store_error(error, url).message


def test_the_default_is_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/tmp/elsewhere")
    assert default_url() == "sqlite:////var/tmp/elsewhere/opsk/opsk.db"


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not there yet"):
        open_store(f"sqlite:///{tmp_path / 'x' / 'opsk.db'}", writing=False)
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_no_opsk_wrote_is_said(file: Path) -> None:
    for value in ("'yesterday'", "7", "x'00'"):
        with sqlite3.connect(file) as raw:
            raw.execute(f"UPDATE jobs SET submitted_at = {value}")
        raw.close()
        with pytest.raises(StoreError, match="what no opsk wrote") as caught:
            find_jobs(open_store(f"sqlite:///{file}"))
        assert caught.value.hint == "opsk store check"


def test_connections_that_a_server_ended_are_made_again(postgresql_server: str) -> None:
    engine = open_store(database_servers.new_database(postgresql_server, "postgres"))
    writer = DirectWriter(engine)
    for number in range(3):
        assert writer.write([job(str(number))]).new == 1
        with engine.connect() as other:
            end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
            other.execute(text(f"{end} and pid <> pg_backend_pid()"))


def test_a_database_that_holds_some_texts_only_is_refused(postgresql_server: str) -> None:
    url = database_servers.new_database(postgresql_server, "postgres", more="ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StoreError, match="keeps texts as LATIN1") as caught:
        open_store(url)
    assert "UTF8" in caught.value.hint


def test_a_new_file_is_its_owners_own(file: Path) -> None:
    assert file.stat().st_mode & 0o777 == 0o600
