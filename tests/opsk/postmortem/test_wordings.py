"""Does each program's own wording, of old and new releases, lead to the right class and place; and scary words to none?

The lines are written after the programs' sources (PyTorch 1.8 to 2.9, NCCL 2.11 to 2.28, Slurm, Open MPI, UCX, Linux),
with values of our own. What is expected is what the wording means.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import Evidence, FailureClass, Report

# ruff: noqa: E501 -- lines are quoted as programs print them
RAISED = 'Traceback (most recent call last):\n  File "/opt/train.py", line 812, in <module>\n    loss = step()\n'
ENDED = "[after training is done] datetime: 2025-06-11 11:00:00\n"


def steps(first: int, last: int, loss: str = "2.3E+00") -> str:
    """Return lines of Megatron-LM, one a second."""
    return "".join(
        f" [2025-06-11 10:{at // 60:02d}:{at % 60:02d}.123456] iteration {at:8d}/  500000 | consumed samples: {at * 256:12d} |"
        f" elapsed time per iteration (ms): 1234.5 | global batch size:   256 | lm loss: {loss} | grad norm: 0.812 |\n"
        for at in range(first, last + 1)
    )


def read(folder: Path, text: str) -> tuple[Evidence, Report]:
    log = folder / "job.log"
    log.write_text(text)
    evidence = read_logs([LogFile(path=log)], processes=1)
    return evidence, explain(evidence)


def wd(rank: int, work: str, said: str = "Watchdog caught collective operation timeout: ", before: str = "") -> str:
    who = before or f"[E ProcessGroupNCCL.cpp:566] [Rank {rank}] "
    return f"{who}{said}{work} ran for 600123 milliseconds before timing out.\n"


NEW = "WorkNCCL(SeqNum=44, OpType={op}, NumelIn=5, NumelOut=5, Timeout(ms)=600000)"
WATCHDOGS: dict[str, tuple[str, set[tuple[int, int | None, str]]]] = {
    "1.8, with shapes": (wd(1, "WorkNCCL(OpType=BROADCAST, TensorShape=[1], Timeout(ms)=600000)"), {(1, None, "BROADCAST")}),
    "1.10, no sequence": (wd(1, "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=600000)"), {(1, None, "ALLREDUCE")}),
    "1.13": (wd(1, "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000)"), {(1, 7, "ALLREDUCE")}),
    "2.2": (wd(1, NEW.format(op="_ALLGATHER_BASE")), {(1, 44, "_ALLGATHER_BASE")}),
    "shapes and more": (wd(1, "WorkNCCL(SeqNum=7, OpType=SEND, NumelIn=5, NumelOut=5, Shapes=[[4], [2]], Timeout(ms)=1)"), {(1, 7, "SEND")}),
    "process group named": (wd(3, NEW.format(op="RECV"), before="[rank3]:[E326 12:34:56.123 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank 3] "), {(3, 44, "RECV")}),
    "no rank but the label": (wd(9, NEW.format(op="RECV"), before="9: [rank9]:[E211 16:12:38.0 ProcessGroupNCCL.cpp:697] "), {(9, 44, "RECV")}),
    "what() of C++": (f"  what():  [PG 3 Rank 5] Process group watchdog thread terminated with exception: [Rank 5] {wd(5, NEW.format(op='GATHER'), before=' ')}", {(5, 44, "GATHER")}),
    "blocking wait, old": (RAISED + f"RuntimeError: [Rank 3] Caught collective operation timeout: {NEW.format(op='BARRIER')} ran for 600123 milliseconds before timing out.\n", {(3, 44, "BARRIER")}),
    "blocking wait": (RAISED + f"torch.distributed.DistBackendError: [Rank 3] Work {NEW.format(op='BARRIER')} timed out in blocking wait (TORCH_NCCL_BLOCKING_WAIT=1).\n", {(3, 44, "BARRIER")}),
    "another device": (wd(3, "WorkHCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=1800000)", before="[rank3]:[E324 13:00:25.4 compiler_depend.ts:574] [Rank 3] "), {(3, 5, "ALLREDUCE")}),
    "mpirun's labels": ("".join(f"[1,{rank}]<stderr>:{wd(rank, NEW.format(op='ALLTOALL_BASE'))}" for rank in (2, 3)), {(2, 44, "ALLTOALL_BASE"), (3, 44, "ALLTOALL_BASE")}),
    "ranks glued together": ("".join(wd(rank, NEW.format(op="REDUCE"), before=f"[rank{rank}]:[E326 12:34:56.1 ProcessGroupNCCL.cpp:616] [Rank {rank}] ").rstrip("\n") for rank in (1, 2)) + "\n", {(1, 44, "REDUCE"), (2, 44, "REDUCE")}),
    "behind a progress bar": ("  6%|6 | 320/5001 [6:28:43<94:39:17,  1.37it/s, loss=2.6]" + wd(4, NEW.format(op="COALESCED")), {(4, 44, "COALESCED")}),
    "cut off": ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=44, OpType=GATHER, NumelIn=5, Num", {(1, 44, "GATHER")}),
    "quoted in prose": (f"```\n> {wd(0, NEW.format(op='ALLREDUCE'))}```\n", {(0, 44, "ALLREDUCE")}),
}  # fmt: skip


@pytest.mark.parametrize("name", WATCHDOGS)
def test_watchdogs_of_all_releases_are_read(tmp_path: Path, name: str) -> None:
    text, expected = WATCHDOGS[name]
    evidence, report = read(tmp_path, text)
    found = {
        (finding.place.rank, int(finding.fields["seq"]) if "seq" in finding.fields else None, finding.fields["op"])
        for finding in evidence.findings
        if finding.signature == "torch.watchdog_timeout"
    }
    assert found == expected
    assert report.root is not None
    assert report.root.failure == "collective_hang"


_TORCHRUN = "Root Cause (first observed failure):\n[0]:\n  time      : 2025-06-11_10:00:01\n  host      : n3\n  rank      : 11 (local_rank: 3)\n  exitcode  : -11 (pid: 103)\n  error_file: <N/A>\n  traceback : Signal 11 (SIGSEGV) received by PID 103\n"
_CANCELLED = "slurmstepd: error: *** STEP 47.0 ON n1 CANCELLED AT 2025-06-11T10:35:36 ***\n"
CAUSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "OOM of a bare call": ("RuntimeError: CUDA error: out of memory\n", "gpu_memory", {}),
    "OOM of JAX": (RAISED + "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 24.00GiB (25769803776B) on device ordinal 0\n", "gpu_memory", {}),
    "OOM of numpy": (RAISED + "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB for an array with shape (100000, 1000000)\n", "host_memory", {}),
    "Slurm's OOM, one task": (steps(1, 3) + "slurmstepd: error: Detected 1 oom-kill event(s) in step 34.0 cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.\nsrun: error: n07: task 4: Out Of Memory\nsrun: Terminating job step 34.0\n" + _CANCELLED, "host_memory", {"node": "n07", "rank": 4}),
    "Slurm's OOM, stepd names its node": ("slurmstepd-gpu20-15: error: Detected 1 oom-kill event(s) in StepId=94.0. Some of your processes may have been killed by the cgroup out-of-memory handler.\nsrun: error: gpu20-15: task 0: Out Of Memory\n", "host_memory", {"node": "gpu20-15", "rank": 0}),
    "time limit, no node": ("slurmd[n01]: error: *** JOB 4711 CANCELLED AT 2012-06-11T10:10:00 DUE TO TIME LIMIT ***\n", "time_limit", {}),
    "node failure": (steps(1, 9) + "srun: error: Node failure on n07\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n" + _CANCELLED, "node", {"node": "n07"}),
    "a node cannot start tasks": ("srun: error: Task launch for StepId=4711.0 failed on node n03: Communication connection failure\nsrun: error: Application launch failed: Communication connection failure\n", "node", {"node": "n03"}),
    "mpirun's signal": ("mpirun noticed that process rank 5 with PID 4242 on node n03 exited on signal 11 (Segmentation fault).\n", "software", {"rank": 5, "node": "n03"}),
    "prterun's signal": ("prterun noticed that process rank 5 with PID 4242 on node n03 exited on\nsignal 11 (Segmentation fault).\n", "software", {"rank": 5, "node": "n03"}),
    "torchrun's signal": (steps(1, 9) + _TORCHRUN, "software", {"rank": 11, "node": "n3"}),
    "mpirun lost a node": ("ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[26135,0],0] on node n01\n  Remote daemon: [[26135,0],3] on node n04\n", "node", {"node": "n04"}),
    "no PMIx": ("srun: error: cannot create mpi context for mpi/pmix\nsrun: error: invalid MPI type 'pmix', --mpi=list for acceptable types\n", "config", {}),
    "no image": ("slurmstepd: error: pyxis: failed to import docker image\nslurmstepd: error: pyxis: couldn't start container\nsrun: error: n3: task 0: Exited with exit code 1\n", "config", {}),
    "hub": (RAISED + "OSError: We couldn't connect to 'https://huggingface.co' to load the files. Please check your connection and try again.\n", "config", {}),
    "hub by requests": (RAISED + "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded (Caused by NewConnectionError('[Errno 101] Network is unreachable'))\n", "config", {}),
    "hydra": ("Could not override 'trainer.devces'.\nKey 'devces' is not in struct\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n", "config", {}),
    "settings are no JSON": (RAISED + "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 3 column 5 (char 41)\n", "config", {}),
    "store barrier": (RAISED + "RuntimeError: Timed out initializing process group in store based barrier on rank: 3, for key: store_based_barrier_key:1 (world_size=16, worker_count=12, timeout=0:30:00)\n", "rendezvous", {}),
    "IB, 2.11": ("n05:1234:1300 [3] transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129\n", "fabric", {"node": "n05"}),
    "IB, 2.28": ("[2025-09-11 10:00:00] n05:1234:1300 [3] p2p.cc:404 NCCL WARN NET/IB: Got completion from peer 10.0.0.7<481> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 localGid ::ffff:1.2.3.4 hca mlx5_2\n", "fabric", {"node": "n05", "hca": "mlx5_2"}),
    "IB device": ("n05:1234:1300 [3] NCCL WARN NET/IB : mlx5_3:1 async fatal event: local catastrophic error\n", "fabric", {"node": "n05", "hca": "mlx5_3"}),
    "UCX": ("[1749636000.123456] [n05:4242 :0]    ib_mlx5_log.c:171  UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81)\n", "fabric", {"node": "n05", "hca": "mlx5_0"}),
    "UCX segfault": ("[n05:4242 :0:4242] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)\n", "software", {"node": "n05"}),
    "data loader crashed": (steps(1, 9) + RAISED + "RuntimeError: DataLoader worker (pid 42) is killed by signal: Segmentation fault. \n", "software", {}),
    "torch.save on a full disk": (steps(1, 9) + RAISED + "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 64 vs 0\n", "storage", {}),
    "fabric manager": (RAISED + "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized\n", "nvlink", {}),
    "NaN, new Megatron": (steps(1, 9) + RAISED + "RuntimeError: Rank 13, node n03, device 5, iteration 9: Unexpected result nan (message='found NaN in local forward loss calculation')\n", "numeric", {"node": "n03", "rank": 13}),
    "NaN, gradients": (steps(1, 9) + RAISED + "AssertionError: Rank 13: found NaN in local grad norm in backward pass before data-parallel communication collective. Device: 5, node: n03\n", "numeric", {"node": "n03", "rank": 13}),
    "NaN goes on": (steps(1, 9) + steps(10, 15, "nan"), "numeric", {}),
    "NaN on the wire": ("/tmp/NanCheck.cu:235: checkForNaN: block: [0,0,0], thread: [0,0,0] Assertion `!isnan(tailPtr[threadIdx.x])` failed.\n[rank3]: RuntimeError: CUDA error: device-side assert triggered\n", "numeric", {}),
    "another rank's dump": ("[rank1]:[E326 12:34:56.1 ProcessGroupNCCL.cpp:1316] [PG 0 (default_pg) Rank 1] Received a dump signal due to a collective timeout from rank 3 and we will try our best to dump the debug info.\n", "collective_hang", {}),
    "NFS, by the kernel": ("Jun 11 10:00:00 n17 kernel: nfs: server nas1 not responding, still trying\nJun 11 10:05:00 n17 kernel: INFO: task python:4242 blocked for more than 120 seconds.\n", "storage", {"node": "n17"}),
    "Lustre, by the kernel": ("Jun 11 10:00:01 n17 kernel: LustreError: 167-0: scratch-OST0012-osc: This client was evicted by scratch-OST0012; in progress operations using this service will fail.\n", "storage", {"node": "n17"}),
    "GPFS, by its daemon": ("Jun 11 10:00:00 n17 mmfs: [E] Lost membership in cluster gpfs.site. Unmounting file systems.\nJun 11 10:00:01 n17 kernel: Buffer I/O error on dev nvme0n1, logical block 0\n", "storage", {"node": "n17"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_a_wording_leads_to_class_and_place(tmp_path: Path, name: str) -> None:
    text, failure, where = CAUSES[name]
    _, report = read(tmp_path, text)
    assert report.root is not None
    assert report.root.failure == failure
    assert {name: getattr(report.root.where, name) for name in where} == where


HEALTHY = {
    "settings": "  check_for_nan_in_loss_and_grad ................. True\n  error_injection_rate ..... 0\n" + steps(1, 20) + ENDED,
    "NCCL's noise": "n05:1234:1300 [3] NCCL WARN NET/IB : Unable to open library libibverbs.so[.1]\nn05:1:2 [3] NCCL INFO NET/IB : mlx5_3:1 Got async event : GID table change\n" + steps(1, 20),
    "an error that was survived": steps(1, 5) + RAISED + "RuntimeError: CUDA error: uncorrectable ECC error encountered\nrestarting on a spare node\n" + steps(6, 60),
    "text of a user": steps(1, 5) + "sample 3: 'My GPU says CUDA out of memory, also Segmentation fault (core dumped), No space left on device'\n" + steps(6, 20),
    "text of a user, at the end": steps(1, 5) + "generated: The error 'No space left on device' means that the disk is full.\n",
    "retried S3": steps(1, 5) + "botocore.exceptions.EndpointConnectionError: Could not connect: retrying in 4 s (attempt 2 of 10)\n" + steps(6, 9) + ENDED,
    "ignored at Python's end": steps(1, 9) + ENDED + "Exception ignored in atexit callback: <function x>\n" + RAISED + "KeyError: 3\n",
    "another port": "OSError: [Errno 98] Address already in use: could not bind to port 6006, continuing on 6007\n",
    "chdir": "slurmstepd: error: couldn't chdir to `/home/u/x': No such file or directory: going to /tmp instead\n" + steps(1, 9),
    "a step that srun cancels": "srun: error: mpi/pmix_v4: _errhandler: n3 [1]: pmixp_client_v2.c:212: Error handler invoked: status = -25\n" + _CANCELLED,
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_scary_words_are_no_cause(tmp_path: Path, name: str) -> None:
    _, report = read(tmp_path, HEALTHY[name])
    assert report.root is None


def test_a_log_with_dates_and_two_words_is_no_journal(tmp_path: Path) -> None:
    """Python's ``asctime - name - level - message`` is near to what syslog writes; torchtitan logs so."""
    text = "".join(
        f"{rank}: 2025-03-04 00:44:{at:02d},441 - root - INFO - step: {at}  loss:  3.4370  tps: 6,785  mfu: 39.73%\n"
        for at in range(1, 30)
        for rank in (0, 1)
    )
    evidence, _ = read(
        tmp_path, text + wd(1, NEW.format(op="ALLREDUCE"), before="1: [rank1]:[E304 00:59:00.1 x.cpp:1] ")
    )
    assert {each.last_iteration for each in evidence.ranks} - {None} == {29}
    assert "torch.watchdog_timeout" in {finding.signature for finding in evidence.findings}


