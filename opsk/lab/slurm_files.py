"""Writes the configuration files of a lab from the templates of this package.

What a site adds to its own slurm.conf for opsk is not written here: the lab includes the very files of
``deploy/slurm``.
"""

from __future__ import annotations

import json
import shutil
import socket
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

import opsk
from opsk.config import load_site
from opsk.errors import LabError
from opsk.hardware.catalog import node, parse_cluster
from opsk.lab.folder import LabFolder
from opsk.lab.record import LabRecord

NODE_TYPE = "dgx-h100"
GPU_TYPE = "h100"
"""GRES type of the lab's GPUs, as sites that have the node type above call it."""
CLUSTER = "cluster.toml"
TOP_INTERVAL_S = 2
"""A lab is used for minutes: `opsk top` refreshes more often there than on a cluster."""
_CGROUP_PLUGIN_DISABLED_SINCE = (23, 2)


def read_short_host() -> str:
    """Return this machine's name without domain, as Slurm compares it."""
    return socket.gethostname().partition(".")[0]


def find_deploy_folder() -> Path:
    """Return ``deploy/``: of this checkout, or where the wheel put it.

    Raises
    ------
    LabError
        Names both places.
    """
    checkout = Path(opsk.__file__).resolve().parent.parent / "deploy"
    installed = Path(sysconfig.get_path("data")) / "share" / "opsk" / "deploy"
    for place in (checkout, installed):
        if (place / "slurm").is_dir():
            return place
    raise LabError(f"deploy/slurm is neither in {checkout} nor in {installed}", hint="install opsk again")


def write_slurm_files(record: LabRecord, *, snippets: Sequence[str] = (), lines: Sequence[str] = ()) -> None:
    """Write slurm.conf and the files next to it; ``snippets`` are files of ``deploy/slurm`` to include."""
    folder = record.folder
    for name in snippets:
        shutil.copyfile(find_deploy_folder() / "slurm" / name, folder.etc / name)
    first, last = record.slurmd_ports
    gpus = record.shape.gpus
    _link_gpus(folder, gpus)
    values = {
        "cluster": record.cluster,
        "host": read_short_host(),
        "user": record.user,
        "munge_socket": folder.munge_socket,
        "slurmctld_port": record.slurmctld_port,
        "slurmdbd_port": record.slurmdbd_port,
        "slurmd_ports": f"[{first}-{last}]" if last > first else str(first),
        "nodes": record.shape.host_list,
        "gpus": gpus,
        "gpu_type": GPU_TYPE,
        "gpu_files": f"{folder.dev}/nvidia[0-{gpus - 1}]" if gpus > 1 else f"{folder.dev}/nvidia0",
        # 22.05 sets up its cgroup plugin whether or not anything uses it; that of version 1 touches nothing then.
        "cgroup_plugin": "disabled" if record.slurm >= _CGROUP_PLUGIN_DISABLED_SINCE else "cgroup/v1",
        "state": folder.state,
        "spool": folder.spool,
        "run": folder.run,
        "log": folder.log,
        "includes": "\n".join((*(f"Include {name}" for name in snippets), *lines)),
    }
    (folder.state / "slurmctld").mkdir(mode=0o700)
    for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        _write(folder.etc / name, name, values)
    _write(folder.etc / "slurmdbd.conf", "slurmdbd.conf", values, mode=0o600)


def write_site_files(record: LabRecord) -> None:
    """Write the lab's opsk.toml and cluster.toml, and read both back.

    Raises
    ------
    ConfigError
        When opsk does not read the same values as were written.
    """
    folder, shape = record.folder, record.shape
    sizes = {
        "nodes": shape.nodes,
        "gpus": shape.gpus,
        "hcas": shape.hcas,
        "leaves": shape.leaves,
        "spines": shape.spines,
        "oversubscription": shape.oversubscription,
        "nodes_per_unit": -(-shape.nodes // shape.units),
        "node_type": node(NODE_TYPE).name,
    }
    _write(folder.etc / CLUSTER, CLUSTER, sizes)
    parse_cluster((folder.etc / CLUSTER).read_text(encoding="utf-8"), origin=str(folder.etc / CLUSTER))
    places = {
        "cluster": folder.etc / CLUSTER,
        "fabric": folder.dump,
        "socket": advisor_socket(folder),
        "user": record.user,
        "audit_log": folder.log / "advisor-audit.jsonl",
        "postmortem": postmortem_folder(folder.log),
        # The lab's own, of the node that this host counts as: that of the host itself is none of the lab's business.
        "evidence_spool": folder.nodes / shape.names[0] / "spool",
    }
    quoted = {name: json.dumps(str(value)) for name, value in places.items()}
    _write(folder.site, "opsk.toml", quoted | {"top": _format_top_settings(record)})
    load_site(folder.site)


def _format_top_settings(record: LabRecord) -> str:
    """Return where `opsk top` finds the nodes' exporters, which are all on this host; "" where there are none."""
    if not record.exporters:
        return ""
    targets = record.folder.etc / "exporters.json"
    groups = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"node": node}} for node, port in record.exporter_ports.items()
    ]
    targets.write_text(json.dumps(groups), encoding="utf-8")
    lines = ["", "[top]", f"exporter_targets = {json.dumps(str(targets))}", f"refresh_s = {TOP_INTERVAL_S}"]
    lines += [f"slurm_interval_s = {TOP_INTERVAL_S}"]
    if record.prometheus:
        lines.append(f'prometheus = "http://127.0.0.1:{record.prometheus_port}"')
    return "\n".join(lines)


def advisor_socket(folder: LabFolder) -> Path:
    """Return where the lab's advisor listens."""
    return folder.run / "advisor.sock"


def postmortem_folder(log: Path) -> Path:
    """Return the folder of the lab's evidence and reports, which outlive it, as its logs do."""
    return log / "postmortem"


def _link_gpus(folder: LabFolder, gpus: int) -> None:
    for index in range(gpus):
        (folder.dev / f"nvidia{index}").symlink_to("/dev/null")


def _write(target: Path, template: str, values: Mapping[str, object], *, mode: int = 0o644) -> None:
    text = (files("opsk.lab") / "templates" / template).read_text(encoding="utf-8")
    target.touch(mode=mode)
    target.chmod(mode)
    target.write_text(Template(text).substitute({name: str(value) for name, value in values.items()}), encoding="utf-8")
