"""Every kind of database: a SQLite file, and real servers where their programs are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from opsk.store.database.engine import open_store
from tests.fakes import database_servers

KINDS = ("sqlite", "postgresql", "mariadb")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    pytest.importorskip("psycopg", reason="psycopg is not installed: make setup")
    if database_servers.program("initdb") is None:
        pytest.skip("PostgreSQL is not installed here: deploy/install-system-packages --tests")
    with database_servers.postgresql() as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[str]:
    pytest.importorskip("pymysql", reason="pymysql is not installed: make setup")
    if database_servers.program("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed here: deploy/install-system-packages")
    with database_servers.mariadb() as url:
        yield url


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty store, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'opsk.db'}"
    server = request.getfixturevalue(f"{request.param}_server")
    return database_servers.new_database(server, "postgres" if request.param == "postgresql" else "mysql")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """A store with all its tables, of each kind in turn."""
    opened = open_store(url)
    yield opened
    opened.dispose()
