"""Prepares the simulated devices of a lab's nodes for exporters, and the Prometheus that scrapes them.

The first few nodes get a folder each, a prolog that records which job has which devices, and an NVML stand-in; see
`opsk.lab.machine.machine`. The exporters' own lab part, above this package, starts their processes.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from opsk.errors import LabError
from opsk.fabric.dumps.ibnetdiscover import read_ibnetdiscover
from opsk.fabric.rails import find_rails
from opsk.lab.launcher import Launcher
from opsk.lab.machine.clock import change
from opsk.lab.machine.machine import Hca, MachineFolder, new_machine, save_machine
from opsk.lab.machine.nvml_standin import LIBRARY, STATE_VARIABLE, build, build_environment, hash_sources
from opsk.lab.machine.sysfs import create_sysfs
from opsk.lab.machine.work import Work
from opsk.lab.parts import LabSite
from opsk.lab.programs import build_search_path
from opsk.lab.slurm_files import find_deploy_folder, postmortem_folder, read_short_host
from opsk.telemetry.network.port_places import build_port_places
from opsk.telemetry.network.rails_file import write_rails

PROGRAM = "prometheus"
INTERVAL_S = 5
"""A lab is used for minutes: it is scraped more often than a cluster."""
NO_PROMETHEUS = "no Prometheus: not installed (package prometheus)"
"""The note of a lab that was started with Prometheus and has no such program."""
_RULES = ("opsk-rules.yml", "opsk-alerts.yml")
SLURM_INTERVAL_S = 5
_WRAPPER = """#!/bin/sh
# Written by `opsk lab up`. The lab's nodes are one host: each writes into a folder of its own. A site calls
# opsk-{which} itself.
folder={nodes}/$SLURMD_NODENAME/jobs
[ -d "$folder" ] || exit 0
export OPSK_JOBS_FOLDER="$folder" SLURM_CONF={conf}
# Evidence of jobs that fail is kept once there are the folders started and ended in the node's spool.
node={nodes}/$SLURMD_NODENAME
export OPSK_CONFIG="$node/opsk.toml" OPSK_SPOOL_FOLDER="$node/spool" {nvml}="$node/nvml.state" LD_LIBRARY_PATH={library}
{more}exec {script}
"""
_QUERY_SCRIPT = """\
# What older releases of Slurm do not tell a prolog, the lab asks for. No site should: each job would ask slurmctld from
# each of its nodes.
shown=$(timeout 5 scontrol show job "$SLURM_JOB_ID" 2>/dev/null)
told() { printf '%s\\n' "$shown" | sed -n "s/^ *$1=//p" | head -n 1; }
: "${SLURM_JOB_STDOUT:=$(told StdOut)}" "${SLURM_JOB_STDERR:=$(told StdErr)}" "${SLURM_JOB_WORK_DIR:=$(told WorkDir)}"
: "${SLURM_JOB_NAME:=$(printf '%s\\n' "$shown" | sed -n 's/^JobId=[^ ]* .*JobName=//p')}"
export SLURM_JOB_STDOUT SLURM_JOB_STDERR SLURM_JOB_WORK_DIR SLURM_JOB_NAME
# What was predicted at submit stands beside the job's progress.
key=${SLURM_CLUSTER_NAME:+$SLURM_CLUSTER_NAME.}$SLURM_JOB_ID
told AdminComment >"$folder/.$key.advice" && mv "$folder/.$key.advice" "$folder/$key.advice"
"""


def find_prometheus() -> str | None:
    """Return the path of Prometheus, or ``None`` where it is not installed."""
    return shutil.which(PROGRAM, path=build_search_path())


def write_prometheus(site: LabSite) -> None:
    """Write Prometheus's configuration, targets, rules and alerts next to slurm.conf."""
    theirs, ours = find_deploy_folder() / "prometheus", site.etc / "prometheus"
    ours.mkdir()
    for name in _RULES:
        shutil.copyfile(theirs / name, ours / name)
    scrape = yaml.safe_load((theirs / "scrape.yml").read_text(encoding="utf-8"))
    for job in scrape["scrape_configs"]:
        job |= {"scrape_interval": f"{INTERVAL_S}s", "scrape_timeout": f"{INTERVAL_S}s"}
        job["file_sd_configs"] = [{"files": [str(ours / "targets.yml")]}]
        # A target is n0:<port>, as a cluster's would be; all nodes of a lab answer on loopback.
        job["relabel_configs"].append(
            {
                "source_labels": ["__address__"],
                "regex": ".+:([0-9]+)",
                "target_label": "__address__",
                "replacement": "127.0.0.1:$1",
            }
        )
    evaluated = {"evaluation_interval": f"{INTERVAL_S}s", "scrape_interval": f"{INTERVAL_S}s"}
    config = {"global": evaluated, "rule_files": [str(ours / name) for name in _RULES], **scrape}
    addresses = [f"{node}:{port}" for node, port in site.exporters.items()]
    targets = [{"targets": addresses, "labels": {"cluster": site.cluster}}]
    for name, document in (("prometheus.yml", config), ("targets.yml", targets)):
        text = f"# Written by `opsk lab up`.\n{yaml.safe_dump(document, sort_keys=False)}"
        (ours / name).write_text(text, encoding="utf-8")


