"""Builds a soak's site: a lab with all of opsk on it, a small disk for its files, and two slurmctld."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from opsk.config import load_site
from opsk.lab.launcher import Launcher
from opsk.lab.lifecycle import take_down, up
from opsk.lab.processes import find_all
from opsk.lab.programs import build_search_path
from opsk.lab.record import LabRecord, LabShape
from opsk.lab.slurm_files import read_short_host
from opsk.lab.status import build_slurm_environment
from opsk_jobcheck.service.hooks import install_hooks
from tests.soak.daemons import TELLS, Daemons
from tests.soak.kinds import TORCHRUN

SECOND = "opsk-second"
"""Host name of the second slurmctld."""
CTLD_TIMEOUT_S = 10
SLURMD_TIMEOUT_S = 30
OPSK = (sys.executable, "-P", "-m", "opsk")
USERS = ("root", "nobody", "daemon", "games")
TIMED_OUT = "no answer within"
"""What a command says on a machine that is too busy."""
SLOWEST_S = 400.0
"""A command of the lab starts Python, which takes minutes where 64 nodes and all their daemons share two processors."""
SLEEPS = """#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
  return syscall(SYS_clock_nanosleep, clock, flags, until, left) ? errno : 0;
}
"""
"""Stands before libfaketime, whose own cannot sleep until a time of the monotonic clock, as Python does."""
CLOCK_LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")
CLOCKED = ("advisor", "recorder", "exporter-n0")
"""Daemons that run on a clock of their own, where libfaketime is there."""
HELPERS = ("slurmctld", "slurmdbd", "mariadbd", "advisor", "devices")
IN_A_HOST = "{name}mount --bind {hosts} /etc/hosts && {pid}exec slurmctld -D {more}"


@dataclass(slots=True)
class Site:
    """A lab that is up, and what a soak must know of it."""

    top: Path
    record: LabRecord
    daemons: Daemons
    environment: dict[str, str]
    alone: tuple[str, ...]
    disk: Path
    users: tuple[str, ...]
    not_here: dict[str, str] = field(default_factory=dict)
    """What this machine does not allow, by fault, and why."""

    @property
    def evidence(self) -> Path:
        """Folder of evidence and reports."""
        return self.disk / "postmortem"

    @property
    def audit(self) -> Path:
        """The advisor's audit log."""
        return self.disk / "audit.jsonl"

    @property
    def clocks(self) -> Path:
        """Folder of the clocks of daemons: files that libfaketime reads."""
        return self.top / "clocks"

    @property
    def shared_nodes(self) -> tuple[str, ...]:
        """Nodes for jobs that break nothing."""
        return tuple(name for name in self.record.shape.names if name not in self.alone)

    def run(
        self, *words: str, user: str | None = None, more: Mapping[str, str] | None = None, within_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm's or opsk's in the lab, perhaps as another user; status 124: it took too long."""
        who = (
            {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user not in (None, "root") else {}
        )
        try:
            return subprocess.run(
                words, env={**self.environment, **(more or {})}, cwd=self.top / "work", capture_output=True, text=True,
                timeout=within_s, check=False, stdin=subprocess.DEVNULL, **who,
            )  # type: ignore[call-overload, no-any-return]  # fmt: skip
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 124, "", f"{TIMED_OUT} {within_s:.0f} s")

    def opsk(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run opsk in the lab."""
        return self.run(*OPSK, *words, within_s=SLOWEST_S)

    def node_folder(self, node: str) -> Path:
        """Return what a node has for its own."""
        return self.record.folder.nodes / node

    def left_in_tmp(self) -> list[str]:
        """Return the temporary files of opsk's daemons and of what epilogs start.

        What `opsk top` keeps of Slurm's answers for this user's other screens is there to stay.
        """
        kept = f"opsk-{os.getuid()}"
        return sorted(path.name for path in (self.top / "tmp").iterdir() if path.name != kept)


@contextmanager
def site_up(top: Path, *, nodes: int, alone: int, disk_bytes: int) -> Iterator[Site]:
    """Bring a site up in an empty folder; all of it ends with the context."""
    for name in ("work", "tmp", "clocks", "disk", "bin", "work/out", "work/go"):
        (top / name).mkdir(parents=True)
        (top / name).chmod(0o1777)
    top.chmod(0o755)
    (top / "bin" / "torchrun").write_text(TORCHRUN)
    (top / "bin" / "torchrun").chmod(0o755)
    shape = LabShape(nodes=nodes, gpus=4, hcas=2, leaves=4 if nodes > 16 else 2, spines=2)
    record, _ = up(top / "lab", shape=shape, parts=("exporter", "advisor"), progress=lambda _: None, exporters=nodes)
    mounted = False
    try:
        mounted = _mount(top / "disk", disk_bytes)
        launcher = Launcher(record)
        environment = _environment(top, record)
        site = Site(
            top, record, Daemons(launcher), environment, record.shape.names[-alone:], top / "disk",
            tuple(user for user in USERS if _exists(user)),
        )  # fmt: skip
        if not mounted:
            site.not_here["disk full"] = "no file system can be mounted here"
        _configure(site)
        _start(site)
        yield site
    finally:
        if "site" in locals():
            site.daemons.leave()
        take_down(top / "lab", record)
        if mounted:
            subprocess.run(["umount", "--lazy", str(top / "disk")], check=False, capture_output=True)


def left_processes(site: Site) -> list[str]:
    """Return what of the lab runs though all of it has been ended."""
    found = find_all(site.record.folder.path, slurm_confs=[site.record.folder.slurm_conf])
    return [str(process.pid) for process in found]


def _environment(top: Path, record: LabRecord) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
    path = f"{top / 'bin'}{os.pathsep}{build_search_path()}"
    return {**kept, "PATH": path, "XDG_STATE_HOME": str(top / "state"), **build_slurm_environment(record)}


def _exists(user: str) -> bool:
    with suppress(KeyError):
        return user == "root" or (os.geteuid() == 0 and pwd.getpwnam(user).pw_uid > 0)
    return False


def _mount(folder: Path, size_bytes: int) -> bool:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=1777", "opsk-soak", str(folder)],
        check=False, capture_output=True,
    )  # fmt: skip
    return done.returncode == 0


