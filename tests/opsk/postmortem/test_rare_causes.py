"""Are causes that few logs have told apart: files that are not whole, fabrics that are not set up, labels that differ?"""

# ruff: noqa: E501 -- lines are laid out as programs print them
from __future__ import annotations

from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import Report

HEAD = "Traceback (most recent call last):\n"
FRAMES = '  File "/home/u/run.py", line 90, in <module>\n    main()\n  File "/home/u/run.py", line 31, in load\n    state = read(path)\n'


def explained(folder: Path, text: str) -> Report:
    path = folder / "slurm-4711.out"
    path.write_text(text)
    return explain(read_logs([LogFile(path=path)], processes=1))


def named(report: Report) -> str:
    return report.root.failure.value if report.root is not None else ""


@pytest.mark.parametrize(
    ("ended", "failure"),
    [
        ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", "storage"),
        ("safetensors_rust.SafetensorError: Error while deserializing header: header too large", "storage"),
        ("safetensors_rust.SafetensorError: File does not contain tensor lm_head.weight", "config"),
        ("RuntimeError: Error(s) in loading state_dict for GPT:\n\tsize mismatch for wte.weight", "config"),
        ("_pickle.UnpicklingError: pickle data was truncated", "storage"),
        ("_pickle.UnpicklingError: invalid load key, 'v'.", "config"),
        ("_pickle.UnpicklingError: invalid load key, '\\x00'.", "storage"),
        ("ValueError: cannot mmap an empty file", "storage"),
        ("PIL.UnidentifiedImageError: cannot identify image file '/data/a.jpg'", "storage"),
        ("lmdb.CorruptedError: mdb_get: MDB_CORRUPTED: Located page was wrong type", "storage"),
    ],
)
def test_a_file_that_is_not_whole_is_no_setting(ended: str, failure: str, tmp_path: Path) -> None:
    assert named(explained(tmp_path, f"{HEAD}{FRAMES}{ended}\n")) == failure


def test_a_fabric_manager_on_a_node_without_switches_harms_nothing(tmp_path: Path) -> None:
    says = "nv-fabricmanager: request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n"
    assert named(explained(tmp_path, says)) == ""


def test_the_head_of_another_process_s_traceback_hides_no_exception(tmp_path: Path) -> None:
    """The launcher's line before has no label: as where a log was cut, or the label came with the second line."""
    frames = "".join(f"[rank0]: {line}\n" for line in FRAMES.splitlines())
    text = f"{HEAD}{frames}[rank0]: AssertionError: number of layers (30) must be divisible by pipeline size (4)\n"
    assert named(explained(tmp_path, text)) == "config"


def test_a_retry_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    text = f"{HEAD}{FRAMES}mxnet.base.MXNetError: cudaMalloc retry failed: out of memory\n"
    assert named(explained(tmp_path, text)) == "gpu_memory"


def test_the_adapter_s_driver_is_no_node(tmp_path: Path) -> None:
    report = explained(tmp_path, "mlx5: gpu012: got completion with error:\n00000000 00008813 10012abe 0dd0c1d3\n")
    assert report.root is not None
    assert (named(report), report.root.where.node) == ("fabric", "gpu012")


def test_of_mpi_that_could_not_start_nothing_is_sure_but_what_stands_around_it(tmp_path: Path) -> None:
    says = "It looks like MPI runtime init failed for some reason; your parallel process is\nlikely to abort.\n"
    report = explained(tmp_path, says)
    assert report.root is not None
    assert (named(report), report.root.confidence < 0.6) == ("config", True)
    device = "n05:1234:1300 [3] NCCL WARN NET/IB : mlx5_3:1 async fatal event: local catastrophic error\n"
    assert named(explained(tmp_path, device + says)) == "fabric"


def test_the_processes_that_jax_missed_are_named(tmp_path: Path) -> None:
    says = "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0. # of tasks that reached the barrier: 4/8. The first task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:\n"
    tasks = "".join(f"/job:jax_worker/replica:0/task:{task}\n" for task in (6, 2, 3, 1))
    report = explained(tmp_path, f"{HEAD}{FRAMES}{says}{tasks}")
    assert report.root is not None
    assert report.root.what.endswith("processes 1-3, 6 did not come")