def test_words_of_progress_in_other_lines_move_no_iteration(tmp_path: Path) -> None:
    """Settings before the first step and megabytes of tracebacks behind the last have the words, and are no steps."""
    before = "".join(f"  loss_scale_{at} iteration .......... {at}\n" for at in range(20_000))
    behind = "".join(f"  File '/opt/train.py', line {at}: loss = step() # iteration\n" for at in range(120_000))
    evidence, _ = read(tmp_path, before + steps(31, 3031) + behind)
    (rank,) = evidence.ranks
    assert (rank.first_iteration, rank.last_iteration) == (31, 3031)
    assert rank.last_progress_order == len(before + steps(31, 3030))


def test_numbers_in_names_are_ranks_where_every_log_that_tells_agrees(tmp_path: Path) -> None:
    """The rank for which all others wait is silent, so its own log tells no rank: the others' names vouch for its."""
    logs = []
    for rank in range(8):
        said = wd(
            rank, NEW.format(op="ALLREDUCE"), before=f"[rank{rank}]:[E611 10:10:21.{rank} x.cpp:1] [Rank {rank}] "
        )
        log = tmp_path / f"job_{rank}.out"
        log.write_text(steps(1, 20) + ("" if rank == 5 else said))
        logs.append(LogFile(path=log))
    report = explain(read_logs(logs, processes=1))
    assert report.root is not None
    assert (report.root.failure, report.root.where.rank) == ("collective_hang", 5)


