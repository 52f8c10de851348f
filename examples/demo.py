"""``make demo``: a real Slurm in a box, four scripts submitted with ``sbatch``, and what opsk answers to each.

Then what a node's exporter exports of a job and of a GPU that fails, a fabric with a cabling fault of each kind: what
is wrong with it, where a job's ranks should go on it, who takes over when one of its GPUs fails; why a job died; and
the fastest plan for a model. Of long answers the first lines are shown.

Where the lab's programs are missing and cannot be installed, ``opsk check`` reads the same scripts against a fabric
that was recorded from the lab.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import demo_exporter

from opsk.cli.error_reporting import run_reporting_errors
from opsk.errors import ExitStatus, LabError

EXAMPLES = Path(__file__).resolve().parent
ROOT = EXAMPLES.parent
LAB = ROOT / ".demo"
"""Not the folder of ``opsk lab up``: the demo takes its lab down again, and nobody else's."""
INTRODUCTION = """\
This demo needs no GPU and no cluster. It starts a real Slurm on this machine, submits jobs, lets a GPU fail, and takes
everything down again, in about a minute. Lines that begin with "sbatch: opsk" are what people see when they submit."""
OPSK = (sys.executable, "-m", "opsk")
NOT_FOR_THE_LAB = {"gcc", "libc6-dev", "python3-venv", "prometheus"}
"""A lab without gcc has no GPUs, one without Prometheus no alerts; it says so, and the rest is shown."""
SCRIPTS = (
    ("llama3-8b-megatron.sbatch", "a job that fits", ()),
    ("llama3-70b-megatron.sbatch", "a job that would run out of memory, and what would help", ()),
    ("site-launcher.sbatch", "a job whose batch a program chooses when it runs", ("13b",)),
    ("hello.sbatch", "no training job: opsk prints nothing", ()),
)
PLAN, MISWIRED = EXAMPLES / "plans" / "llama3-70b-64.toml", EXAMPLES / "miswired.ibnetdiscover"
ON_IT = ("--fabric", str(MISWIRED), "--nodes", "n[0-7]")
FAILED = ("--failed", "gpu:n5/3", "--plan", str(PLAN), "--spares", "n8", "--slurm-release", "24.11")
DEAD = EXAMPLES / "postmortem"
EVIDENCE = ("--log", str(DEAD / "train-3.out"), "--kernel-log", f"n1={DEAD / 'n1.kern.log'}")
SPACE = ("--model", "llama-3-70b", "--gpus", "64", "--cluster", "superpod-h100", "--global-batch", "128")
WITHOUT_SLURM = (
    (
        "a fabric with cabling faults: what is wrong, and what it costs a job that runs there",
        40,
        "fabric",
        str(MISWIRED),
    ),
    ("where the ranks of a job go on it, compared with Slurm's own order", 23, "place", str(PLAN), *ON_IT),
    ("one of its GPUs has failed: who takes over, at what cost, by which commands", 28, "remap", "-", *FAILED, *ON_IT),
    ("why a job died: its log and the kernel log of a node", 16, "postmortem", *EVIDENCE),
    ("the fastest plans that a framework runs", 13, "plan", *SPACE),
)
"""What is shown of each, the first lines of the answer, and the command."""


def main() -> int:
    """Run the demo; the exit status is 0 when every script was answered."""
    packages = find_missing_packages()
    if not packages:
        print(INTRODUCTION)
    failed = (show_without_lab(packages) if packages else show_with_lab()) + show_without_slurm()
    if not packages:
        print(
            '\nTo look around: .venv/bin/opsk lab up; eval "$(.venv/bin/opsk lab env)"; sinfo; sbatch examples/…',
            flush=True,
        )
    return int(ExitStatus.BAD_NEWS if failed else ExitStatus.ANSWER)