@pytest.mark.parametrize(
    ("joined", "words"),
    [(12, "12 of 16 had come"), (32, "32 came where 16 were expected, those of an earlier start among them")],
)
def test_how_many_ranks_had_come_is_said(joined: int, words: str, tmp_path: Path) -> None:
    says = f"RuntimeError: Timed out initializing process group in store based barrier on rank: 6, for key: store_based_barrier_key:1 (world_size=16, worker_count={joined}, timeout=0:30:00)\n"
    report = explained(tmp_path, f"{HEAD}{FRAMES}{says}")
    assert report.root is not None
    assert report.root.what.endswith(words)


def test_a_node_is_not_drained_for_what_both_ends_may_have_done(tmp_path: Path) -> None:
    """Its own adapter's event accuses it."""
    gone = "n05:1234:1300 [3] NCCL WARN NET/IB : Got completion from peer 10.0.0.7<481> with status=12 opcode=0 len=0 vendor err 129\n"
    own = "n05:1234:1300 [3] NCCL WARN NET/IB : mlx5_3:1 async fatal event: local catastrophic error\n"
    queue = "n05:1234:1300 [3] NCCL WARN NET/IB : mlx5_3:1 async fatal event on QP (0x7309dc3bb338): local access violation work queue error\n"
    port = "n05:1234:1300 [3] NCCL WARN NET/IB : mlx5_3:1 Got async event : port error\n"
    for text, drains in ((gone, False), (own, True), (queue, False), (port, True)):
        report = explained(tmp_path, text)
        assert named(report) == "fabric"
        assert any("State=DRAIN" in action.command for action in report.actions) is drains
        assert any("--exclude" in action.command for action in report.actions) is drains


def test_one_line_is_one_witness_and_shown_once(tmp_path: Path) -> None:
    report = explained(tmp_path, "PMII_singinit: execv failed: No such file or directory\n")
    assert report.root is not None
    assert not any("signs agree" in each for each in report.root.why)
    assert len(report.root.lines) == 1


def test_gpus_that_cannot_reach_each_other_are_no_driver_that_is_too_old(tmp_path: Path) -> None:
    says = "RuntimeError: CUDA error: peer access is not supported between these two devices\n"
    report = explained(tmp_path, f"{HEAD}{FRAMES}{says}")
    assert report.root is not None
    assert (named(report), "cannot reach each other" in report.root.what) == ("config", True)


def test_a_time_limit_that_ends_what_hung_long_before_is_not_named(tmp_path: Path) -> None:
    """Of planted failures whose own log was lost this was said with 60 %, and was never right."""
    waits = "".join(
        f"[rank{rank}]:[E105 10:20:10.386121158 ProcessGroupNCCL.cpp:694] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=805, OpType=BROADCAST, NumelIn=32768, NumelOut=32768, Timeout(ms)=600000) ran for 600030 milliseconds before timing out.\n"
        for rank in (0, 1, 3)
    )
    limit = "slurmstepd: error: *** JOB 4711 ON gpu011 CANCELLED AT 2026-01-05T10:50:08 DUE TO TIME LIMIT ***\n"
    assert named(explained(tmp_path, waits + limit)) != "time_limit"
    assert named(explained(tmp_path, limit)) == "time_limit"