def test_numbers_in_names_are_no_ranks_where_one_log_says_otherwise(tmp_path: Path) -> None:
    logs = []
    for number in range(4):
        log = tmp_path / f"attempt_{number}.log"
        log.write_text(wd(number % 2, NEW.format(op="ALLREDUCE")) if number else steps(1, 20))
        logs.append(LogFile(path=log))
    assert all(each.rank is None for each in read_logs(logs, processes=1).ranks if each.last_iteration is not None)


def test_years_that_lines_do_not_tell_are_those_of_the_job(tmp_path: Path) -> None:
    """glog and syslog write no year; a copied file's own time is that of the copy, here now."""
    (tmp_path / "rank_7.log").write_text(steps(1, 20))
    (tmp_path / "rank_3.log").write_text(wd(3, NEW.format(op="SEND"), before="[rank3]:[E611 10:10:21.5 x.cpp:1] "))
    (tmp_path / "n3.dmesg").write_text("Jun 11 10:00:30 n3 kernel: mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN\n")
    evidence = read_logs([LogFile(path=path) for path in sorted(tmp_path.iterdir())], processes=1)
    start_s = datetime(2025, 6, 11, 10, tzinfo=UTC).timestamp()
    assert sorted(finding.time_s - start_s for finding in evidence.findings if finding.time_s) == pytest.approx(
        [30, 621.5]
    )


