"""How labs come and go: side by side, called off, killed half-way, as an ordinary user; each test has its own."""

import json
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsk.lab.processes import find_all
from tests.fakes.warm_opsk import OPSK
from tests.fakes.warm_opsk import run as run_warm
from tests.integration.releases.roots import INSTALLED

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.fabric,
    pytest.mark.usefixtures("lab_programs"),
    pytest.mark.parametrize("slurm", [INSTALLED], indirect=True, scope="session"),
]

PATIENCE_S = 120.0
"""A lab that starts beside other tests takes many times as long as alone."""
SMALL = ("--nodes", "2", "--gpus", "2", "--hcas", "2", "--spines", "1", "--no-advice", "--exporters", "0")


@pytest.fixture
def opsk(plain_environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return run_warm([*OPSK, *map(str, words)], environment=plain_environment, timeout_s=2 * PATIENCE_S)

    return run


@pytest.fixture
def place(opsk) -> Iterator[Path]:
    """A folder for labs; every lab in it is taken down afterwards, whatever the test did."""
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    yield top
    for record in top.rglob("lab.json"):
        opsk("lab", "down", "--dir", record.parent)
    assert not any(processes_of(folder) for folder in top.iterdir())
    shutil.rmtree(top)


def processes_of(folder: Path) -> list[int]:
    return [each.pid for each in find_all(folder, slurm_confs=[folder / "etc" / "slurm.conf"])]


def links_to(folder: Path) -> list[Path]:
    return [link for link in Path("/tmp").glob("opsk-lab-*") if link.is_symlink() and link.readlink() == folder]


def short_command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "opsk", "lab", "up", "--dir", str(folder), *SMALL]


def test_down_leaves_no_process_and_only_what_people_read(opsk, place: Path):
    lab = place / "lab"
    assert opsk("lab", "up", "--dir", lab, *SMALL).returncode == 0
    (place / "job.sh").write_text("#!/bin/bash\n(setsid sleep 300 &)\nsrun sleep 300\n")
    environment = json.loads(opsk("lab", "status", "--dir", lab, "--json").stdout)["environment"]
    submitted = subprocess.run(
        ["sbatch", "-N2", "-o", "/dev/null", str(place / "job.sh")], env=os.environ | environment, check=True
    )
    assert submitted.returncode == 0
    _wait(lambda: sum(bool(re.fullmatch(r"(\S*/)?sleep 300", line)) for line in _commands(lab)) == 3)
    down = opsk("lab", "down", "--dir", lab)
    assert down.returncode == 0, down.stderr
    assert processes_of(lab) == []
    kept = {"etc", "log", "lab.json", "lock", "fabric.net", "fabric.ibnetdiscover"}
    assert {entry.name for entry in lab.iterdir()} == kept
    assert opsk("lab", "down", "--dir", lab).stdout == "lab was down\n"
    assert opsk("lab", "status", "--dir", lab).returncode == 1
    assert opsk("lab", "down", "--dir", lab, "--purge").returncode == 0
    assert not lab.exists()


def _commands(folder: Path) -> list[str]:
    lines = []
    for pid in processes_of(folder):
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
        except OSError:
            continue
    return lines


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def table_of_another_database() -> Iterator[Path]:
    """A MariaDB that starts takes what it finds in its directory for temporary tables for its own of yesterday."""
    handle, path = tempfile.mkstemp(prefix="#sql-temptable-", suffix=".MAD")
    os.close(handle)
    yield Path(path)
    Path(path).unlink(missing_ok=True)


def test_two_labs_start_at_once_beside_another_database_and_one_goes_down_alone(
    opsk, place: Path, plain_environment, table_of_another_database: Path
):
    folders = [place / "a", place / "b"]
    starts = [subprocess.Popen(short_command(folder), env=plain_environment) for folder in folders]
    assert [start.wait(2 * PATIENCE_S) for start in starts] == [0, 0]
    assert table_of_another_database.exists()
    ports = [json.loads(opsk("lab", "status", "--dir", each, "--json").stdout)["ports"] for each in folders]
    assert ports[0] != ports[1]
    opsk("lab", "down", "--dir", folders[0])
    assert processes_of(folders[0]) == []
    assert opsk("lab", "status", "--dir", folders[1]).returncode == 0


def test_a_folder_with_a_long_odd_name_works_through_a_short_link(opsk, place: Path):
    lab = place / ("a lab % with #odd signs" + "x" * 80)
    up = opsk("lab", "up", "--dir", lab, *SMALL)
    assert up.returncode == 0, up.stderr
    assert len(links_to(lab)) == 1
    assert opsk("lab", "status", "--dir", lab).returncode == 0
    opsk("lab", "down", "--dir", lab)
    assert links_to(lab) == []


# Before the first daemon, while the database is made, and when the first node runs.
MOMENTS = {"record": "lab.json", "database": "mysql/ibdata1", "nodes": "log/slurmd-n0.out"}