@pytest.mark.parametrize(
    ("ended", "failure"),
    [
        ("RuntimeError: hipMalloc failed: out of memory", "gpu_memory"),
        (
            "MemoryError: std::bad_alloc: out_of_memory: RMM failure at: pool_memory_resource.hpp:313: Maximum pool size exceeded",
            "gpu_memory",
        ),
        ("OSError: [Errno 103] Software caused connection abort: '/mnt/blob/a.bin'", "storage"),
        ("TimeoutError: Could not connect to the coordinator", "rendezvous"),
        ("RuntimeError: start-up timed out: only 14 of 16 workers registered", "rendezvous"),
        (
            'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":830',
            "gpu_memory",
        ),
        ("OverflowError: cannot convert float infinity to integer", "numeric"),
        ("ValueError: The parameter loc has invalid values", "numeric"),
        ("ValueError: Unknown optimizer: adamx", "config"),
        ("KeyError: 'YOLO is not in the model registry'", "config"),
        (
            "deepspeed.runtime.zero.utils.ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer",
            "config",
        ),
    ],
)
def test_what_an_exception_says_of_rarer_causes_is_understood(ended: str, failure: str, tmp_path: Path) -> None:
    assert named(explained(tmp_path, f"{HEAD}{FRAMES}{ended}\n")) == failure


def test_daemons_that_do_not_trust_each_other_are_the_node_s(tmp_path: Path) -> None:
    says = 'srun: error: Munge encode failed: Failed to connect to "/run/munge/munge.socket.2": Connection refused\n'
    assert named(explained(tmp_path, says)) == "node"


@pytest.mark.parametrize("ended", ["EOFError: Ran out of input", "_pickle.UnpicklingError: pickle data was truncated"])
def test_a_process_whose_parent_ended_while_it_started_read_no_file(ended: str, tmp_path: Path) -> None:
    """CPython Lib/multiprocessing/spawn.py: the parent's own exception is the cause."""
    child = '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 132, in _main\n    self = reduction.pickle.load(from_parent)\n'
    assert named(explained(tmp_path, f"{HEAD}{child}{ended}\n")) == ""
    parent = f"{HEAD}{FRAMES}TypeError: cannot pickle 'module' object\n"
    assert named(explained(tmp_path, f"{parent}{HEAD}{child}{ended}\n")) == "software"
    loads = '  File "/home/u/run.py", line 31, in load\n    table = pickle.load(file)\n'
    assert named(explained(tmp_path, f"{HEAD}{loads}{ended}\n")) == "storage"


def test_the_node_whose_prolog_failed_is_named(tmp_path: Path) -> None:
    report = explained(tmp_path, "salloc: Prolog failure on node k003-006\n")
    assert report.root is not None
    assert (named(report), report.root.where.node) == ("node", "k003-006")


def test_how_many_clients_joined_is_said(tmp_path: Path) -> None:
    says = "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/3 clients joined.\n"
    report = explained(tmp_path, f"{HEAD}{FRAMES}{says}")
    assert report.root is not None
    assert report.root.what.endswith("1 of 3 had come")


FELL = "[Mon Jan  5 10:10:00 2026] NVRM: Xid (PCI:0000:86:00): 74, pid=7, name=python3, NVLink: fatal error detected on link 8(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)\n"
UNCLEAR = f"{HEAD}{FRAMES}RuntimeError: CUDA error: unspecified launch failure\n"
GOES_ON = "".join(f"step {step} | loss: 2.3100 | 1.23 s/step\n" for step in range(100, 140))


def test_an_xid_that_a_log_quotes_counts_where_cuda_failed_there_too(tmp_path: Path) -> None:
    """Epilogs print the end of the kernel log into the output of a job; nobody is drained for what anybody can print."""
    report = explained(tmp_path, GOES_ON + UNCLEAR + FELL)
    assert report.root is not None
    assert (named(report), report.root.where.pci) == ("nvlink", "0000:86:00.0")
    assert not any("drain" in action.command.lower() for action in report.actions)
    assert named(explained(tmp_path, GOES_ON + FELL)) == ""
    assert named(explained(tmp_path, UNCLEAR + FELL + GOES_ON)) == ""


def test_a_quoted_xid_of_the_program_itself_changes_nothing(tmp_path: Path) -> None:
    fault = FELL.replace("74, pid", "31, pid").replace("NVLink: fatal", "MMU Fault: fatal")
    assert named(explained(tmp_path, UNCLEAR + fault)) == "software"


