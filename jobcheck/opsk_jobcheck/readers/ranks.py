"""How many ranks does a launcher start, where its own flags say so?"""

from __future__ import annotations

from collections.abc import Mapping

from opsk.workload.workload import Problem
from opsk_jobcheck.readers.arguments import Arguments, arguments_of
from opsk_jobcheck.readers.findings import Findings
from opsk_jobcheck.readers.programs import names_of
from opsk_jobcheck.readers.shell.values import Invocation, Scalar, Variable

OPTION = "launcher.ranks"
"""Name of the option of a workload that says so."""
NODES_OPTION = "launcher.nodes"
"""The same of the nodes that the launcher is told of."""
_ALL = ("--num-processes",)
"""Flags that count the ranks of all nodes (``accelerate launch``)."""
_PER_NODE = ("--nproc-per-node", "--num-gpus")
_NODES = ("--nnodes", "--num-nodes", "--num-machines")
MAX_RANKS = 1 << 24
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def read_ranks(arguments: Arguments, findings: Findings) -> None:
    """State the number of ranks in ``findings.options``; nothing where a flag is missing or cannot be told.

    A launcher that is not told how many nodes there are takes one: only then does the number a node say it all.
    """
    total = _number(arguments, _ALL)
    per_node, nodes = _number(arguments, _PER_NODE), _number(arguments, _NODES)
    if total is None and per_node is not None:
        is_single = findings.get("plan.nodes") == 1
        if nodes is None and is_single and not any(name in arguments.flags for name in _NODES):
            nodes = 1
        total = per_node * nodes if nodes else None
    if total and total <= MAX_RANKS:
        findings.options[OPTION] = str(total)
        if nodes:
            findings.options[NODES_OPTION] = str(nodes)


def _number(arguments: Arguments, names: tuple[str, ...]) -> int | None:
    """Return the whole number that a flag is given, ``None`` where there is none or it cannot be told."""
    for name in names:
        argument = arguments.flags.get(name)
        known = argument.value.known if argument else None
        if known and known.isascii() and known.isdigit() and len(known) < 9 and int(known):
            return int(known)
    return None


def doubt_replicas(
    invocation: Invocation, variables: Mapping[str, Variable], findings: Findings, *, is_one_node: bool, few: str = ""
) -> None:
    """Take back the replicas, and a batch that follows from them, where fewer ranks may train than there are GPUs.

    They are assumed then, not stated. What keeps the ranks from GPUs that were asked for is said.

    Parameters
    ----------
    variables
        What the script has set at its end.
    is_one_node
        The launcher runs on one node of several.
    few
        Why there may be few ranks, by a reader; empty where it knows of nothing.
    """
    what = few or _on_few_gpus(invocation, variables, findings.get("plan.gpus_per_node"))
    if what:
        file, line = findings.where(invocation.line)
        hint = "start as many ranks as there are GPUs, or ask for fewer GPUs"
        findings.problems.append(Problem(what=what, file=file, line=line, hint=hint))
    if not what and not is_one_node:
        return
    cited = findings.evidence.get("plan.global_batch")
    for name in ("plan.dp", *(("plan.global_batch",) if cited is not None and " × dp " in cited.text else ())):
        findings.values.pop(name, None)
        findings.evidence.pop(name, None)


def _on_few_gpus(invocation: Invocation, variables: Mapping[str, Variable], per_node: int | None) -> str:
    """Return how a command is kept from some of the GPUs, empty where it is not known to be."""
    if "deepspeed" in names_of(invocation):
        flags = arguments_of(invocation).flags
        if name := next((name for name in ("--include", "--exclude") if name in flags), ""):
            return f"deepspeed starts ranks on a part of the GPUs: {flags[name].shown[:80]}"
    visible = known_of_command(invocation, variables, _VISIBLE) or ""
    shown = len([part for part in visible.split(",") if part.strip()])
    return f"{_VISIBLE} shows {shown} of {per_node} GPUs" if per_node and 0 < shown < per_node else ""


def known_of_command(invocation: Invocation, variables: Mapping[str, Variable], name: str) -> str | None:
    """Return what a variable holds for a command, its own assignments first; empty where unknown, ``None`` unset."""
    variable = {**variables, **invocation.facts.get("assigned", {})}.get(name)
    if variable is None:
        return None
    return (variable.text.known or "") if isinstance(variable, Scalar) else ""
