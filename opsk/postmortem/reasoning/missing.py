"""Lists the evidence that is missing, and what it would settle."""

from __future__ import annotations

from collections.abc import Sequence

from opsk.postmortem.values import Cause, Divergence, Evidence, FailureClass, Missing

_SURE_ENOUGH = 0.9
_GPU = (FailureClass.GPU_HARDWARE, FailureClass.NVLINK, FailureClass.SOFTWARE, FailureClass.COLLECTIVE_HANG)
_NETWORK = (FailureClass.FABRIC, FailureClass.COLLECTIVE_HANG, FailureClass.NVLINK, FailureClass.RENDEZVOUS)


def list_missing(evidence: Evidence, causes: Sequence[Cause], divergence: Divergence | None) -> tuple[Missing, ...]:
    """Return the evidence that would settle a failure; empty where all is certain."""
    have = evidence.gathered
    classes = {cause.failure for cause in causes[:3]} or {FailureClass.HOST_MEMORY}
    root = causes[0] if causes else None
    missing = []
    if "sacct" not in have and evidence.job is None:
        missing.append(Missing(
            what="Slurm's record of the job", why="it stands above what the output says: its state, and who ended it",
            how="opsk postmortem JOB on a host that has sacct",
        ))  # fmt: skip
    if "kernel_log" not in have and classes & {*_GPU, *_NETWORK, FailureClass.HOST_MEMORY, FailureClass.NODE}:
        missing.append(Missing(
            what="kernel logs of the job's nodes", why="an Xid, a lost link or a killed process then settles it",
            how="the epilog of opsk keeps them; else journalctl -k on the node, given with --kernel-log",
        ))  # fmt: skip
    if "ib_counters" not in have and classes & set(_NETWORK) and root is not None and root.confidence < _SURE_ENOUGH:
        missing.append(Missing(
            what="InfiniBand counters before and after", why="errors on one port tell a bad cable from a dead peer",
            how="the prolog and epilog of opsk keep them",
        ))  # fmt: skip
    if divergence is not None and divergence.never_arrived:
        unseen = _find_unlogged(evidence, divergence)
        if unseen:
            missing.append(Missing(
                what=f"logs of rank{'s' if len(unseen) > 1 else ''} {_format_ranks(unseen)}",
                why="the others waited for it, and what it said last is not there",
                how="one log a rank: srun --output=%x-%j-%t.out",
            ))  # fmt: skip
    if root is None:
        return tuple(missing)
    if "flight_recorder" not in have and root.failure is FailureClass.COLLECTIVE_HANG:
        missing.append(Missing(
            what="PyTorch's flight recorder", why="it tells in which collective each rank was, and from which line",
            how="TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE up to 2.6), TORCH_NCCL_DUMP_ON_TIMEOUT=1",
        ))  # fmt: skip
    if root.failure is FailureClass.FABRIC and not any(finding.origin != "job_log" for finding in root.findings):
        missing.append(Missing(
            what="what the other end of the link saw", why="one end alone cannot tell its own port from the peer's",
            how="opsk fabric and the kernel log of the peer's node",
        ))  # fmt: skip
    return tuple(missing)


def _find_unlogged(evidence: Evidence, divergence: Divergence) -> tuple[int, ...]:
    """Return ranks that never arrived and have no log."""
    logged = {each.rank for each in evidence.ranks}
    return tuple(rank for rank in divergence.never_arrived if rank not in logged)


def _format_ranks(ranks: Sequence[int]) -> str:
    """Return some numbers as people write them."""
    shown = ", ".join(str(rank) for rank in ranks[:6])
    return shown if len(ranks) <= 6 else f"{shown} and {len(ranks) - 6} more"
