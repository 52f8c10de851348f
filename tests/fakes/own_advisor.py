"""A lab of two nodes whose advisor a test starts, hurts and replaces itself: what all such labs have in common."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from opsk.config import load_site
from opsk.lab.lifecycle import take_down, up
from opsk.lab.parts import ADVISOR, list_parts
from opsk.lab.record import LabRecord, LabShape
from opsk.lab.slurm_files import write_site_files
from opsk.lab.status import build_slurm_environment

UP_WITHIN_S = 180.0


@dataclass
class LabWithOwnAdvisor:
    """A lab, and a terminal in it: a folder to work in and an environment."""

    record: LabRecord
    directory: Path
    environ: dict[str, str]
    advisor: subprocess.Popen[bytes] | None = field(default=None, kw_only=True)

    @property
    def socket(self) -> Path:
        return load_site(self.record.folder.site).advisor.socket

    def cancel(self) -> None:
        """Cancel all jobs."""
        words = ["scancel", "--user", str(os.getuid())]
        subprocess.run(words, env=self.environ, timeout=60, check=False, capture_output=True)

    def replace_advisor(self, site: Path, log: str, environ: Mapping[str, str]) -> None:
        """Start an advisor of our own in place of the one that runs, and wait until it answers."""
        self.stop_advisor()
        command = (sys.executable, "-m", "opsk", "advisor", "--config", str(site))
        with (self.record.folder.log / log).open("ab") as out:
            self.advisor = subprocess.Popen(command, stderr=out, stdout=out, env=dict(environ))
        end = time.monotonic() + UP_WITHIN_S
        while not answers(self.socket):
            if self.advisor.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no advisor came up; see {self.record.folder.log / log}")
            time.sleep(0.05)

    def stop_advisor(self) -> None:
        """Kill the advisor, and leave no socket."""
        for pid in self.advisor_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        if self.advisor is not None:
            self.advisor.wait(10)
            self.advisor = None
        self.socket.unlink(missing_ok=True)

    def advisor_pids(self) -> list[int]:
        """Return the process of the advisor, where one runs."""
        if self.advisor is not None:
            return [self.advisor.pid] if self.advisor.poll() is None else []
        (daemon,) = (each for each in self.record.daemons if each.name == ADVISOR)
        pid = daemon.process.pid if daemon.process else 0
        return [pid] if pid and Path(f"/proc/{pid}").exists() else []


def answers(path: Path) -> bool:
    """Say whether somebody accepts connections."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


@contextmanager
def advised_nodes(folder: Path, settings: str = "") -> Iterator[LabRecord]:
    """Bring a lab of two nodes with hooks and advisor up in a folder; it ends with the context.

    Parameters
    ----------
    settings
        Further lines of its site configuration, which its advisor starts with.
    """
    assert ADVISOR in list_parts(), "opsk is installed without its lab part: pip install -e . again"

    def write(record: LabRecord) -> None:
        write_site_files(record)
        with record.folder.site.open("a", encoding="utf-8") as site:
            site.write(settings)

    with patch("opsk.lab.lifecycle.write_site_files", write):
        record, _ = up(folder, shape=LabShape(nodes=2), parts=(ADVISOR,), progress=lambda _: None)
    try:
        yield record
    finally:
        take_down(folder, record)


def terminal(record: LabRecord, home: Path, programs: Path | None = None) -> dict[str, str]:
    """Return the environment of a terminal in a lab; a folder of programs comes before the machine's."""
    path = os.environ["PATH"] if programs is None else f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", **build_slurm_environment(record)}
