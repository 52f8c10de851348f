"""Are fewer ranks started than there are GPUs, as far as launcher and request say so?"""

from __future__ import annotations

from collections.abc import Mapping

from opsk_jobcheck.readers.findings import Findings
from opsk_jobcheck.readers.launchers import PER_NODE, Launch, tasks_per_node
from opsk_jobcheck.readers.reading import Match
from opsk_jobcheck.readers.resources import Resources
from opsk_jobcheck.readers.shell.values import Variable

_STARTS_ONE = frozenset({"torchrun", "torch.distributed.run"})
"""Launchers that start one rank a node when they are not told how many."""
_MPI = frozenset({"mpirun", "mpiexec", "orterun"})
_MPI_RANKS = ("--np", "--n")
_ONE_A_TASK = ("megatron", "hf-trainer", "trl", "gpt-neox")
"""Frameworks whose programs never start ranks by themselves."""
_STARTERS = frozenset(
    {"accelerate", "accelerate.commands.launch", "ray", "horovodrun", "bash", "sh", "deepspeed.launcher"}
)


def few_ranks(
    launch: Launch | None,
    match: Match,
    resources: Resources,
    variables: Mapping[str, Variable],
    findings: Findings,
) -> str:
    """Return how a launcher starts fewer ranks than there are GPUs, empty where it is not known to.

    Parameters
    ----------
    match
        The command that trains.
    variables
        What the script has set at its end.
    """
    gpus, per_node = findings.get("plan.gpus"), findings.get("plan.gpus_per_node")
    if launch is None or not launch.words or (per_node or 0) < 2:
        return ""
    is_told = any(name in launch.own.flags for name in PER_NODE) or "PET_NPROC_PER_NODE" in variables
    if launch.agent in _STARTS_ONE and not is_told and not launch.own.opaque:
        return f"{launch.agent} starts one rank a node without --nproc-per-node, and there are {per_node} GPUs"
    if own := _by_program(match, per_node or 0):
        return own
    names = {word.shown.rpartition("/")[2] for word in launch.words}
    if launch.agent or not _STARTERS.isdisjoint(names) or not match.framework.startswith(_ONE_A_TASK):
        return ""
    if _MPI & names:
        return _by_mpi(launch, gpus)
    tasks = tasks_per_node(launch, resources)
    if launch.step is not None and tasks and tasks < per_node:
        return f"srun starts {tasks} {'task' if tasks == 1 else 'tasks'} on each node of {per_node} GPUs"
    return ""


def _by_program(match: Match, per_node: int) -> str:
    """Return the same of programs that start their ranks themselves: litgpt, and torchtune's recipes for one GPU."""
    words = match.invocation.known_words
    if match.framework == "torchtune" and any("single_device" in word for word in words):
        return f"the recipe trains on one of {per_node} GPUs of a node"
    if match.framework != "litgpt":
        return ""
    argument = match.arguments.flags.get("--devices") or match.arguments.flags.get("--train.devices")
    known = "1" if argument is None and any("finetune" in word for word in words) else argument and argument.value.known
    if known and known.isdigit() and len(known) < 9 and int(known) < per_node:
        return f"litgpt trains on {int(known)} of {per_node} GPUs of a node"
    return ""


def _by_mpi(launch: Launch, gpus: int | None) -> str:
    """Return the same of ``mpirun -np``."""
    for name in _MPI_RANKS:
        argument = launch.own.flags.get(name)
        known = argument.value.known if argument is not None and argument.certain else None
        if argument is not None and known and known.isdigit() and len(known) < 9 and gpus and int(known) < gpus:
            return f"mpirun starts {int(known)} ranks, and there are {gpus} GPUs: {argument.shown[:80]}"
    return ""