def test_nccl_names_the_function_that_warns_since_2_29(tmp_path: Path) -> None:
    says = "[2026-01-05 10:00:00] gpu012:1:2 [5] transport/nvls.cc:245 (ncclNvlsSetup) NCCL WARN Cuda failure 800 'operation not permitted'\n"
    report = explained(tmp_path, says)
    assert report.root is not None
    assert (named(report), report.root.where.node) == ("nvlink", "gpu012")


@pytest.mark.parametrize(
    ("says", "failure"),
    [
        (
            "Primary config directory not found.\nCheck that the config directory '/home/u/conf' exists and readable\n",
            "config",
        ),
        ("Multiple values for trainer. To override a value use 'override trainer: ddp'\n", "config"),
        ("pdsh@head01: gpu014: ssh exited with exit code 255\n", "rendezvous"),
    ],
)
def test_what_launchers_and_settings_say_without_an_exception_is_understood(
    says: str, failure: str, tmp_path: Path
) -> None:
    assert named(explained(tmp_path, says)) == failure


def test_the_message_is_shown_and_not_the_statement_that_raised_it(tmp_path: Path) -> None:
    frames = FRAMES + '    f"Loss became infinite or NaN at iteration={storage.iter}!"\n'
    report = explained(tmp_path, f"{HEAD}{frames}FloatingPointError: Loss became infinite or NaN at iteration=7!\n")
    assert report.root is not None
    assert [(each.text[:18], each.line) for each in report.root.lines] == [("FloatingPointError", 7)]


FLUSHED = (
    "gpu012:1:2 [4] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.3<40000> with status=5 "
    "opcode=0 len=0 vendor err 249 (Recv) hca mlx5_4\n"
)


def test_operations_that_were_given_up_alone_are_an_unsure_sign_of_the_fabric(tmp_path: Path) -> None:
    report = explained(tmp_path, FLUSHED * 3)
    assert report.root is not None
    assert (named(report), report.root.confidence < 0.6) == ("fabric", True)


def test_operations_that_were_given_up_follow_from_whatever_else_failed(tmp_path: Path) -> None:
    text = FLUSHED + f"{HEAD}{FRAMES}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert named(explained(tmp_path, text)) == "gpu_memory"


@pytest.mark.parametrize(
    "says",
    [
        "srun: error: Unable to confirm allocation for job 4711: Unable to contact slurm controller (connect failure)\n"
        "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 4711\n",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
        "scontrol: error: Unable to contact slurm controller (connect failure)\n",
        "Listing jobs failed (exit code 1)\nslurm_load_partitions: Unable to contact slurm controller (connect failure)\n",
    ],
)
def test_a_controller_that_does_not_answer_is_no_setting_of_the_job(says: str, tmp_path: Path) -> None:
    assert named(explained(tmp_path, says)) == "node"


def test_a_pipe_that_broke_in_python_is_no_store_of_ranks(tmp_path: Path) -> None:
    text = f"Exception in thread NetStatThr:\n{HEAD}{FRAMES}BrokenPipeError: [Errno 32] Broken pipe\n"
    assert "the store" not in " ".join(each.what for each in explained(tmp_path, text).timeline)


@pytest.mark.parametrize(
    ("says", "failure"),
    [
        (
            "PBS Job Id: 4711.head01\nAborted by PBS Server\nJob exceeded its walltime limit. Job was aborted\n",
            "time_limit",
        ),
        ("Job deleted at request of root@head01\nMOAB_INFO:  job exceeded wallclock limit\n", "time_limit"),
        ("CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62\n", "gpu_memory"),
        (f"{HEAD}{FRAMES}ValueError: Network outputs is NAN! Stop Training\n", "numeric"),
        ("{'loss': 0.0, 'rewards/chosen': nan, 'logps/rejected': nan, 'logps/chosen': nan, 'epoch': 0.1}\n", "numeric"),
        (
            "Memory on the node (IP: 10.0.0.5, ID: 1f2e) where the task (name=head, pid=4503) was running was 503.0GB\n",
            "host_memory",
        ),
    ],
)
def test_words_of_rare_programs_and_batch_systems_are_known(says: str, failure: str, tmp_path: Path) -> None:
    assert named(explained(tmp_path, says)) == failure
