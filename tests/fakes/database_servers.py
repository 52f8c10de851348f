"""Real servers for the store's tests: PostgreSQL and MariaDB in folders of their own, ended by pid."""

from __future__ import annotations

import getpass
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import create_engine, text

from opsk.store.database.urls import store_url

READY_WITHIN_S = 60.0
_POLL_S = 0.05
_NUMBERS = itertools.count()
PASSWORD = "s3cret/of:the@store"  # signs that a URL must escape


def program(name: str) -> str | None:
    """Where a program is: also where Debian keeps PostgreSQL's, which are not on PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([*map(str, places), os.environ["PATH"], "/usr/sbin", "/sbin"]))


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a PostgreSQL server on a socket; ``{}`` in the URL stands for the name of a database."""
    folder, user = _folder()
    place, socket = folder / "data", folder / "run"
    _run(["mkdir", str(socket)], user)
    words = folder / "password"
    words.write_text(PASSWORD + "\n")
    shutil.chown(words, user)
    init = [str(program("initdb")), "-D", str(place), "-U", "opsk", "-A", "scram-sha-256", "-E", "UTF8"]
    _run([*init, "--locale=C", "--no-sync", f"--pwfile={words}"], user)
    careless = ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "shared_buffers=16MB"]
    start = [str(program("postgres")), "-D", str(place), "-k", str(socket), "-h", "", *careless]
    secret = quote(PASSWORD, safe="")
    with _running(start, user, folder, signal.SIGINT):
        _await(socket / ".s.PGSQL.5432", folder)
        _await_answer([str(program("pg_isready")), "-h", str(socket), "-q"], folder)
        yield f"postgresql://opsk:{secret}@/{{}}?host={quote(str(socket), safe='')}"


@contextmanager
def mariadb() -> Iterator[str]:
    """Run a MariaDB server on a socket, with a default character set that holds little."""
    folder, user = _folder()
    socket = folder / "s"
    place = ["--no-defaults", f"--datadir={folder / 'data'}", f"--user={user}", f"--tmpdir={folder}"]
    small = ["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=64M", "--skip-log-bin", "--innodb-doublewrite=0"]
    careless = [*small, "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync"]
    install = [str(program("mariadb-install-db")), *place, "--skip-test-db", "--skip-name-resolve", *careless]
    _run([*install, "--auth-root-authentication-method=normal"], user)
    odd = ["--character-set-server=latin1", "--collation-server=latin1_swedish_ci", "--sql-mode="]
    start = [str(program("mariadbd")), *place, *careless, *odd, "--skip-networking", f"--socket={socket}"]
    with _running(start, user, folder, signal.SIGTERM):
        _await(socket, folder)
        grant = f"CREATE USER opsk IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO opsk"
        subprocess.run(["mariadb", "--no-defaults", "-u", "root", "-S", str(socket), "-e", grant], check=True)
        secret = quote(PASSWORD, safe="")
        yield f"mariadb://opsk:{secret}@localhost/{{}}?unix_socket={quote(str(socket), safe='')}"


def _folder() -> tuple[Path, str]:
    """Return a folder of a user who is not root: PostgreSQL refuses to run as root."""
    folder = Path(tempfile.mkdtemp(prefix="opsk-store-", dir="/tmp"))
    user = getpass.getuser()
    if os.geteuid() == 0:
        user = next(name for name in ("postgres", "mysql", "nobody") if _is_user(name))
        shutil.chown(folder, user)
    return folder, user


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _who(user: str) -> dict[str, object]:
    return {"user": user, "extra_groups": ()} if os.geteuid() == 0 else {}


def _run(words: Sequence[str], user: str) -> None:
    subprocess.run(words, check=True, capture_output=True, cwd="/", timeout=READY_WITHIN_S, **_who(user))  # type: ignore[call-overload]


@contextmanager
def _running(words: Sequence[str], user: str, folder: Path, end: signal.Signals) -> Iterator[None]:
    with (folder / "said").open("wb") as said:
        server = subprocess.Popen(words, stdout=said, stderr=said, cwd="/", start_new_session=True, **_who(user))  # type: ignore[call-overload]
    try:
        yield
    finally:
        server.send_signal(end)
        try:
            server.wait(READY_WITHIN_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _await(socket: Path, folder: Path) -> None:
    _until(socket.exists, folder)


def _await_answer(words: Sequence[str], folder: Path) -> None:
    _until(lambda: subprocess.run(words, check=False).returncode == 0, folder)


def _until(ready: object, folder: Path) -> None:
    end = time.monotonic() + READY_WITHIN_S
    while not ready():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError((folder / "said").read_text(errors="replace")[-2000:])
        time.sleep(_POLL_S)


def new_database(server: str, system: str, more: str = "") -> str:
    """Make an empty database and return its URL."""
    name = f"store{next(_NUMBERS)}"
    engine = create_engine(store_url(server.format(system)), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} {more}"))
    engine.dispose()
    return server.format(name)