def test_who_did_not_come_is_told_though_it_told_of_a_failure(tmp_path: Path) -> None:
    """Rank 2 says why it left; the others wait for it. Without numbers too, as PyTorch 1.12 writes."""
    for work in (NEW.format(op="SEND"), "WorkNCCL(OpType=SEND, Timeout(ms)=600000)"):
        waits = "".join(wd(rank, work) for rank in (0, 1, 3, 4, 5))
        _, report = read(
            tmp_path, waits + "[rank2]: ncclRemoteError: remote process exited or there was a network error\n"
        )
        assert report.divergence is not None
        assert (report.divergence.waiting, report.divergence.never_arrived) == ((0, 1, 3, 4, 5), (2,))
        assert report.divergence.seq == (44 if "SeqNum" in work else None)


def test_a_failure_without_a_cause_says_what_is_missing(tmp_path: Path) -> None:
    _, report = read(
        tmp_path, steps(1, 3) + "/var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed   ngrok http 80\n"
    )
    assert (report.state, report.root) == ("failed", None)
    assert {each.what for each in report.missing} >= {"Slurm's record of the job", "kernel logs of the job's nodes"}
    assert any("a process was killed" in moment.what for moment in report.timeline)


def test_what_stands_behind_the_last_step_was_not_survived_whatever_clocks_say(tmp_path: Path) -> None:
    """The launcher's clock is of another zone, hours before that of the steps."""
    end = "E0611 02:00:01.000000 140 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: 1) local_rank: 3\n"
    raised = "".join(f"[rank3]: {line}\n" for line in (RAISED + "ValueError: batch has no labels").splitlines())
    _, report = read(tmp_path, steps(1, 9) + raised + end)
    assert report.root is not None
    assert "batch has no labels" in report.root.what


