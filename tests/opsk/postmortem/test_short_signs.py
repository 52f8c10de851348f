"""Is the class right where a log has but one line, or a stack, of the failure?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain

SIGNS = {
    "PyTorch up to 1.4 cannot start cuBLAS": (
        "RuntimeError: cublas runtime error : resource allocation failed at /build/aten/src/THC/THCGeneral.cpp:201\n",
        "gpu_memory",
    ),
    "XLA cannot start cuBLAS": (
        "2026-01-05 10:00:00.251154: E external/local_xla/xla/stream_executor/cuda/cuda_blas.cc:180] failed to create "
        "cublas handle: the resource allocation failed\n",
        "gpu_memory",
    ),
    "a name of NVML's errors without its first word": (
        "failed to read the clocks of GPU-11111111-2222-3333-4444-555555555555: ERROR_GPU_IS_LOST\n", "gpu_hardware",
    ),
    "the stack of UCX where a completion had an error": (
        "[gpu012:3112] [ 5] /opt/ucx/lib/ucx/libuct_ib.so.0(uct_ib_mlx5_completion_with_err+0x24c)[0x7f0000000000]\n"
        "[gpu012:3112] [ 6] /opt/ucx/lib/libucp.so.0(ucp_worker_progress+0x3a)[0x7f0000000010]\n",
        "fabric",
    ),
    "what a shell says of a program that ended by SIGBUS": ("step 3 | loss: 2.31\nBus error\n", "host_memory"),
    "an OpenMP runtime that finds another one": (
        "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.\n"
        "OMP: Hint This means that several copies of the OpenMP runtime have been linked.\n", "software",
    ),
    "an OpenMP runtime without threads, and the stack of a Fortran program": (
        "OMP: Error #34: System unable to allocate necessary resources for OMP thread:\n"
        "OMP: System error #11: Resource temporarily unavailable\n"
        "Image              PC                Routine            Line        Source\n"
        + "model.exe          00000000005F75B9  Unknown               Unknown  Unknown\n" * 9, "config",
    ),
    "Fortran that was ended by a signal": ("forrtl: error (76): Abort trap signal\nImage  PC  Routine\n", "software"),
    "Open MPI up to 2 that lost a daemon": (
        "ORTE has lost communication with its daemon located on node:\n\n  hostname:  gpu012\n", "node",
    ),
    "a store in a file whose other ranks never came": (
        "  File \"/opt/lib/torch/distributed/distributed_c10d.py\", line 283, in init_process_group\n"
        "    _default_pg = ProcessGroupGloo(store, rank, world_size)\nRuntimeError: Wait timeout\n", "rendezvous",
    ),
    "a file of HDF5 1.8 that was not written whole": (
        "IOError: Unable to open file (Truncated file: eof = 1024, sblock->base_addr = 0, stored_eoa = 2048)\n",
        "storage",
    ),
    "what kubectl exec says of a command that was killed": ("command terminated with exit code 137\n", "host_memory"),
    "why Slurm holds a job": (
        "JobId=4711 JobName=train JobState=PENDING Reason=launch_failed_requeued_held Dependency=(null)\n", "node",
    ),
}  # fmt: skip
NONE = {
    "UCX in a stack of something else": (
        "[gpu012:3112] [ 6] /opt/ucx/lib/libucp.so.0(ucp_worker_progress+0x3a)[0x7f0000000010]\n"
    ),
    "advice of an OpenMP runtime": "OMP: Hint: Try decreasing the value of OMP_NUM_THREADS.\n",
    "a text on bus errors": "A Bus error is raised when memory cannot be given.\n",
}


def find_class(text: str, folder: Path) -> str:
    log = folder / "slurm-4711.out"
    log.write_text(text)
    root = explain(read_logs([LogFile(path=log)], processes=1)).root
    return root.failure.value if root is not None else ""


@pytest.mark.parametrize("kind", SIGNS)
def test_one_line_is_enough_for_the_class(kind: str, tmp_path: Path) -> None:
    text, failure = SIGNS[kind]
    assert find_class(text, tmp_path) == failure


OF_AMD = (
    "[86254.413003] amdgpu 0000:c5:00.0: amdgpu: ring comp_1.3.0 timeout, signaled seq=6970, emitted seq=6971",
    "[86255.249756] amdgpu 0000:c5:00.0: amdgpu: Ring comp_1.3.0 reset failed",
    "[86254.712554] amdgpu 0000:c5:00.0: amdgpu: MES might be in unrecoverable state, issue a GPU reset",
    "[86267.100000] amdgpu 0000:c5:00.0: amdgpu: ib ring test failed (-110).",
)


@pytest.mark.parametrize("line", OF_AMD)
def test_the_amd_drivers_newer_words_for_a_gpu_that_hung_are_known(line: str, tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.write_text(line + "\n")
    root = explain(read_logs([LogFile(path=log, kind="kernel", node="n1")], processes=1)).root
    assert root is not None
    assert root.failure == "gpu_hardware"


@pytest.mark.parametrize("kind", NONE)
def test_a_text_near_to_it_shows_no_failure(kind: str, tmp_path: Path) -> None:
    assert find_class(NONE[kind], tmp_path) == ""
