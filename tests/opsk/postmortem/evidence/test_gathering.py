"""What is known of a job is joined from all places; each of them may be missing, and that is told."""

from __future__ import annotations

import json
import os
import pickle
import pwd
import time
from pathlib import Path

import pytest

from opsk.errors import InputError, SlurmError
from opsk.job_key import JobKey
from opsk.postmortem.evidence.gathering import EvidenceSources, gather_job
from opsk.postmortem.evidence.node_files import FORM, list_job_folders, read_node_files
from opsk.postmortem.evidence.slurm_facts import find_node_reasons
from opsk.postmortem.logs import LogFile
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import FailureClass, Role
from opsk.slurm.commands.accounting import AccountedRun, AccountedStep, AccountingClient, NodeReason
from opsk.slurm.records import JobRecord

ME = pwd.getpwuid(os.getuid()).pw_name


class Accounting(AccountingClient):
    """Answers what it was given."""

    def __init__(
        self, *runs: AccountedRun, reasons: tuple[NodeReason, ...] = (), problem: Exception | None = None
    ) -> None:
        super().__init__(environment={})
        self._runs, self._reasons, self._problem = runs, reasons, problem

    def runs(self, job_id: str, *, is_number: bool = False) -> tuple[AccountedRun, ...]:
        if self._problem is not None:
            raise self._problem
        if not self._runs:
            raise InputError(f"Slurm's accounting knows no job {job_id}")
        return self._runs

    def node_reasons(self, nodes: object) -> tuple[NodeReason, ...]:
        if self._problem is not None:
            raise self._problem
        return self._reasons


class Controller:
    """Remembers one job, and nothing else can be asked of it."""

    def __init__(self, job: JobRecord | None = None) -> None:
        self._job = job

    def job(self, job_id: str) -> JobRecord:
        if self._job is None:
            raise InputError(f"Slurm knows no job {job_id}")
        return self._job

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        raise AssertionError

    def nodes(self) -> tuple[()]:
        raise AssertionError

    def release(self) -> tuple[int, int]:
        raise AssertionError

    def config(self) -> dict[str, str]:
        return {"ClusterName": "east"}


def run(folder: Path, **more: object) -> AccountedRun:
    facts: dict[str, object] = {
        "id": 77, "label": "77", "user": ME, "uid": os.getuid(), "state": "FAILED", "exit_code": 1,
        "nodes": ("n0", "n1"), "start_s": 1000.0, "end_s": 2000.0, "work_dir": str(folder), "std_out": "out-%j.txt",
    }  # fmt: skip
    return AccountedRun(**{**facts, **more})  # type: ignore[arg-type]


def node_file(folder: Path, **more: object) -> None:
    (folder / "77").mkdir(parents=True, exist_ok=True)
    said = {"form": FORM, "node": "n1", "from_s": 900.0, "until_s": 2000.0, "boot_unix_s": 0.0, "start": {}, "end": {}}
    (folder / "77" / "n1@1000.json").write_text(json.dumps({**said, **more}))


def test_slurm_output_nodes_and_dumps_are_joined(tmp_path: Path) -> None:
    (tmp_path / "out-77.txt").write_text("step\nRuntimeError: CUDA error: an illegal memory access was encountered\n")
    node_file(
        tmp_path / "kept",
        kernel={
            "lines": ["3,1,1900000000,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."], "source": "kmsg",
            "problem": "",
        },
    )  # fmt: skip
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"entries": []}))
    asked = EvidenceSources(job_id="77", folder=tmp_path / "kept", recorder=(tmp_path / "nccl_trace_rank_0",))
    found = gather_job(asked, accounting=Accounting(run(tmp_path)), client=Controller())
    assert {"sacct", "logs", "kernel_log", "flight_recorder", "node_files"} <= set(found.gathered)
    assert found.gathered["kernel_log"] == "1 of 2 nodes"
    report = explain(found)
    assert report.root is not None
    assert (report.root.failure, report.root.where.node) == (FailureClass.GPU_HARDWARE, "n1")
    assert found.job is not None
    assert (found.job.user, found.job.state) == (ME, "FAILED")