KERNEL_LINES = {
    "pdsh": "n1: [Wed Jun 11 10:00:00 2025] NVRM: Xid (PCI:0000:0a:00): 48, pid=1, DBE\n",
    "dmesg's ISO form": "2025-06-11T10:00:00,123456+00:00 NVRM: Xid (PCI:0000:0a:00): 48, pid=1, DBE\n",
    "a record": "3,1234,5678901,-;NVRM: Xid (PCI:0000:0a:00): 48, pid=1, DBE\n",
    "the caller's CPU": "[  100.123456][    C3] NVRM: Xid (PCI:0000:0a:00): 48, pid=1, DBE\n",
    "rsyslog": "2025-06-11T10:00:00.123456+02:00 n1 kernel: NVRM: Xid (PCI:0000:0A:00.0): 48, pid=1, DBE\r\n",
}


@pytest.mark.parametrize("name", KERNEL_LINES)
def test_a_kernel_log_of_any_form_is_the_kernels(tmp_path: Path, name: str) -> None:
    evidence, report = read(tmp_path, KERNEL_LINES[name])
    assert {(finding.fields["pci"].partition(".")[0], finding.fields["code"]) for finding in evidence.findings} == {
        ("0000:0a:00", "48")
    }
    assert report.root is not None
    assert report.root.failure == "gpu_hardware"