def _configure(site: Site) -> None:
    """Let opsk keep everything on the small disk, and Slurm be as quick as a soak needs."""
    folder, store = site.record.folder, f'\n[store]\nurl = "sqlite:///{site.disk}/opsk.db"\n'
    site.evidence.mkdir(mode=0o755)
    patience = "submit_deadline_s = 1.0\ncli_deadline_s = 5.0\n"
    old = str(folder.log / "postmortem")
    text = folder.site.read_text().replace(old, str(site.evidence))
    text = text.replace(str(folder.log / "advisor-audit.jsonl"), str(site.audit))
    text = text.replace("refresh_s = 2", "refresh_s = 5").replace("slurm_interval_s = 2", "slurm_interval_s = 3")
    folder.site.write_text(text.replace("cli_deadline_s = 2.0\n", patience) + store)
    install_hooks(folder.etc, load_site(folder.site))
    for node in site.record.shape.names:
        settings = site.node_folder(node) / "opsk.toml"
        settings.write_text(settings.read_text().replace(old, str(site.evidence)) + store)
        for name in ("started", "ended"):
            (site.node_folder(node) / "spool" / name).mkdir(parents=True)
    for name in ("lab-prolog", "lab-epilog"):
        script = folder.etc / name
        more = f"\nexport TMPDIR={site.top}/tmp OPSK_COMMAND={site.top}/bin/opsk\nexec "
        script.write_text(script.read_text().replace("\nexec ", more))
    command = site.top / "bin" / "opsk"
    path = f"PYTHONPATH={os.environ['PYTHONPATH']} " if "PYTHONPATH" in os.environ else ""
    command.write_text(f'#!/bin/sh\n{path}exec {" ".join(OPSK)} "$@"\n')
    command.chmod(0o755)
    conf = folder.slurm_conf
    shared, alone = ",".join(site.shared_nodes), ",".join(site.alone)
    lines = conf.read_text().replace("PartitionName=train Nodes=ALL", f"PartitionName=train Nodes={shared}")
    conf.write_text(
        lines.replace("bf_interval=5", "bf_interval=2")
        + f"SlurmdTimeout={SLURMD_TIMEOUT_S}\nSlurmctldTimeout={CTLD_TIMEOUT_S}\nMinJobAge=300\n"
        "PreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n"
        f"PartitionName=alone Nodes={alone} State=UP\n"
        f"PartitionName=urgent Nodes={alone} PriorityTier=100 PreemptMode=OFF State=UP\n",
        encoding="utf-8",
    )


