"""Starts a lab's InfiniBand subnet: simulated by ibsim, run by opensm, recorded by ibnetdiscover."""

from __future__ import annotations

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