def test_each_xid_of_a_line_that_lists_several_is_shown(tmp_path: Path) -> None:
    text = (
        "Xid errors: NVRM: Xid (PCI:0000:0a:00): 79, GPU has fallen off the bus., NVRM: Xid (PCI:0000:0b:00): 48, DBE\n"
    )
    evidence, report = read(tmp_path, text)
    assert {finding.fields["code"] for finding in evidence.findings if finding.signature == "kernel.xid"} == {
        "79",
        "48",
    }
    assert report.root is None


COLLECTED = {
    "Kubernetes": "2025-06-11T10:00:00.123456789Z stderr F {line}",
    "kubectl": "2025-06-11T10:00:00.123456789Z {line}",
    "YARN": "2019-06-02T16:13:44.884Z: [1,12]<stdout>:{line}",
    "a zone": "2025-11-09 15:39:31.043 +08:00 {line}",
}


@pytest.mark.parametrize("name", COLLECTED)
def test_times_that_a_collector_wrote_before_every_line_hide_nothing(tmp_path: Path, name: str) -> None:
    rank = "" if name == "YARN" else "[rank12]: "
    raised = RAISED + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB."
    _, report = read(tmp_path, "".join(COLLECTED[name].format(line=rank + line) + "\n" for line in raised.splitlines()))
    assert report.root is not None
    assert (report.root.failure, report.root.where.rank) == ("gpu_memory", 12)
    software = RAISED + "ValueError: batch has no labels"
    _, report = read(
        tmp_path, "".join(COLLECTED[name].format(line=rank + line) + "\n" for line in software.splitlines())
    )
    assert report.root is not None
    assert (report.root.failure, report.root.where.rank) == ("software", 12)
    nccl = "n05:815:864 [0] transport/net_ib.cu:80 NCCL WARN NET/IB : Got async event : local catastrophic error"
    _, report = read(tmp_path, COLLECTED[name].format(line=nccl) + "\n")
    assert report.root is not None
    assert (report.root.failure, report.root.where.node) == ("fabric", "n05")


