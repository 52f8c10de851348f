"""``make demo``: a real Slurm in a box, four scripts submitted with ``sbatch``, and what opsk says to each.

Then what a node's exporter tells of a job and of a GPU that fails, and a fabric with a cabling fault of each kind: what
is wrong with it, and where a job's ranks should go on it.

Where the lab's programs are missing and may not be installed, the same scripts are read with ``opsk check`` against a
fabric that was recorded from the lab.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import demo_exporter

EXAMPLES = Path(__file__).resolve().parent
ROOT = EXAMPLES.parent
LAB = ROOT / ".lab"
NOT_FOR_THE_LAB = {"gcc", "libc6-dev", "python3-venv"}
OPSK = (sys.executable, "-m", "opsk")
SCRIPTS = (
    ("llama3-8b-megatron.sbatch", "a job that fits", ()),
    ("llama3-70b-megatron.sbatch", "a job that would run out of memory, and the ways out", ()),
    ("site-launcher.sbatch", "a job whose settings nobody can tell at submit", ("13b",)),
    ("hello.sbatch", "no training job: opsk keeps quiet", ()),
)
PLAN, MISWIRED = EXAMPLES / "plans" / "llama3-70b-64.toml", EXAMPLES / "miswired.ibnetdiscover"
ON_IT = ("--fabric", str(MISWIRED), "--nodes", "n[0-7]")
FAILED = ("--failed", "gpu:n5/3", "--plan", str(PLAN), "--spares", "n8", "--slurm-release", "24.11")
FABRIC = (
    ("a fabric with cabling faults: what is wrong, and what it costs a job that lands there", "fabric", str(MISWIRED)),
    ("where the ranks of a job go on it, against Slurm's own order", "place", str(PLAN), *ON_IT),
    ("one of its GPUs has failed: who takes over, at what cost, by which commands", "remap", "-", *FAILED, *ON_IT),
)


def main() -> int:
    """Run the demo; the exit status is 0 when every script was answered."""
    words = [ROOT / "deploy" / "install-system-packages", "--list"]
    listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    missing = [package for package in listed if package not in NOT_FOR_THE_LAB]
    return without_lab(missing) if missing else with_lab()


def with_lab() -> int:
    """Start the lab, submit, show, and take it down again whatever happened."""
    title("A cluster in a box: real munge, MariaDB, slurmdbd, slurmctld, 16 slurmd, and an InfiniBand subnet")
    if call("opsk", "lab", "up", "--prometheus", "--dir", str(LAB)) != 0:
        call("opsk", "lab", "down", "--dir", str(LAB))
        return 1
    try:
        environment = os.environ | lab_environment()
        jobs = LAB / "jobs"
        jobs.mkdir(exist_ok=True)
        failed = demo_exporter.submit(environment, jobs)
        for name, what, arguments in SCRIPTS:
            title(what)
            command = ["sbatch", str(EXAMPLES / name), *arguments]
            print(f"$ sbatch {' '.join((f'examples/{name}', *arguments))}", flush=True)
            failed += bool(subprocess.run(command, env=environment, cwd=jobs, check=False).returncode)
        title("What stays in the jobs' records, as `opsk top --once` shows it")
        failed += bool(subprocess.run([*OPSK, "top", "--once"], env=environment, check=False).returncode)
        failed += demo_exporter.show(lab_status(), title, call, ("--dir", str(LAB)))
    finally:
        title("Everything is taken down again")
        call("opsk", "lab", "down", "--dir", str(LAB))
    failed += on_the_fabric()
    print(
        '\nTo look around yourself: .venv/bin/opsk lab up; eval "$(.venv/bin/opsk lab env)"; sinfo; sbatch examples/…'
    )
    return int(bool(failed))


def without_lab(missing: list[str]) -> int:
    """Read the same scripts against the recorded fabric."""
    print(
        f"demo: {', '.join(missing)} not here and not to be installed: showing `opsk check` on the same scripts "
        "against the fabric recorded from the lab"
    )
    recorded = EXAMPLES / "lab"
    failed = 0
    for name, what, arguments in SCRIPTS:
        title(what)
        words = [
            "check",
            "--cluster",
            str(recorded / "cluster.toml"),
            "--fabric",
            str(recorded / "fabric.ibnetdiscover"),
            "--detail",
            "long",
        ]
        print(f"$ opsk check --detail long {' '.join((f'examples/{name}', *arguments))}", flush=True)
        status = subprocess.run([*OPSK, *words, str(EXAMPLES / name), *arguments], check=False).returncode
        failed += status not in (0, 1)
    return int(bool(failed + on_the_fabric()))


def on_the_fabric() -> int:
    """Show what needs no Slurm; return how many commands failed."""
    failed = 0
    for what, *words in FABRIC:
        title(what)
        failed += call("opsk", *words) != 0
    return failed


def lab_environment() -> dict[str, str]:
    """Return the variables that point Slurm's commands and opsk at the lab."""
    shown = subprocess.run([*OPSK, "lab", "env", "--dir", str(LAB)], capture_output=True, text=True, check=True).stdout
    script = f"{shown}\nenv -0"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if "=" in entry)


def lab_status() -> dict[str, Any]:
    """Return what the lab says of itself."""
    words = [*OPSK, "lab", "status", "--json", "--dir", str(LAB)]
    found: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True, text=True, check=False).stdout)
    return found


def call(program: str, *words: str) -> int:
    """Run an opsk command, showing what is run."""
    print(f"$ {' '.join((program, *(word.removeprefix(f'{ROOT}/') for word in words)))}", flush=True)
    return subprocess.run([*OPSK, *words], check=False).returncode


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n── {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
