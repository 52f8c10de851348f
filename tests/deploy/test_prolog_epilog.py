"""Does the prolog write one whole file a job whatever Slurm hands it, and does neither script ever fail?"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.job_key import JobKey
from opsk.telemetry.jobs.job_files import JobFile, read_job_files
from opsk_exporters.core.settings import Settings
from tests.fakes.advisor_process import eventually

JOB = {
    "SLURM_JOB_ID": "12", "SLURM_JOB_SLUID": "sEX4MPLE000001", "SLURM_JOB_UID": "1000", "SLURM_JOB_USER": "ann",
    "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1", "SLURMD_NODENAME": "n0",
}  # fmt: skip


def call(root: Path, which: str, folder: Path, environ: dict[str, str]) -> None:
    """Run it as slurmd does, without a PATH; it must be silent and end with 0. This machine's spool is left alone."""
    own = {"OPSK_JOBS_FOLDER": str(folder), "OPSK_SPOOL_FOLDER": str(folder / "no-spool")}
    done = subprocess.run(
        [str(root / "deploy" / "slurm" / f"opsk-{which}")], env={**environ, **own},
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def files(folder: Path) -> tuple[JobFile, ...]:
    return read_job_files(folder, time.time()).files


def test_a_job_from_its_beginning_to_its_end(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "jobs"
    call(root, "prolog", folder, JOB)
    (file,) = files(folder)
    assert (file.job_id, file.sluid, file.user, file.gpus, file.devices) == (
        "12", "sEX4MPLE000001", "ann", (0, 1), ("0", "1"),
    )  # fmt: skip
    assert (folder / "12.sEX4MPLE000001").stat().st_mode & 0o777 == 0o644
    call(root, "epilog", folder, JOB)
    assert list(folder.iterdir()) == []


def test_the_epilog_takes_its_own_job_only(root: Path, tmp_path: Path) -> None:
    """Runs of the job under other SLUIDs go too, and what a killed prolog left of it."""
    for name in ("12", "12.sA", ".12.99", "112", "120.sB", ".120.7", "1"):
        (tmp_path / name).write_text("x")
    call(root, "epilog", tmp_path, JOB)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".120.7", "1", "112", "120.sB"]


def test_jobs_of_two_clusters_with_one_number_have_notes_of_their_own(root: Path, tmp_path: Path) -> None:
    east, west = ({**JOB, "SLURM_CLUSTER_NAME": name} for name in ("east", "west-2"))
    for job in (east, west):
        call(root, "prolog", tmp_path, job)
    assert {(file.cluster, file.run) for file in files(tmp_path)} == {("east", JOB["SLURM_JOB_SLUID"])} | {
        ("west-2", JOB["SLURM_JOB_SLUID"])
    }
    (tmp_path / ".west-2.12.99").write_text("x")
    (tmp_path / "west-2.12.advice").write_text("x")
    call(root, "epilog", tmp_path, east)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".west-2.12.99", "west-2.12.advice", "west-2.12.sEX4MPLE000001",
    ]  # fmt: skip
    call(root, "epilog", tmp_path, west)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cluster", ["../x", "a b", "a\nb", "$(id)", "*", "h\u00e4", "x" * 41, "a.b", "-n", "%s"])
def test_a_cluster_cannot_name_another_folder(root: Path, tmp_path: Path, cluster: str) -> None:
    """Scripts and Python make the same names, whatever a cluster is called."""
    job = {**JOB, "SLURM_CLUSTER_NAME": cluster, "SLURM_JOB_SLUID": ""}
    call(root, "prolog", tmp_path, job)
    assert [path.name for path in tmp_path.iterdir()] == [JobKey(cluster=cluster, job="12").file_name]
    assert len(files(tmp_path)) == 1
    call(root, "epilog", tmp_path, job)
    assert list(tmp_path.iterdir()) == []


def test_notes_of_opsk_0_1_go_with_the_job_that_they_are_of(root: Path, tmp_path: Path) -> None:
    """The node was updated while jobs ran. Two clusters' notes of one number overwrote each other then."""
    (tmp_path / "12").write_text("opsk-job 1\njob=12\ncluster=west\nwhole\n")
    (tmp_path / "12.sA").write_text("opsk-job 1\njob=12\ncluster=east\nwhole\n")
    call(root, "epilog", tmp_path, {**JOB, "SLURM_CLUSTER_NAME": "east"})
    assert [path.name for path in tmp_path.iterdir()] == ["12"]
    call(root, "epilog", tmp_path, {**JOB, "SLURM_CLUSTER_NAME": "west"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("job", ["", "x", "../../etc/cron.d/x", "1 2", "1\n2", "-1", "*"])
def test_without_a_number_of_a_job_nothing_is_touched(root: Path, tmp_path: Path, job: str) -> None:
    (tmp_path / "12").write_text("x")
    for which in ("prolog", "epilog"):
        call(root, which, tmp_path, {**JOB, "SLURM_JOB_ID": job})
    assert [path.name for path in tmp_path.iterdir()] == ["12"]


def test_a_sluid_cannot_name_another_folder(root: Path, tmp_path: Path) -> None:
    call(root, "prolog", tmp_path / "jobs", {**JOB, "SLURM_JOB_SLUID": "../x"})
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["12"]


@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=60))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_value_forges_a_line(root: Path, tmp_path: Path, value: str) -> None:
    """The user chooses working directory and output; whatever they hold, all other fields stay Slurm's."""
    path = f"/x{value}\ngpus=7\nwhole\n"
    call(root, "prolog", tmp_path, {**JOB, "SLURM_JOB_WORK_DIR": path, "SLURM_JOB_STDOUT": path})
    (file,) = files(tmp_path)
    assert (file.job_id, file.gpus, file.user) == ("12", (0, 1), "ann")
    assert file.work_dir is not None
    assert file.work_dir.startswith("/x")