@pytest.mark.parametrize(
    "ended", ["tasks 14-15: Exited with exit code 1", "tasks 2,5: Segmentation fault (core dumped)"]
)
def test_what_srun_cleans_up_is_not_cancelled_by_somebody(ended: str, tmp_path: Path) -> None:
    path = tmp_path / "slurm-1.out"
    path.write_text(
        f"srun: error: n2: {ended}\nsrun: launch/slurm: _step_signal: Terminating StepId=1.0\n"
        "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-01-05T11:00:08 ***\n"
    )
    report = explain(read_logs([LogFile(path=path)], processes=1))
    assert report.root is None or report.root.failure is not FailureClass.CANCELLED
    assert not any("somebody cancelled" in moment.what for moment in report.timeline)


def test_an_xid_that_names_an_earlier_one_is_of_the_class_of_that_one(tmp_path: Path) -> None:
    """The ring buffer had lost Xid 145 itself: NVIDIA/open-gpu-kernel-modules, issue 1150."""
    text = "".join(
        f"Jun 11 10:00:0{at} n1 kernel: NVRM: Xid (PCI:0000:{pci}:00): 45, pid=18{at}, name=python3, Ch 0000000c caused by previous Xid {code}\n"
        for at, (pci, code) in enumerate((("dc", 149), ("ed", 145), ("ba", 145)))
    )
    evidence, report = read(tmp_path, text)
    assert {(finding.fields["code"], finding.fields["seen"]) for finding in evidence.findings} == {
        ("149", "45"),
        ("145", "45"),
    }
    assert report.root is not None
    assert (report.root.failure, report.root.where.node) == ("nvlink", "n1")


STUCK = {
    "NFS": ("rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]", "storage"),
    "Lustre": ("ptlrpc_set_wait+0x5f1/0x760 [ptlrpc]", "storage"),
    "GPFS": ("cxiWaitEventWait+0x1d1/0x200 [mmfslinux]", "storage"),
    "XFS": ("xlog_grant_head_wait+0x9c/0x1d0 [xfs]", "storage"),
    "FUSE": ("request_wait_answer+0x135/0x200 [fuse]", "storage"),
}


@pytest.mark.parametrize("name", STUCK)
def test_a_hung_task_is_of_the_file_system_that_its_stack_names(name: str, tmp_path: Path) -> None:
    call, failure = STUCK[name]
    stack = ("__schedule+0x2d0/0x8a0", "schedule+0x4e/0xb0", call, "ksys_write+0x61/0xe0")
    text = "Jun 11 10:00:00 n17 kernel: INFO: task python:4242 blocked for more than 120 seconds.\n" + "".join(
        f"Jun 11 10:00:00 n17 kernel:  {each}\n" for each in ("Call Trace:", *stack)
    )
    _, report = read(tmp_path, text)
    assert report.root is not None
    assert (report.root.failure, report.root.where.node) == (failure, "n17")


def test_what_python_ignores_is_no_failure_though_another_rank_writes_in_between(tmp_path: Path) -> None:
    text = "4: Exception ignored in: <function _ConnectionBase.__del__ at 0x7f>\n5: DEBUG: queue depth 4\n" + "".join(
        f"4: {line}\n" for line in (RAISED + "OSError: [Errno 9] Bad file descriptor").splitlines()
    )
    _, report = read(tmp_path, steps(1, 9) + text)
    assert report.root is None
