"""Do the scripts for PostgreSQL and MariaDB make, on real servers, a database that opsk can use, and no more?"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from opsk.errors import StoreError
from opsk.store.check import check_store
from opsk.store.database.engine import connect, open_store, upgrade_store
from tests.fakes import database_servers

NAME = "site_opsk"
WORD = 'it\'s "a" \\ $(word) of: @/%'
"""A password with signs that shells, SQL and URLs take apart; PyMySQL sends none beyond Latin-1 as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    kind: str
    url: URL
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def of(self, user: str, password: str) -> str:
        return self.url.set(username=user, password=password, database=NAME).render_as_string(hide_password=False)


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "postgresql":
        pytest.importorskip("psycopg", reason="psycopg is not installed: make setup")
        if database_servers.program("initdb") is None or shutil.which("psql") is None:
            pytest.skip("PostgreSQL is not installed here: deploy/install-system-packages --tests")
        with database_servers.postgresql() as given:
            url = make_url(given.format("postgres"))
            host = str(url.query["host"])
            yield Server(
                kind="postgresql", url=url,
                environment={"PGHOST": host, "PGUSER": "opsk", "PGPASSWORD": database_servers.PASSWORD},
            )  # fmt: skip
        return
    pytest.importorskip("pymysql", reason="pymysql is not installed: make setup")
    if database_servers.program("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed here: deploy/install-system-packages")
    with database_servers.mariadb() as given:
        url = make_url(given.format("mysql"))
        yield Server(
            kind="mariadb", url=url, options=("--no-defaults", "-u", "root", "-S", str(url.query["unix_socket"]))
        )


def set_up(root: Path, server: Server, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(root / "deploy" / "database" / "set-up"), server.kind, *words, "--", *server.options]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **server.environment}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_owner_and_reader_have_their_rights_and_no_others(root: Path, server: Server, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text(WORD + "\nsecond line\n")
    for _ in range(2):  # run twice, it changes nothing
        done = set_up(root, server, "--name", NAME, "--password-file", "own", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert WORD not in done.stdout + done.stderr
    made = tmp_path / f"{NAME}_reader.password"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    word = made.read_text().strip()
    assert len(word) == 32
    engine, before, now = upgrade_store(server.of(NAME, WORD))
    assert (before, bool(now)) == (None, True)
    assert check_store(engine).findings == ()
    engine.dispose()
    reader = open_store(server.of(f"{NAME}_reader", word), writing=False)
    with reader.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM alembic_version")).scalar() == 1
    for forbidden in ("DELETE FROM alembic_version", "CREATE TABLE mine (a int)"):
        with pytest.raises(SQLAlchemyError), reader.begin() as connection:
            connection.execute(text(forbidden))
    reader.dispose()
    with pytest.raises(StoreError) as refused:
        open_store(server.of(NAME, "another"))
    assert "another" not in refused.value.message


def test_the_owner_sees_no_other_database(root: Path, server: Server, tmp_path: Path) -> None:
    (tmp_path / "own").write_text(WORD + "\n")
    assert set_up(root, server, "--name", NAME, "--password-file", "own", cwd=tmp_path).returncode == 0
    engine = connect(server.of(NAME, WORD))
    with pytest.raises(SQLAlchemyError), engine.begin() as connection:
        connection.execute(text("CREATE DATABASE siteXopsk"))  # its pattern would match, were _ not escaped
    with pytest.raises(SQLAlchemyError), engine.begin() as connection:
        connection.execute(text("CREATE ROLE mine" if server.kind == "postgresql" else "CREATE USER mine"))
    engine.dispose()


@pytest.mark.parametrize(
    "words", [("--name", "Robert'; DROP"), ("--name", ""), ("--name",), ("--force",), ("--name", "a" * 40)]
)
def test_names_that_would_be_taken_apart_are_refused(root: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    command = [str(root / "deploy" / "database" / "set-up"), "mariadb", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