def test_memory_of_a_step_ran_out_though_the_job_only_failed() -> None:
    """Slurm 24.11 on a real OOM in an srun step: job FAILED, step OUT_OF_MEMORY 0:125."""
    steps = (AccountedStep(id="0", state="OUT_OF_MEMORY", exit_code=0, exit_signal=125, nodes=("n1",), end_s=1990.0),)
    found = gather_job(
        EvidenceSources(job_id="77"), accounting=Accounting(run(Path("/nowhere"), steps=steps)), client=None
    )
    report = explain(found)
    assert report.root is not None
    assert (report.root.failure, report.root.where.node) == (FailureClass.HOST_MEMORY, "n1")


def test_without_slurmdbd_slurmctld_is_asked_and_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "slurm-77.out").write_text("MemoryError: no\n")
    job = JobRecord(id=77, label="77", user=ME, name="x", state="FAILED", nodes=("n0",), work_dir=str(tmp_path),
                    std_out=str(tmp_path / "slurm-77.out"), exit_code=1)  # fmt: skip
    accounting = Accounting(problem=SlurmError("sacct: Slurm accounting storage is disabled"))
    found = gather_job(EvidenceSources(job_id="77"), accounting=accounting, client=Controller(job))
    assert "scontrol" in found.gathered
    assert any("slurmctld was asked instead" in line for line in found.unreadable)
    assert found.ranks


def test_where_only_slurmctld_knew_the_output_and_is_away_the_prolog_knows_it(tmp_path: Path) -> None:
    """22.05: its accounting keeps no paths, and its prolog is not told the name that stands in one."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train-77.out").write_text("slurmstepd: error: Detected 1 oom_kill event in StepId=77.batch.\n")
    note = {"stdout": f"{tmp_path}/out/%x-%j.out", "work_dir": str(tmp_path), "user": ME, "uid": os.getuid()}
    node_file(tmp_path / "kept", note=note, logs=[])
    known = Accounting(run(tmp_path, std_out="", name="train"))
    found = gather_job(EvidenceSources(job_id="77", folder=tmp_path / "kept"), accounting=known, client=Controller())
    report = explain(found)
    assert report.root is not None
    assert report.root.failure is FailureClass.HOST_MEMORY


def test_where_slurm_knows_nothing_node_files_tell(tmp_path: Path) -> None:
    note = {"user": ME, "uid": os.getuid(), "work_dir": str(tmp_path), "stdout": "gone.txt"}
    tail = {"path": str(tmp_path / "gone.txt"), "errors": [], "tail": "OSError: [Errno 28] No space left on device\n"}
    node_file(tmp_path, note=note, logs=[tail])
    nobody = Accounting(problem=SlurmError("sacct: no answer"))
    found = gather_job(EvidenceSources(job_id="77", folder=tmp_path), accounting=nobody, client=Controller())
    report = explain(found)
    assert report.root is not None
    assert report.root.failure is FailureClass.STORAGE
    assert any("kept by the node" in finding.source for finding in found.findings)
    assert found.gathered["log_tails"] == "1 logs"


def test_a_job_of_which_nothing_is_known_is_an_error() -> None:
    with pytest.raises(InputError, match="knows no job 77"):
        gather_job(EvidenceSources(job_id="77"), accounting=Accounting(), client=Controller())


def test_logs_that_are_named_are_read_instead(tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    asked = EvidenceSources(job_id="77", logs=(LogFile(path=tmp_path / "other.log"),))
    found = gather_job(asked, accounting=Accounting(run(tmp_path)), client=Controller())
    assert [finding.signature for finding in found.findings] == ["torch.cuda_oom"]


def test_reasons_of_another_day_and_our_own_are_no_signs() -> None:
    def reason(text: str, at_s: float) -> NodeReason:
        return NodeReason(node="n1", state="DOWN", reason=text, at_s=at_s)

    told = (reason("Not responding", 1500.0), reason("Not responding", 90_000.0), reason("opsk: fabric", 1500.0),
            reason("Kill task failed", 1990.0))  # fmt: skip
    findings = find_node_reasons(told, 1000.0, 2000.0)
    assert [(finding.fields["reason"], finding.role) for finding in findings] == [
        ("Not responding", Role.ROOT),
        ("Kill task failed", Role.CONFIRMATION),
    ]


def test_the_last_checkpoint_is_told(tmp_path: Path) -> None:
    line = " [2026-11-21 02:00:0{n}] iteration {n}/ 100 | elapsed time per iteration (ms): 900.0 | lm loss: 2.1E+00 |"
    saved = "  successfully saved checkpoint from iteration {n:>7} to /x"
    text = "\n".join(line.format(n=n) + "\n" + saved.format(n=n) for n in range(1, 6))
    (tmp_path / "out-77.txt").write_text(text + "\n")
    found = gather_job(
        EvidenceSources(job_id="77"), accounting=Accounting(run(tmp_path, end_s=time.time())), client=Controller()
    )
    (saved_sign,) = [finding for finding in found.findings if finding.signature == "checkpoint.saved"]
    assert (saved_sign.fields["iteration"], saved_sign.role) == ("5", Role.PROGRESS)


def kept_by(folder: Path, name: str, node: str, cluster: str | None) -> None:
    """Let a node have kept evidence in a folder; opsk 0.1 called folders by the number alone."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    note = {} if cluster is None else {"cluster": cluster}
    said = {"form": FORM, "node": node, "from_s": 900.0, "until_s": 2000.0, "start": {}, "end": {}, "note": note}
    (folder / name / f"{node}@1000.json").write_text(json.dumps(said))