def _start(site: Site) -> None:
    """Start what the lab does not have, and start anew what must know of the configuration."""
    daemons, folder = site.daemons, site.record.folder
    own = {"TMPDIR": str(site.top / "tmp"), TELLS: "1"}
    site_conf = {**own, "OPSK_CONFIG": str(folder.site), "XDG_STATE_HOME": str(site.top / "state")}
    for name in HELPERS:
        daemons.adopt(name, extra={**own, **_clock(site, name)} if name == "advisor" else None)
    for node in site.record.shape.names:
        daemons.adopt(f"exporter-{node}", pause_s=2.0, extra={**own, **_clock(site, f"exporter-{node}")})
        daemons.adopt(f"slurmd-{node}", pause_s=2.0)
    _two_controllers(site)
    done = site.run("scontrol", "reconfigure")
    assert done.returncode == 0, done.stderr
    _await_idle(site)
    for name in ("advisor", "exporter-n0"):
        daemons.replace(name)
    daemons.add(
        "recorder", (*OPSK, "top", "--record", "--every", "20"), {**site_conf, **_clock(site, "recorder")}, pause_s=5.0
    )
    end = time.monotonic() + 60
    while not (folder.run / "advisor.sock").exists() and time.monotonic() < end:
        time.sleep(0.2)
    daemons.watch()


def _clock(site: Site, name: str) -> dict[str, str]:
    """Return what gives a daemon a clock of its own."""
    found = [path for pattern in CLOCK_LIBRARIES for path in Path("/").glob(pattern.lstrip("/"))]
    if name not in CLOCKED:
        return {}
    sleeps = site.clocks / "sleeps.so"
    if not found or not (sleeps.exists() or _compiled(SLEEPS, sleeps)):
        site.not_here["clock step"] = "libfaketime (package faketime) or gcc is not installed"
        return {}
    clock = site.clocks / name
    clock.write_text("+0\n")
    return {
        "LD_PRELOAD": f"{sleeps}:{found[0]}", "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip


def _compiled(source: str, target: Path) -> bool:
    """Make a library of a few lines of C; tell whether that is possible here."""
    words = ["gcc", "-shared", "-fPIC", "-x", "c", "-o", str(target), "-"]
    try:
        return subprocess.run(words, input=source, text=True, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def _two_controllers(site: Site) -> None:
    """Let slurmctld run twice, on two host names; where no host name can be had, it runs once."""
    daemons, folder = site.daemons, site.record.folder
    probe = subprocess.run(
        ["unshare", "--uts", "--mount", "sh", "-c", f"hostname {SECOND} && mount --bind /etc/hosts /etc/hosts"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if probe.returncode != 0 or shutil.which("hostname") is None:
        site.not_here["fail-over"] = f"no host name of its own can be had here: {probe.stderr.strip()[:80]}"
        daemons.replace("slurmctld")
        return
    hosts = site.top / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {read_short_host()}\n127.0.0.2 {SECOND}\n")
    conf = folder.slurm_conf
    first = f"SlurmctldHost={read_short_host()}(127.0.0.1)"
    conf.write_text(
        conf.read_text().replace(first, f"{first}\nSlurmctldHost={SECOND}(127.0.0.2)")
        + "CommunicationParameters=NoCtldInAddrAny\n"
    )

    def command(name: str, pid: str, more: str) -> Sequence[str]:
        script = IN_A_HOST.format(name=name, hosts=hosts, pid=pid, more=more)
        return ("unshare", "--uts", "--mount", "sh", "-c", script)

    daemons.replace("slurmctld", command("", "", ""))
    _await_controller(site)
    # A slurmctld ends the one whose number it finds in its pid file: the second one does not see the first one's.
    own, theirs = folder.run / "second.pid", folder.run / "slurmctld.pid"
    pid = f"touch {own} {theirs} && mount --bind {own} {theirs} && "
    daemons.add("second", command(f"hostname {SECOND} && ", pid, f"-L {folder.log}/slurmctld-second.log"), pause_s=3.0)


def _await_controller(site: Site) -> None:
    end = time.monotonic() + 60
    while "is UP" not in site.run("scontrol", "ping").stdout:
        assert time.monotonic() < end, "no slurmctld answers"
        time.sleep(0.3)


def _await_idle(site: Site) -> None:
    end = time.monotonic() + 120
    while True:
        said = site.run("sinfo", "-h", "-N", "-p", "train,alone", "-o", "%t").stdout.split()
        if said == ["idle"] * site.record.shape.nodes:
            return
        assert time.monotonic() < end, f"not all nodes are ready: {said}"
        time.sleep(0.5)