def build_prometheus_command(site: LabSite, program: str | Path) -> tuple[str, ...]:
    """Return the command that starts it on loopback; its data is removed when the lab goes down."""
    return (
        str(program),
        f"--config.file={site.etc / 'prometheus' / 'prometheus.yml'}",
        f"--storage.tsdb.path={site.run / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{site.prometheus_port}",
        "--log.level=warn",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """The NVML stand-in of a lab: its path, or why there is none."""

    library: Path | None
    why_not: str = ""


def build_stand_in(site: LabSite) -> StandIn:
    """Return the NVML stand-in in the lab's folder: a copy of this user's own, which gcc builds for his first lab."""
    folder = site.etc.parent / f"nvml-{hash_sources()}"
    library = folder / LIBRARY
    if library.exists():
        return StandIn(library=library)
    for older in folder.parent.glob("nvml-*"):
        shutil.rmtree(older, ignore_errors=True)
    if _copy_own(folder.name, library):
        return StandIn(library=library)
    try:
        build(folder)
    except LabError as error:
        shutil.rmtree(folder, ignore_errors=True)
        return StandIn(library=None, why_not=error.message)
    _store_own(folder.name, library)
    return StandIn(library=library)


def _own_stand_ins() -> Path:
    """Return where a user's stand-ins are stored from lab to lab."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "opsk"


def _copy_own(name: str, library: Path) -> bool:
    """Copy the stand-in of this name that an earlier lab of this user built; return whether there is one.

    Programs of root load it: what another user owns or may write is not taken.
    """
    try:
        with (_own_stand_ins() / name / LIBRARY).open("rb") as source:
            if not _is_own(os.fstat(source.fileno())):
                return False
            content = source.read()
        library.parent.mkdir()
        _write_whole(library, content)
    except (OSError, RuntimeError):
        return False
    return True


def _store_own(name: str, library: Path) -> None:
    """Store a stand-in for this user's next labs, where he has a home.

    Root writes nothing into the home of a user whose variables sudo has passed on.
    """
    with suppress(OSError, RuntimeError):
        target = _own_stand_ins() / name / LIBRARY
        if _is_own(next(folder for folder in target.parents if folder.exists()).stat()):
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(target, library.read_bytes())


def _is_own(facts: os.stat_result) -> bool:
    """Return whether a file or folder is this user's, and others may not write to it."""
    return facts.st_uid == os.geteuid() and not facts.st_mode & 0o022


def _write_whole(library: Path, content: bytes) -> None:
    """Write a library at once: who finds it, finds all of it."""
    draft = library.with_name(f".{library.name}.{os.getpid()}")
    with draft.open("xb") as file:  # through no link that waits there
        file.write(content)
    draft.chmod(0o755)
    draft.replace(library)


def build_exporter_environment(site: LabSite, folder: MachineFolder, library: Path | None) -> dict[str, str]:
    """Return the environment of a node's exporter in addition to the lab's own variables."""
    variables = {"OPSK_CONFIG": str(folder.settings)}
    if library is not None:
        variables = build_environment(library, folder.nvml_state, variables)
    return variables


def machine_folder(site: LabSite, node: str) -> MachineFolder:
    """Return the folder of a node that its exporter reads."""
    return MachineFolder(root=site.run / "nodes" / node)


def install_watched(site: LabSite) -> None:
    """Write the files that Slurm needs at its start: folders, settings, prolog and epilog."""
    for index, node in enumerate(site.exporters):
        folder = machine_folder(site, node)
        folder.jobs.mkdir(parents=True)
        folder.kernel_log.touch()
        # The nodes are one host, where slurmctld runs: else each would take itself for the one that queries Slurm.
        settings: Mapping[str, object] = {
            "sysfs": str(folder.sysfs),
            "jobs_folder": str(folder.jobs),
            "kernel_log": str(folder.kernel_log),
            "rails_file": str(rails_file(site)),
            "ipmi_interval_s": 0,
            "slurm_on": read_short_host() if index == 0 else "off",
            "slurm_interval_s": SLURM_INTERVAL_S,
        }
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        folder.settings.write_text(
            f"# Of exporter and collector of {node}; written by `opsk lab up`.\n[exporter]\n{lines}\n"
            f"[postmortem]\nfolder = {json.dumps(str(postmortem_folder(site.log)))}\n"
            f"spool = {json.dumps(str(folder.root / 'spool'))}\n",
            encoding="utf-8",
        )
    for which, more in (("prolog", _QUERY_SCRIPT), ("epilog", "")):
        script = site.etc / f"lab-{which}"
        text = _WRAPPER.format(
            which=which, nodes=site.run / "nodes", conf=site.etc / "slurm.conf", more=more,
            script=find_deploy_folder() / "slurm" / f"opsk-{which}", nvml=STATE_VARIABLE,
            library=site.etc.parent / f"nvml-{hash_sources()}",
        )  # fmt: skip
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)