def show_with_lab() -> int:
    """Start the lab, submit, show, and take it down again whatever happened; return how much failed."""
    title("A cluster in a box: real munge, MariaDB, slurmdbd, slurmctld, 16 slurmd, and an InfiniBand subnet")
    if LAB.exists():  # an earlier demo may have been killed
        subprocess.run([*OPSK, "lab", "down", "--dir", str(LAB)], stdout=subprocess.DEVNULL, check=False)
    try:
        if call("lab", "up", "--prometheus", "--dir", str(LAB)) != 0:
            raise LabError("the lab did not start", hint="the line before gives the reason; run `make demo` again")
        environment = os.environ | lab_environment()
        jobs = LAB / "jobs"
        jobs.mkdir(exist_ok=True)
        failed = demo_exporter.submit(environment, jobs)
        for name, what, arguments in SCRIPTS:
            title(what)
            command = ["sbatch", str(EXAMPLES / name), *arguments]
            print(f"$ sbatch {' '.join((f'examples/{name}', *arguments))}", flush=True)
            failed += bool(subprocess.run(command, env=environment, cwd=jobs, check=False).returncode)
        title("All jobs on one page, as `opsk top --once` prints it")
        failed += bool(subprocess.run([*OPSK, "top", "--once"], env=environment, check=False).returncode)
        return failed + demo_exporter.show(lab_status(), title, call, ("--dir", str(LAB)))
    finally:
        title("Everything is taken down again")
        call("lab", "down", "--dir", str(LAB))


def show_without_lab(packages: list[str]) -> int:
    """Read the same scripts against the recorded fabric; return how many were not answered."""
    print(f"demo: no lab without {', '.join(packages)}: `opsk check` reads the scripts against a recorded fabric")
    recorded = EXAMPLES / "lab"
    on_recorded = ("--cluster", str(recorded / "cluster.toml"), "--fabric", str(recorded / "fabric.ibnetdiscover"))
    failed = 0
    for name, what, arguments in SCRIPTS:
        title(what)
        print(f"$ opsk check --detail long {' '.join((f'examples/{name}', *arguments))}", flush=True)
        status = opsk("check", *on_recorded, "--detail", "long", str(EXAMPLES / name), *arguments)
        failed += status not in (ExitStatus.ANSWER, ExitStatus.BAD_NEWS)
    return failed


def show_without_slurm() -> int:
    """Show what needs no Slurm; return how many commands failed."""
    failed = 0
    for what, lines, *command in WITHOUT_SLURM:
        title(what)
        failed += show_first_lines(lines, *command) not in (ExitStatus.ANSWER, ExitStatus.BAD_NEWS)
    return failed


def show_first_lines(lines: int, *arguments: str) -> int:
    """Run an opsk command and show what is run and the first lines of its answer; return its exit status."""
    print(f"$ {spell(*arguments)}", flush=True)
    width = str(shutil.get_terminal_size((120, 24)).columns)
    done = subprocess.run(
        [*OPSK, *arguments], env={**os.environ, "COLUMNS": width}, stdout=subprocess.PIPE, text=True, check=False
    )
    answer = done.stdout.splitlines()
    print("\n".join(answer[:lines]))
    if len(answer) > lines:
        print(f"… {len(answer) - lines} more lines: run the command to see them")
    return done.returncode


def find_missing_packages() -> list[str]:
    """Return the packages without which there is no lab, of those that ``make setup`` could not install."""
    command = [ROOT / "deploy" / "install-system-packages", "--list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return [package for package in listed if package not in NOT_FOR_THE_LAB]


def lab_environment() -> dict[str, str]:
    """Return the variables that point Slurm's commands and opsk at the lab."""
    exports = subprocess.run([*OPSK, "lab", "env", "--dir", str(LAB)], capture_output=True, text=True, check=False)
    if exports.returncode:
        raise LabError(f"the lab does not answer: {exports.stderr.strip()}")
    script = f"{exports.stdout}\nenv -0"
    printed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    return dict(entry.split("=", 1) for entry in printed.split("\0") if "=" in entry)


def lab_status() -> dict[str, Any]:
    """Return the status of the lab as a document."""
    command = [*OPSK, "lab", "status", "--json", "--dir", str(LAB)]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    if not printed.stdout:
        raise LabError(f"the lab does not answer: {printed.stderr.strip()}")
    status: dict[str, Any] = json.loads(printed.stdout)
    return status


def call(*arguments: str) -> int:
    """Run an opsk command and show what is run."""
    print(f"$ {spell(*arguments)}", flush=True)
    return opsk(*arguments)


def spell(*arguments: str) -> str:
    """Return an opsk command as a person in the checkout would type it."""
    return " ".join(("opsk", *(argument.replace(f"{ROOT}/", "") for argument in arguments)))


def opsk(*arguments: str) -> int:
    """Run an opsk command and return its exit status."""
    return subprocess.run([*OPSK, *arguments], check=False).returncode


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n── {text}", flush=True)


if __name__ == "__main__":
    sys.exit(run_reporting_errors(main))
