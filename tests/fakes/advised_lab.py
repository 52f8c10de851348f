"""A real lab with opsk's hooks and an advisor that tests hurt, replace and configure; and a terminal in it.

What is configured is brought into force as an administrator would: the hooks are installed again (slurmctld reads them
at the next submission) and the advisor gets SIGHUP. It has one worker and asks Slurm nothing by itself, so that this is
quick.
"""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from opsk.config import load_site
from opsk_jobcheck.service.hooks import install_hooks
from tests.fakes.advisor_process import eventually
from tests.fakes.own_advisor import LabWithOwnAdvisor, advised_nodes, answers, terminal
from tests.fakes.warm_opsk import run as run_warm

ADVICE = "opsk  "
HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8 --ntasks-per-node=1 --output=/dev/null\n"
LAUNCH = "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --bf16 --train-iters 10 --vocab-size 50257 "
SIZES = "--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads} "
BATCH = "--micro-batch-size {micro} --global-batch-size 128 --seq-length 2048 --max-position-embeddings 2048 "
COMMON = "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --use-distributed-optimizer\n"
TRAIN = LAUNCH + SIZES + BATCH + COMMON
TRAINS = TRAIN.format(layers=24, hidden=2048, heads=16, micro=1)
FITS = HEAD + TRAINS
RUNS_OUT = HEAD + TRAIN.format(layers=80, hidden=8192, heads=64, micro=4)
FROM_ENVIRONMENT = HEAD + TRAIN.format(layers="${LAYERS:-80}", hidden="${HIDDEN:-8192}", heads=64, micro=4)
ASKED_FOR_LAYERS = """LAYERS=4
while [[ $# -gt 0 ]]; do
    case "$1" in
        --layers) LAYERS="$2"; shift 2 ;;
        *) echo "what is $1?" >&2; exit 1 ;;
    esac
done
"""
FROM_ARGUMENTS = HEAD + ASKED_FOR_LAYERS + TRAIN.format(layers="$LAYERS", hidden=8192, heads=64, micro=1)
QUICK = "workers = 1\nlive_interval_s = 0\n"
PATIENT = "submit_deadline_s = 1.0\ncli_deadline_s = 5.0\n"
"""Deadlines that a busy machine keeps: for tests of what an answer does, not of how fast it comes."""
OWN_DEADLINE = "cli_deadline_s = 2.0\n"
"""How long the users' hook waits in a lab."""


@dataclass
class Submitted:
    """What a command printed, how it ended, and how long it took."""

    returncode: int
    stdout: str
    stderr: str
    took_s: float

    @property
    def job(self) -> int:
        """The job, which must have been accepted."""
        said = self.stdout + self.stderr
        found = re.search(r"(?:batch job|job allocation) (\d+)", said)
        assert self.returncode == 0, said
        assert found, f"no job was accepted: {said}"
        return int(found[1])

    @property
    def advice(self) -> list[str]:
        return [line for line in self.stderr.splitlines() if ADVICE in line]


@dataclass
class AdvisedLab(LabWithOwnAdvisor):
    """A lab with hooks and advisor, and a terminal in it; scripts find a torchrun that does nothing."""

    plain: str
    """Its site configuration without what tests add."""
    in_force: str = ""
    ticks: Iterator[int] = field(default_factory=lambda: count(2, 2))

    def run(self, *words: str, stdin: str = "", **environ: str) -> Submitted:
        """Run a command; the test looks at its status."""
        began = time.monotonic()
        done = run_warm(words, environment={**self.environ, **environ}, cwd=self.directory, stdin=stdin, timeout_s=60)
        return Submitted(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def script(self, text: str) -> str:
        path = self.directory / "train.sh"
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def sbatch(self, text: str, *options: str, **environ: str) -> Submitted:
        return self.run("sbatch", *options, self.script(text), **environ)

    def shown(self, job: int) -> dict[str, str]:
        """Return what slurmctld keeps of a job."""
        text = self.run("scontrol", "show", "job", str(job)).stdout
        found = re.findall(r"(JobState|Reason|Priority)=(\S+)", text)
        return dict(found + re.findall(r"^ *(\w*Comment)=(.*?) *$", text, re.MULTILINE))

    def policy(self, *rules: str) -> None:
        """Bring a policy into force."""
        self.configure(PATIENT + "".join(f"\n[[advisor.policy]]\n{rule}\n" for rule in rules))

    def configure(self, more: str, *, with_advisor: bool = True) -> None:
        """Add to the site's configuration, in place of what was added before, and bring it into force.

        Parameters
        ----------
        with_advisor
            Whether an advisor that does not run is started.
        """
        if more == self.in_force:
            if with_advisor and not answers(self.socket):
                self.start_advisor()
            return
        etc, site = self.record.folder.etc, self.record.folder.site
        plain = self.plain.replace(OWN_DEADLINE, "") if "cli_deadline_s" in more else self.plain
        site.write_text(plain + more)
        install_hooks(etc, load_site(site))
        # slurmctld reads the hook again when its time stamp, in whole seconds, is newer
        later = time.time() + next(self.ticks)
        os.utime(etc / "job_submit.lua", (later, later))
        if answers(self.socket):
            before = self._reloads()
            for pid in self.advisor_pids():
                os.kill(pid, signal.SIGHUP)
            wait_until(lambda: self._reloads() > before)
        elif with_advisor:
            self.start_advisor()
        self.in_force = more

    def _reloads(self) -> int:
        return (self.record.folder.log / "advisor.out").read_text().count("configuration read again")

    def audited(self, since: datetime) -> list[dict[str, object]]:
        """Return what was audited since a moment; the log is written a little later."""
        path = self.record.folder.log / "advisor-audit.jsonl"
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        return [entry for entry in entries if datetime.fromisoformat(entry["time"]) >= since]

    def last_audited(self, kind: str, since: datetime) -> dict[str, object]:
        """Return the newest record of a kind since a moment."""
        wait_until(lambda: any(entry.get("kind") == kind for entry in self.audited(since)))
        return [entry for entry in self.audited(since) if entry.get("kind") == kind][-1]

    def start_advisor(self) -> None:
        """Start an advisor of our own in place of the lab's, and wait until it answers."""
        self.replace_advisor(self.record.folder.site, "advisor.out", {**os.environ, **self.environ})


def this_moment() -> datetime:
    """Return what time it is, as exactly as the audit log says it."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def wait_until(is_so: Callable[[], bool], within_s: float = 60.0) -> None:
    eventually(is_so, bool, within_s)


@contextmanager
def advised_lab_up() -> Iterator[AdvisedLab]:
    """Bring a lab of two nodes up, which other users may enter; all of it ends with the context."""
    with tempfile.TemporaryDirectory(prefix="opsk-test-", ignore_cleanup_errors=True) as folder:
        top = Path(folder)
        top.chmod(0o755)
        programs = top / "work" / "bin"
        programs.mkdir(parents=True)
        (programs / "torchrun").write_text("#!/bin/sh\nexit 0\n")
        (programs / "torchrun").chmod(0o755)
        with advised_nodes(top / "lab", QUICK) as record:
            environ = terminal(record, programs.parent, programs)
            lab = AdvisedLab(record, programs.parent, environ, record.folder.site.read_text())
            try:
                yield lab
            finally:
                lab.stop_advisor()