def format_slurm_lines(site: LabSite) -> tuple[str, ...]:
    """Return the lines of slurm.conf on prolog and epilog; they run on all nodes of a job once they are allocated."""
    return (f"Prolog={site.etc}/lab-prolog", f"Epilog={site.etc}/lab-epilog", "PrologFlags=Alloc")


def prepare_watched(site: LabSite, launcher: Launcher) -> None:
    """Write the rails file and create the nodes' devices, once the subnet shows how they are cabled."""
    dump, now = launcher.record.folder.dump, time.time()
    fabric = read_ibnetdiscover(dump.read_text(encoding="utf-8"), source=str(dump))
    generated = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    write_rails(
        rails_file(site), build_port_places(fabric, find_rails(fabric)), source=fabric.source, generated=generated
    )
    ports = json.loads(rails_file(site).read_text(encoding="utf-8"))["ports"]
    for node in site.exporters:
        folder = machine_folder(site, node)
        cabled = sorted(
            ((key.partition("/")[0], place) for key, place in ports.items() if place["node"] == node),
            key=lambda each: each[0],
        )
        hcas = tuple(
            Hca(device=f"mlx5_{at}", guid=guid, leaf=place["leaf"], switch=place["switch"])
            for at, (guid, place) in enumerate(cabled)
        )
        number = site.shape.names.index(node)
        machine = new_machine(node, number, gpus=site.shape.gpus, hcas=hcas, at_unix_s=now)
        create_sysfs(folder, machine)
        save_machine(folder, machine)
        change(folder, Work())


def rails_file(site: LabSite) -> Path:
    """Return where the lab's rails file is."""
    return site.etc / "rails.json"