LINE_ENDS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize("end", LINE_ENDS, ids=[f"U+{ord(end):04X}" for end in LINE_ENDS])
def test_a_job_without_gpus_cannot_give_itself_any(root: Path, tmp_path: Path, end: str) -> None:
    """Nothing stands before the forged lines then: all that any reader might take for the end of a line is tried."""
    job = {name: value for name, value in JOB.items() if "GPUS" not in name and "DEVICES" not in name}
    path = f"/x{end}gpus=7{end}devices=7{end}account=root{end}"
    said = dict.fromkeys(("SLURM_JOB_NAME", "SLURM_JOB_WORK_DIR", "SLURM_JOB_STDOUT", "SLURM_JOB_STDERR"), path)
    call(root, "prolog", tmp_path, {**job, **said})
    (file,) = files(tmp_path)
    assert (file.job_id, file.user, file.gpus, file.devices, file.account) == ("12", "ann", (), (), None)
    assert file.work_dir is not None
    assert file.work_dir.startswith("/x")


@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
def test_control_characters_do_not_reach_the_file(root: Path, tmp_path: Path, shell: str) -> None:
    """In each shell that is some system's sh; what users write in their own language stays as it is."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    controls = "".join(map(chr, (*range(1, 32), 127)))
    work_dir = f"/ä  b{controls}c\u2028 é\\n*"
    script = str(root / "deploy" / "slurm" / "opsk-prolog")
    subprocess.run(
        [program, "--posix", script] if shell == "bash" else [program, script],
        env={**JOB, "OPSK_JOBS_FOLDER": str(tmp_path), "SLURM_JOB_WORK_DIR": work_dir, "LC_ALL": "C.UTF-8"},
        check=True, timeout=60,
    )  # fmt: skip
    text = (tmp_path / "12.sEX4MPLE000001").read_text(encoding="utf-8")
    assert not set(controls) - {"\n"} & set(text)
    (line,) = [line for line in text.split("\n") if line.startswith("work_dir=")]
    assert line.startswith("work_dir=/ä  b ")
    assert line.endswith(" c\u2028 é\\n*")


@pytest.mark.parametrize("obstacle", ["file", "missing-parent"])
def test_where_nothing_can_be_written_nothing_fails(root: Path, tmp_path: Path, obstacle: str) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "below" if obstacle == "missing-parent" else tmp_path / "file"
    for which in ("prolog", "epilog"):
        call(root, which, folder, JOB)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_prolog_that_is_killed_leaves_nothing_that_is_believed(
    root: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """It is stopped before the last line; one that is told to end ends with 0."""
    slow, folder, ready = tmp_path / "opsk-prolog", tmp_path / "jobs", tmp_path / "ready"
    text = (root / "deploy" / "slurm" / "opsk-prolog").read_text()
    slow.write_text(text.replace("echo 'whole'", f": >{ready}; read -r never; echo 'whole'").replace("</dev/null ", ""))
    slow.chmod(0o755)
    with subprocess.Popen(
        [str(slow)], env={**JOB, "OPSK_JOBS_FOLDER": str(folder)}, stdin=subprocess.PIPE
    ) as process:  # fmt: skip
        eventually(ready.exists, bool)
        process.send_signal(number)
        status = process.wait(timeout=30)
    assert status == (0 if number == signal.SIGTERM else -number)
    found = read_job_files(folder, time.time() + 60)
    assert (found.files, found.torn) == ((), 1)
    call(root, "epilog", folder, JOB)
    assert list(folder.iterdir()) == []


def test_the_folder_is_made_at_boot_where_the_scripts_write(root: Path, tmp_path: Path) -> None:
    """It is root's, and lies in nobody's folder: who owns a folder can put a link in place of what is in it."""
    line = (root / "deploy" / "tmpfiles.d" / "opsk-jobs.conf").read_text().splitlines()[-1].split()
    assert line == ["d", "/run/opsk-jobs", "0755", "root", "root", "-"]
    assert Settings().jobs_folder == Path(line[1])
    for which in ("prolog", "epilog"):
        assert f"${{OPSK_JOBS_FOLDER:-{line[1]}}}" in (root / "deploy" / "slurm" / f"opsk-{which}").read_text()
    program = shutil.which("systemd-tmpfiles")
    if program is None:
        pytest.skip("systemd-tmpfiles (Debian package systemd) is not installed")
    done = subprocess.run(
        [program, f"--root={tmp_path}", "--create", str(root / "deploy" / "tmpfiles.d" / "opsk-jobs.conf")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if "Operation not permitted" in done.stderr:
        pytest.skip(f"systemd-tmpfiles may not change owners here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "opsk-jobs").stat().st_mode & 0o777 == 0o755
