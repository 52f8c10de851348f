import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsk.lab.processes import MARKER, Process, end, find_all, identify, is_running, send, wait_gone

Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start sleeping processes with a given environment; all are ended afterwards."""
    children: list[subprocess.Popen[bytes]] = []

    def start(
        code: str = "import time; print(flush=True); time.sleep(60)", **environment: str
    ) -> subprocess.Popen[bytes]:
        child = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def pids(folder: Path, *confs: Path) -> set[int]:
    return {process.pid for process in find_all(folder, slurm_confs=confs)}


def test_a_process_with_the_mark_is_found_and_others_are_not(tmp_path: Path, spawn: Spawn):
    ours = spawn(**{MARKER: str(tmp_path)})
    spawn(**{MARKER: str(tmp_path / "other")})
    spawn()
    assert pids(tmp_path) == {ours.pid}


def test_what_slurmd_started_for_a_job_is_found(tmp_path: Path, spawn: Spawn):
    conf = tmp_path / "etc" / "slurm.conf"
    task = spawn(SLURM_CONF=str(conf), SLURMD_NODENAME="n0")
    assert pids(tmp_path, conf) == {task.pid}


def test_the_shell_of_a_person_who_uses_the_lab_is_spared(tmp_path: Path, spawn: Spawn):
    conf = tmp_path / "etc" / "slurm.conf"
    spawn(SLURM_CONF=str(conf), OPSK_LAB_DIR=str(tmp_path))
    assert pids(tmp_path, conf) == set()


def test_a_person_who_reads_a_log_is_spared(tmp_path: Path, spawn: Spawn):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "slurmctld.log").touch()
    log = tmp_path / "log" / "slurmctld.log"
    spawn(f"log = open({str(log)!r}); print(flush=True); import time; time.sleep(60)")
    assert pids(tmp_path) == set()


def test_slurmstepd_without_environment_is_known_by_the_log_it_holds(tmp_path: Path, spawn: Spawn):
    (tmp_path / "log").mkdir()
    log = tmp_path / "log" / "slurmd-n0.log"
    step = spawn(
        f"open('/proc/self/comm', 'w').write('slurmstepd'); log = open({str(log)!r}, 'a')\n"
        "print(flush=True); import time; time.sleep(60)"
    )
    assert pids(tmp_path) == {step.pid}


def test_the_command_that_searches_never_finds_itself(tmp_path: Path):
    code = (
        "from pathlib import Path; from opsk.lab.processes import find_all;"
        f"print(find_all(Path({str(tmp_path)!r}), slurm_confs=()))"
    )
    environment = os.environ | {MARKER: str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "()"


def test_a_zombie_counts_as_gone(spawn: Spawn):
    child = spawn("print(flush=True)")
    deadline = time.monotonic() + 10
    while identify(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert identify(child.pid) is None
    assert Path(f"/proc/{child.pid}").exists()


def test_a_pid_that_was_given_to_another_process_is_not_signalled(spawn: Spawn):
    child = spawn()
    now = identify(child.pid)
    assert now is not None
    earlier = Process(pid=child.pid, started_ticks=now.started_ticks - 1)
    assert not is_running(earlier)
    send(earlier, signal.SIGKILL)
    end([earlier], grace_s=0)
    assert is_running(now)


def test_a_process_that_ignores_the_request_is_killed(spawn: Spawn):
    child = spawn("import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)")
    process = identify(child.pid)
    assert process is not None
    end([process], grace_s=0.05)
    assert wait_gone([process], timeout_s=0) == ()