def _started_until(folder: Path, moment: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    start = subprocess.Popen(short_command(folder), env=environment, stderr=subprocess.PIPE)
    _wait((folder / MOMENTS[moment]).exists)
    return start


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_start_killed_half_way_is_cleaned_by_down(opsk, place: Path, plain_environment, moment: str):
    lab = place / ("long" * 20)
    start = _started_until(lab, moment, plain_environment)
    start.kill()
    start.communicate()
    down = opsk("lab", "down", "--dir", lab)
    assert down.returncode == 0, down.stderr
    assert processes_of(lab) == []
    assert links_to(lab) == []


def test_up_after_a_crash_starts_afresh(opsk, place: Path, plain_environment):
    lab = place / "lab"
    start = _started_until(lab, "database", plain_environment)
    start.kill()
    start.communicate()
    assert opsk("lab", "up", "--dir", lab, *SMALL).returncode == 0
    assert opsk("lab", "status", "--dir", lab).returncode == 0


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_is_called_off_ends_what_it_started(place: Path, plain_environment, signum: signal.Signals):
    lab = place / "lab"
    start = _started_until(lab, "database", plain_environment)
    start.send_signal(signum)
    said = start.communicate(timeout=60)[1].decode()
    assert start.returncode == 130
    assert said.splitlines()[-1] == "opsk: interrupted"
    assert processes_of(lab) == []


def test_processes_are_found_when_the_folder_was_deleted_under_them(opsk, place: Path):
    lab = place / "lab"
    assert opsk("lab", "up", "--dir", lab, *SMALL).returncode == 0
    shutil.rmtree(lab)
    lab.mkdir()
    assert processes_of(lab)
    down = opsk("lab", "down", "--dir", lab)
    assert down.returncode == 0, down.stderr
    assert processes_of(lab) == []


def test_a_dead_daemon_is_named_with_its_last_words_and_up_repairs_it(opsk, place: Path):
    lab = place / "lab"
    assert opsk("lab", "up", "--dir", lab, *SMALL).returncode == 0
    daemons = json.loads(opsk("lab", "status", "--dir", lab, "--json").stdout)["daemons"]
    victim = next(each["pid"] for each in daemons if each["name"] == "slurmd-n1")
    os.kill(victim, signal.SIGKILL)
    _wait(lambda: victim not in processes_of(lab))
    status = opsk("lab", "status", "--dir", lab)
    assert status.returncode == 1
    assert "problem: slurmd-n1 is not running" in status.stdout
    assert opsk("lab", "up", "--dir", lab, *SMALL).returncode == 0
    assert opsk("lab", "status", "--dir", lab).returncode == 0


def test_a_daemon_that_cannot_start_is_shown_and_nothing_stays(place: Path, plain_environment, tmp_path: Path):
    lab = place / "lab"
    broken = tmp_path / "slurmctld"
    broken.write_text("#!/bin/sh\necho 'slurmctld: fatal: no luck today' >&2\nexit 5\n")
    broken.chmod(0o755)
    environment = plain_environment | {"PATH": f"{tmp_path}:{plain_environment['PATH']}"}
    start = subprocess.run(short_command(lab), env=environment, capture_output=True, text=True, check=False)
    assert start.returncode == 3
    assert "slurmctld ended with status 5" in start.stderr
    assert "no luck today" in start.stderr
    assert "Traceback" not in start.stderr
    assert processes_of(lab) == []


def test_a_missing_program_is_named_with_its_package(place: Path, plain_environment, tmp_path: Path):
    code = (
        f"import opsk.lab.programs as p; p._SYSTEM_DIRECTORIES = ('{tmp_path}',);"
        f"import sys; sys.argv = ['opsk', 'lab', 'up', '--dir', '{place / 'lab'}'];"
        "from opsk.cli.main import main; main()"
    )
    start = subprocess.run(
        [sys.executable, "-c", code], env=plain_environment | {"PATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert start.returncode == 3
    assert "ibsim (package ibsim-utils)" in start.stderr
    assert "apt-get install" in start.stderr
    assert not (place / "lab").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user; the other tests run as this one")
def test_an_ordinary_user_has_a_lab_and_runs_jobs_in_it(root: Path, place: Path, plain_environment):
    closed = [each for each in (root, *root.parents) if not each.stat().st_mode & stat.S_IXOTH]
    if closed:
        pytest.skip(f"only root may read this checkout: {closed[-1]} is closed to others")
    # Everything is imported before the user changes: the interpreter may lie where only root can read.
    user = pwd.getpwnam("nobody")
    lab = place / "lab"
    os.chown(place, user.pw_uid, user.pw_gid)
    job = place / "job.sh"
    job.write_text("#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=2\nsrun bash -c 'id -un; echo $CUDA_VISIBLE_DEVICES'\n")
    code = f"""
import codecs, os, sys
for name in ("ascii", "utf-8", "latin-1", "idna"):
    codecs.lookup(name)
import opsk.cli.lab, opsk.cli.main, opsk.hardware.catalog as catalog, rich.status, rich.live
catalog.cluster("summit"); import opsk.lab.slurm_files as f
templates = [f.files("opsk.lab") / "templates"]
os.setgroups([]); os.setgid({user.pw_gid}); os.setuid({user.pw_uid})
os.chdir({str(place)!r}); os.environ.update(HOME={str(place)!r}, USER="nobody", LOGNAME="nobody")
sys.argv = ["opsk", "lab", *sys.argv[1:]]
opsk.cli.main.main()
"""

    def as_user(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            env=plain_environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    up = as_user("up", *SMALL)
    assert up.returncode == 0, up.stderr
    ran = as_user("run", str(job))
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.split()) == ["0,1", "0,1", "nobody", "nobody"]
    owners = {Path(f"/proc/{pid}").stat().st_uid for pid in processes_of(place / ".lab")}
    assert owners == {user.pw_uid}
    assert as_user("down").returncode == 0
    assert processes_of(place / ".lab") == []
    assert not lab.exists()
