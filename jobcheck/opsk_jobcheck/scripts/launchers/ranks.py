"""Reads the number of ranks that a launcher starts from the launcher's flags."""

from __future__ import annotations

from collections.abc import Mapping

from opsk.workload.workload import Problem
from opsk_jobcheck.scripts.bash.values import Invocation, Scalar, Variable
from opsk_jobcheck.scripts.launchers.launchers import PER_NODE, Launch, compute_tasks_per_node
from opsk_jobcheck.scripts.launchers.programs import names_of
from opsk_jobcheck.scripts.sbatch.resources import Resources
from opsk_jobcheck.scripts.settings.arguments import Arguments, arguments_of
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match

_ONE_RANK_LAUNCHERS = frozenset({"torchrun", "torch.distributed.run"})
"""Launchers that start one rank a node by default."""
_MPI = frozenset({"mpirun", "mpiexec", "orterun"})
_MPI_RANKS = ("--np", "--n")
_RANK_PER_TASK = ("megatron", "hf-trainer", "trl", "gpt-neox")
"""Frameworks whose programs never start ranks by themselves."""
_STARTERS = frozenset(
    {"accelerate", "accelerate.commands.launch", "ray", "horovodrun", "bash", "sh", "deepspeed.launcher"}
)


def find_few_ranks(
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
        Variables at the end of the script.
    """
    gpus, per_node = findings.get("plan.gpus"), findings.get("plan.gpus_per_node")
    if launch is None or not launch.words or (per_node or 0) < 2:
        return ""
    is_stated = any(name in launch.launcher_flags.flags for name in PER_NODE) or "PET_NPROC_PER_NODE" in variables
    if launch.agent in _ONE_RANK_LAUNCHERS and not is_stated and not launch.launcher_flags.opaque:
        return f"{launch.agent} starts one rank a node without --nproc-per-node, and there are {per_node} GPUs"
    if reason := _find_few_by_program(match, per_node or 0):
        return reason
    names = {word.shown.rpartition("/")[2] for word in launch.words}
    if launch.agent or not _STARTERS.isdisjoint(names) or not match.framework.startswith(_RANK_PER_TASK):
        return ""
    if _MPI & names:
        return _find_few_by_mpi(launch, gpus)
    tasks = compute_tasks_per_node(launch, resources)
    if launch.step is not None and tasks and tasks < per_node:
        return f"srun starts {tasks} {'task' if tasks == 1 else 'tasks'} on each node of {per_node} GPUs"
    return ""


def _find_few_by_program(match: Match, per_node: int) -> str:
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


def _find_few_by_mpi(launch: Launch, gpus: int | None) -> str:
    """Return the same of ``mpirun -np``."""
    for name in _MPI_RANKS:
        argument = launch.launcher_flags.flags.get(name)
        known = argument.value.known if argument is not None and argument.certain else None
        if argument is not None and known and known.isdigit() and len(known) < 9 and gpus and int(known) < gpus:
            return f"mpirun starts {int(known)} ranks, and there are {gpus} GPUs: {argument.shown[:80]}"
    return ""


OPTION = "launcher.ranks"
"""Name of the workload option for the number of ranks."""
NODES_OPTION = "launcher.nodes"
"""Name of the workload option for the launcher's number of nodes."""
_ALL = ("--num-processes",)
"""Flags that count the ranks of all nodes (``accelerate launch``)."""
_PER_NODE = ("--nproc-per-node", "--num-gpus")
_NODES = ("--nnodes", "--num-nodes", "--num-machines")
MAX_RANKS = 1 << 24
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def read_ranks(arguments: Arguments, findings: Findings) -> None:
    """State the number of ranks in ``findings.options``; nothing where a flag is missing or unknown.

    A launcher without a number of nodes takes one: only then is the number a node the total.
    """
    total = _parse_number(arguments, _ALL)
    per_node, nodes = _parse_number(arguments, _PER_NODE), _parse_number(arguments, _NODES)
    if total is None and per_node is not None:
        is_single = findings.get("plan.nodes") == 1
        if nodes is None and is_single and not any(name in arguments.flags for name in _NODES):
            nodes = 1
        total = per_node * nodes if nodes else None
    if total and total <= MAX_RANKS:
        findings.options[OPTION] = str(total)
        if nodes:
            findings.options[NODES_OPTION] = str(nodes)


def _parse_number(arguments: Arguments, names: tuple[str, ...]) -> int | None:
    """Return the whole number that a flag is given, ``None`` where there is none or it is unknown."""
    for name in names:
        argument = arguments.flags.get(name)
        known = argument.value.known if argument else None
        if known and known.isascii() and known.isdigit() and len(known) < 9 and int(known):
            return int(known)
    return None


def doubt_replicas(
    invocation: Invocation, variables: Mapping[str, Variable], findings: Findings, *, is_one_node: bool, few: str = ""
) -> None:
    """Remove the replicas, and a batch that follows from them, where fewer ranks may train than there are GPUs.

    They are then assumed, not stated. The reason is reported.

    Parameters
    ----------
    variables
        Variables at the end of the script.
    is_one_node
        The launcher runs on one node of several.
    few
        A reader's reason for few ranks; empty where there is none.
    """
    what = few or _find_hidden_gpus(invocation, variables, findings.get("plan.gpus_per_node"))
    if what:
        file, line = findings.locate(invocation.line)
        hint = "start as many ranks as there are GPUs, or ask for fewer GPUs"
        findings.problems.append(Problem(what=what, file=file, line=line, hint=hint))
    if not what and not is_one_node:
        return
    stated = findings.evidence.get("plan.global_batch")
    for name in ("plan.dp", *(("plan.global_batch",) if stated is not None and " × dp " in stated.text else ())):
        findings.values.pop(name, None)
        findings.evidence.pop(name, None)


def _find_hidden_gpus(invocation: Invocation, variables: Mapping[str, Variable], per_node: int | None) -> str:
    """Return how some of the GPUs are hidden from a command, empty where none are known to be."""
    if "deepspeed" in names_of(invocation):
        flags = arguments_of(invocation).flags
        if name := next((name for name in ("--include", "--exclude") if name in flags), ""):
            return f"deepspeed starts ranks on a part of the GPUs: {flags[name].shown[:80]}"
    visible = get_known_variable(invocation, variables, _VISIBLE) or ""
    shown = len([part for part in visible.split(",") if part.strip()])
    return f"{_VISIBLE} shows {shown} of {per_node} GPUs" if per_node and 0 < shown < per_node else ""


def get_known_variable(invocation: Invocation, variables: Mapping[str, Variable], name: str) -> str | None:
    """Return the value of a variable for a command, its own assignments first; empty where unknown, ``None`` unset."""
    variable = {**variables, **invocation.facts.get("assigned", {})}.get(name)
    if variable is None:
        return None
    return (variable.text.known or "") if isinstance(variable, Scalar) else ""
