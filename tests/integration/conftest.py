"""A whole cluster for the tests, of each release of Slurm in turn; started when the first test asks for it.

Tests that ask for ``slurm``, ``lab_programs`` or ``lab`` run once for this machine's Slurm and once for that of each
Debian suite in `releases.roots.EXPECTED`; all of one release first, so that one lab is up at a time. A file that needs
this machine's Slurm only says so: ``pytest.mark.parametrize("slurm", [INSTALLED], indirect=True, scope="session")``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from opsk.lab.lifecycle import take_down, up
from opsk.lab.programs import build_search_path, find_missing, locate, read_slurm_release
from opsk.lab.record import LabShape
from opsk.lab.status import build_slurm_environment
from tests.fakes.advised_lab import AdvisedLab, advised_lab_up
from tests.fakes.warm_opsk import run as run_warm
from tests.integration.releases import roots

NODES = 4
UNITS = LabShape(nodes=6, gpus=2, hcas=2, leaves=4, spines=2)
AT_ONCE = "bf_interval=1,batch_sched_delay=0"
"""With these SchedulerParameters a job starts within a second, a requeued one before its nodes have ended it."""
ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT_S = 120
OWN_PATH = os.environ.get("PATH", "")
OLDEST_AND_NEWEST = pytest.mark.parametrize(
    "slurm",
    [roots.INSTALLED, pytest.param("unstable", marks=pytest.mark.unstable)],
    indirect=True,
    scope="session",
)
"""For long tests of what opsk makes of a cluster: what a release does differently has short tests, run on all three."""
INSTALLED_ONLY = pytest.mark.parametrize("slurm", [roots.INSTALLED], indirect=True, scope="session")
"""For tests in a file of all releases whose outcome no release changes: what a program prints into the job's log."""
RUN = pytest.StashKey[dict[str, str]]()
"""Which Slurm ran, by where it is from, for the last lines."""
NOT_MADE = pytest.StashKey[dict[str, str]]()
"""Why there is no root, by Debian suite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """A Slurm that the tests run: where it is from, its release, and the PATH on which its commands come first.

    ``system`` is the top of the file system that its programs see as theirs.
    """

    source: str
    release: tuple[int, int]
    path: str
    system: Path = Path("/")


@contextmanager
def path_is(path: str) -> Iterator[None]:
    """Let this process, and what it starts, find commands on another PATH."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = path
    try:
        yield
    finally:
        os.environ["PATH"] = before


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLab:
    """A lab that is up: its folder, and the environment with which Slurm's and opsk's commands use it."""

    path: Path
    environment: Mapping[str, str]

    @property
    def cluster(self) -> str:
        """``ClusterName`` of slurm.conf, which each lab has of its own."""
        return f"lab-{json.loads((self.path / 'lab.json').read_text())['id']}"

    def run(self, *words: str, cwd: Path | None = None, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run any command (``sbatch``, ``sinfo``, ...) against this lab; the test looks at its status."""
        return run_warm(words, environment=self.environment, cwd=cwd, stdin=stdin, timeout_s=TIMEOUT_S)

    def opsk(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run opsk against this lab."""
        return self.run(sys.executable, "-m", "opsk", *words, cwd=cwd)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make the roots of other releases before the first test: no test's time limit is meant for that."""
    asked = {str(item.callspec.params.get("slurm")) for item in session.items if hasattr(item, "callspec")}
    wanted = [suite for suite in roots.EXPECTED if suite in asked]
    if wanted and not session.config.option.collectonly:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        said = list(_shown(roots.make(wanted), reporter))
        session.config.stash[NOT_MADE] = {
            suite: " ".join(line for line in said if suite in line and "not" in line) for suite in wanted
        }


def _shown(lines: Iterator[str], reporter: pytest.TerminalReporter) -> Iterator[str]:
    for line in lines:
        reporter.write_line(line)
        yield line


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which releases of Slurm were met."""
    if ran := config.stash.get(RUN, {}):
        terminalreporter.section("SLURM RELEASES")
        for source, said in ran.items():
            terminalreporter.write_line(f"{source}: {said}")


@pytest.fixture(
    scope="session",
    params=[roots.INSTALLED, *(pytest.param(suite, marks=getattr(pytest.mark, suite)) for suite in roots.EXPECTED)],
)
def slurm(request: pytest.FixtureRequest) -> Iterator[Slurm]:
    """Each Slurm that there is; skipped, by name, where it cannot be run."""
    source: str = request.param
    if source == roots.INSTALLED:
        _skip_for_missing()
        found = Slurm(source=source, release=read_slurm_release(locate()["slurmd"]), path=OWN_PATH)
        _say(request.config, found, "")
        yield found
        return
    root = roots.find(source)
    reason = roots.why_not() or (None if root else request.config.stash.get(NOT_MADE, {}).get(source, ""))
    if root is None or reason is not None:
        wanted = ".".join(f"{part:02}" for part in roots.EXPECTED[source])
        pytest.skip(f"no Slurm {wanted} of Debian {source}: {reason or 'make slurm-roots says why'}")
    with roots.entered(root) as commands:
        path = f"{commands}{os.pathsep}{OWN_PATH}"
        found = Slurm(source=source, release=roots.release_of(root), path=path, system=root)
        _say(request.config, found, "" if found.release == roots.EXPECTED[source] else "; run as newest")
        yield found


def _say(config: pytest.Config, slurm: Slurm, more: str) -> None:
    config.stash.setdefault(RUN, {})[slurm.source] = f"{slurm.release[0]}.{slurm.release[1]:02}{more}"


def _skip_for_missing() -> None:
    absent = find_missing()
    if absent:
        pytest.skip("not installed: " + ", ".join(f"{name} (package {package})" for name, package in absent.items()))


@pytest.fixture(scope="module")
def lab_programs(slurm: Slurm) -> Iterator[None]:
    """What a lab runs, of one release of Slurm, on PATH; skips, by name, when a program is not installed."""
    with path_is(slurm.path):
        _skip_for_missing()
        yield


@pytest.fixture(scope="session")
def plain_environment() -> dict[str, str]:
    """This process's environment without any setting of Slurm or opsk, and with this machine's Slurm."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
    with path_is(OWN_PATH):
        return kept | {"PATH": build_search_path()}


@pytest.fixture(scope="session")
def lab(slurm: Slurm, plain_environment: dict[str, str]) -> Iterator[RunningLab]:
    """A lab of four nodes without advisor and hooks; shared by all tests that change nothing of it."""
    with path_is(slurm.path):
        _skip_for_missing()
        environment = plain_environment | {"PATH": build_search_path()}
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    top.chmod(0o755)
    path = top / "lab"
    command = [sys.executable, "-m", "opsk", "lab"]
    try:
        started = run_warm(
            [*command, "up", "--dir", str(path), "--nodes", str(NODES), "--no-advice", "--exporters", "0", "--json"],
            environment=environment, timeout_s=TIMEOUT_S,
        )  # fmt: skip
        assert started.returncode == 0, started.stderr
        status = json.loads(started.stdout)
        yield RunningLab(path=path, environment=environment | status["environment"])
    finally:
        run_warm(
            [*command, "down", "--dir", str(path)], environment=environment, timeout_s=TIMEOUT_S
        ).check_returncode()
        shutil.rmtree(top)


@pytest.fixture(scope="session")
def advised_lab(slurm: Slurm) -> Iterator[AdvisedLab]:
    """A lab of two nodes with advisor and hooks; a test first says how it wants it configured."""
    with ExitStack() as stack:
        with path_is(slurm.path):
            _skip_for_missing()
            lab = stack.enter_context(advised_lab_up())
        yield lab


@pytest.fixture(scope="session")
def units_lab(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Two units of three nodes of two GPUs; jobs start at once and get what ``opsk-task-prolog`` says."""
    path = tmp_path_factory.mktemp("units") / "lab"
    with path_is(slurm.path):
        _skip_for_missing()
        record, _ = up(path, shape=UNITS, parts=(), progress=lambda _: None)
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
        environment = {**kept, "PATH": build_search_path(), "HOME": str(path.parent), **build_slurm_environment(record)}
    lab = RunningLab(path=path, environment=environment)
    try:
        conf = path / "etc" / "slurm.conf"
        text = conf.read_text().replace("bf_interval=5", AT_ONCE)
        conf.write_text(f"{text}TaskProlog={ROOT}/deploy/slurm/opsk-task-prolog\n")
        assert lab.run("scontrol", "reconfigure").returncode == 0
        _await_idle(lab)
        yield lab
    finally:
        take_down(path, record)


def _await_idle(lab: RunningLab) -> None:
    """Wait until every node answers again: newer releases start slurmd anew to reconfigure it."""
    end = time.monotonic() + 60
    while lab.run("sinfo", "-h", "-N", "-o", "%t").stdout.split() != ["idle"] * UNITS.nodes:
        assert time.monotonic() < end, lab.run("sinfo", "-N").stdout
        time.sleep(0.1)
