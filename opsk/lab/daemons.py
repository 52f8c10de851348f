"""Starts the daemons that a lab has besides Slurm's: ibsim, opensm, munge, MariaDB and slurmdbd."""

from __future__ import annotations

import os
import secrets

from opsk.errors import LabError
from opsk.fabric.design import rail_optimized_net
from opsk.fabric.dumps.ibnetdiscover import read_ibnetdiscover
from opsk.fabric.rails import find_rails
from opsk.lab.launcher import Launcher
from opsk.lab.record import LabRecord
from opsk.slurm.topology.tree import render_tree

SPEED = "HDR"
"""The fastest link that ibsim 0.10 simulates."""
_SUBNET_UP = "SUBNET UP"
MUNGE_KEY_BYTES = 1024
ACCOUNTING_DATABASE = "slurm_acct_db"
"""The default of slurmdbd's StorageLoc (slurmdbd.conf(5))."""


def bring_up_fabric(launcher: Launcher) -> None:
    """Start ibsim and opensm, record what ibnetdiscover finds, and write topology.conf from it.

    Raises
    ------
    LabError
        When one of them fails, or the fabric found is not the one described.
    """
    record = launcher.record
    folder, shape = record.folder, record.shape
    net = rail_optimized_net(
        nodes=shape.nodes,
        hcas=shape.hcas,
        leaves=shape.leaves,
        spines=shape.spines,
        cables_per_pair=shape.cables_per_pair,
        names=shape.names,
        speed=SPEED,
    )
    folder.net.write_text(net, encoding="utf-8")
    attach = {"IBSIM_SOCKNAME": record.ibsim_socket}
    launcher.start("ibsim", ("ibsim", "-s", "-n", folder.net), extra=attach)
    _await_text(launcher, "ibsim", "simulator ready")
    cache = folder.state / "opensm"
    cache.mkdir(mode=0o700)
    settings = cache / "opensm.conf"
    # Without it the line that is waited for stays in opensm's buffer.
    settings.write_text("force_log_flush TRUE\n", encoding="ascii")
    launcher.start(
        "opensm",
        ("ibsim-run", "opensm", "-F", settings, "-f", folder.log / "opensm.log"),
        extra=attach | {"OSM_CACHE_DIR": str(cache), "OSM_TMP_DIR": str(cache)},
        log="opensm.log",
    )
    _await_text(launcher, "opensm", _SUBNET_UP)
    launcher.run("ibnetdiscover", ("ibsim-run", "ibnetdiscover"), extra=attach, output=folder.dump)
    _write_topology(record)


def _write_topology(record: LabRecord) -> None:
    folder = record.folder
    fabric = read_ibnetdiscover(folder.dump.read_text(encoding="utf-8"), source=str(folder.dump))
    rails = find_rails(fabric)
    absent = set(record.shape.names) - set(rails.attachments)
    if absent:
        raise LabError(
            f"{folder.dump}: ibnetdiscover found {len(rails.attachments)} of {record.shape.nodes} nodes",
            hint=f"see {folder.log / 'opensm.log'}",
        )
    (folder.etc / "topology.conf").write_text(render_tree(rails, node_names=record.shape.names), encoding="utf-8")


def _await_text(launcher: Launcher, name: str, text: str) -> None:
    """Wait until a daemon's own log contains ``text``."""
    log = next(daemon.log for daemon in launcher.record.daemons if daemon.name == name)

    def is_logged() -> bool:
        return log.exists() and text in log.read_text(encoding="utf-8", errors="replace")

    launcher.await_ready(name, is_logged)


def bring_up_munge(launcher: Launcher) -> None:
    """Start munged with a key and a socket of this lab's own."""
    folder = launcher.record.folder
    key = folder.secret / "munge.key"
    handle = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(MUNGE_KEY_BYTES))
    launcher.start(
        "munged",
        (
            "munged",
            "--foreground",
            # A lab below /tmp or a group-writable home would otherwise be refused.
            "--force",
            "--num-threads=10",
            f"--key-file={key}",
            f"--socket={folder.munge_socket}",
            f"--pid-file={folder.run / 'munged.pid'}",
            f"--seed-file={folder.state / 'munged.seed'}",
        ),
    )
    launcher.await_socket("munged", folder.munge_socket)


def bring_up_database(launcher: Launcher) -> None:
    """Make an empty database and start MariaDB on a Unix socket of this lab's own.

    Nothing in it is worth keeping: it does not wait for disks. The database of slurmdbd is there before slurmdbd
    starts: where it has to create it, it connects a second time with the same handle, and the client library 11.8.9
    then refuses every query with error 5027 ("maximum allowed number of columns (=0)").
    """
    record = launcher.record
    folder = record.folder
    # At its start MariaDB removes the temporary tables of every other one that has the same directory for them.
    temporary = folder.state / "mysql"
    temporary.mkdir(mode=0o700)
    place = ("--no-defaults", f"--datadir={folder.mysql}", f"--tmpdir={temporary}", f"--user={record.user}")
    careless = (
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-flush-method=nosync",
        "--innodb-doublewrite=0",
        "--innodb-log-file-size=8M",
        "--innodb-buffer-pool-size=64M",
        "--innodb-lock-wait-timeout=900",
        "--skip-log-bin",
    )
    launcher.run(
        "mariadb-install-db",
        (
            *("mariadb-install-db", *place, "--skip-test-db", "--skip-name-resolve"),
            *("--auth-root-authentication-method=socket", f"--auth-root-socket-user={record.user}", *careless),
        ),
    )
    first_statements = folder.state / "accounting.sql"
    first_statements.write_text(f"CREATE DATABASE IF NOT EXISTS {ACCOUNTING_DATABASE};\n", encoding="ascii")
    launcher.start(
        "mariadbd",
        (
            *("mariadbd", *place, *careless, "--skip-networking", f"--socket={folder.mysql_socket}"),
            f"--init-file={first_statements}",
            *(f"--pid-file={folder.run / 'mariadbd.pid'}", f"--log-error={folder.log / 'mariadbd.log'}"),
        ),
        log="mariadbd.log",
    )
    launcher.await_socket("mariadbd", folder.mysql_socket)


def bring_up_slurmdbd(launcher: Launcher) -> None:
    """Start slurmdbd and add the cluster to it."""
    record = launcher.record
    # The client library of MariaDB has no other way to learn the socket: slurmdbd.conf cannot name it.
    database = {"MYSQL_UNIX_PORT": str(record.folder.mysql_socket)}
    launcher.start("slurmdbd", ("slurmdbd", "-D"), extra=database, log="slurmdbd.log")
    launcher.await_socket("slurmdbd", record.slurmdbd_port)
    launcher.run("sacctmgr", ("sacctmgr", "--immediate", "add", "cluster", record.cluster))