def test_evidence_of_another_clusters_job_with_this_number_is_not_believed(tmp_path: Path) -> None:
    """Both clusters keep evidence in one folder, and kept it there when folders were called by the number alone."""
    kept_by(tmp_path, "east.77", "e0", "east")
    kept_by(tmp_path, "west.77", "w0", "west")
    kept_by(tmp_path, "77", "e1", "east")
    kept_by(tmp_path, "77", "w1", "west")
    kept_by(tmp_path, "77", "x1", None)
    accounting = Accounting(run(tmp_path, cluster="east", nodes=("e0", "e1", "x1")))
    found = gather_job(EvidenceSources(job_id="77", folder=tmp_path), accounting=accounting, client=Controller())
    assert found.gathered["node_files"] == "3 of 3 nodes"
    west = Accounting(run(tmp_path, cluster="west", nodes=("w0", "w1", "x1", "w2")))
    found = gather_job(EvidenceSources(job_id="77", folder=tmp_path), accounting=west, client=Controller())
    assert found.gathered["node_files"] == "3 of 4 nodes"


def test_slurmctld_tells_the_cluster_where_the_accounting_does_not(tmp_path: Path) -> None:
    kept_by(tmp_path, "east.77", "e0", "east")
    kept_by(tmp_path, "west.77", "w0", "west")
    accounting = Accounting(run(tmp_path, nodes=("e0", "e1")))
    found = gather_job(EvidenceSources(job_id="77", folder=tmp_path), accounting=accounting, client=Controller())
    assert found.gathered["node_files"] == "1 of 2 nodes"
    assert found.job is not None
    assert found.job.cluster == "east"


def test_where_nobody_tells_the_cluster_it_is_the_only_one_or_is_asked_for(tmp_path: Path) -> None:
    kept_by(tmp_path, "west.77", "w0", "west")
    (found,) = read_node_files(list_job_folders(tmp_path, JobKey(job="77"))).files
    assert found["node"] == "w0"
    kept_by(tmp_path, "east.77", "e0", "east")
    with pytest.raises(InputError, match=r"job 77 of each of the clusters east, west") as refused:
        list_job_folders(tmp_path, JobKey(job="77"))
    assert "SLURM_CLUSTER_NAME" in refused.value.hint
