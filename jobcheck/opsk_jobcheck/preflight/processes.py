"""Checks how many processes a job starts, on which nodes, and where they meet."""

from __future__ import annotations

from opsk.hardware.mig import parse_profile
from opsk.text import format_count
from opsk_jobcheck.preflight.facts import JobFacts, PreflightFinding, report
from opsk_jobcheck.scripts.launchers.ranks import DISAGREE, ONE_RANK, REQUESTED_GPUS
from opsk_jobcheck.scripts.run_facts import IS_ONE_NODE, IS_ONLY, IS_SERIAL, MASTER, PROCESSES

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
"""Hosts that are another one on each node."""


def check_processes(facts: JobFacts) -> PreflightFinding | None:
    """Return that fewer processes are started than GPUs are requested: PyTorch uses one GPU a process."""
    entry, count = facts.stated.get(PROCESSES), facts.find_count(PROCESSES)
    if entry is None or count is None or not 0 < count < facts.gpus or facts.reports_idle_gpus:
        return None
    if any(ONE_RANK in problem.what for problem in facts.workload.problems):  # the reader of the launcher says it
        return None
    on_nodes = f" on {facts.nodes} nodes" if facts.nodes > 1 else ""
    what = f"{facts.gpus} GPUs{on_nodes} are requested, and "
    what += f"one process is started ({entry.text})" if count == 1 else f"{count} processes are started ({entry.text})"
    if count == 1 and IS_SERIAL in facts.stated:
        return report(entry, what, "ask for 1 GPU: the program is written for one")
    per_node = facts.workload.plan.gpus_per_node or facts.gpus
    start = f"srun torchrun --nnodes={facts.nodes}" if facts.nodes > 1 else "torchrun"
    advice = f"start one for each GPU ({start} --nproc_per_node={per_node}), or ask for {format_count(count, 'GPU')}"
    return report(entry, what, advice)


def check_ranks(facts: JobFacts) -> PreflightFinding | None:
    """Return that the launcher is given fewer ranks than GPUs are requested, unless its reader reports that."""
    requested, ranks = dict(facts.workload.options).get(REQUESTED_GPUS, ""), facts.workload.plan.gpus
    if (
        IS_ONLY not in facts.stated
        or facts.reports_idle_gpus
        or any(DISAGREE in problem.what for problem in facts.workload.problems)
        or not requested.isdigit()
        or not ranks
        or ranks >= int(requested)
    ):
        return None
    what = f"{requested} GPUs are requested, and the launcher starts {format_count(ranks, 'rank')}"
    return PreflightFinding(what=what, advice=f"start {requested} ranks, or ask for {format_count(ranks, 'GPU')}")


def check_parts(facts: JobFacts) -> PreflightFinding | None:
    """Return that one training is given several parts of GPUs: no transfers go between them, and NCCL joins none.

    Source: NVIDIA Multi-Instance GPU User Guide, "Application Considerations".
    """
    name = facts.workload.gpu or ""
    if facts.gpus < 2 or IS_ONLY not in facts.stated or parse_profile(name) is None:
        return None
    what = f"{facts.gpus} parts of GPUs are requested ({name[:60]}), and NCCL joins no instances of MIG"
    return PreflightFinding(what=what, advice="ask for one part of the size that the job needs, or for a whole GPU")


def check_nodes(facts: JobFacts) -> PreflightFinding | None:
    """Return that nothing starts the program on the other nodes of the job."""
    entry = facts.stated.get(IS_ONE_NODE)
    if entry is None or check_processes(facts) is not None:
        return None
    what = f"{facts.nodes} nodes are requested, and no srun starts {entry.text} on them: it runs on the first one alone"
    return report(entry, what, "start it with srun, or ask for one node: --nodes=1")


def check_master(facts: JobFacts) -> PreflightFinding | None:
    """Return that the processes of several nodes are to meet on localhost, which is another host on each."""
    entry = facts.stated.get(MASTER)
    if entry is None or facts.nodes < 2:
        return None
    advice = "name the first node: $(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)"
    host = str(entry.value).removeprefix("[").partition("]")[0]
    host = host if "::" in host else host.rpartition(":")[0] or host
    if not entry.value:
        what = f"{entry.text} on {facts.nodes} nodes gets no --rdzv_endpoint: every node waits for itself"
        return report(entry, what, advice)
    if host not in _LOCAL:
        return None
    return report(entry, f"{entry.text} on {facts.nodes} nodes: every node waits for itself", advice)
