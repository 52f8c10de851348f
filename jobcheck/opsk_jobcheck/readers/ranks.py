"""How many ranks does a launcher start, where its own flags say so?"""

from __future__ import annotations

from collections.abc import Mapping

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


def doubt_replicas(invocation: Invocation, variables: Mapping[str, Variable], findings: Findings, why: str) -> None:
    """Leave the replicas open, and a batch that follows from them, where fewer ranks may train than there are GPUs.

    Parameters
    ----------
    variables
        What the script has set at its end.
    why
        What is known already to speak against it, empty where nothing is.
    """
    why = why or _on_few_gpus(invocation, variables, findings.get("plan.gpus_per_node"))
    if not why:
        return
    cited = findings.evidence.get("plan.global_batch")
    for name in ("plan.dp", *(("plan.global_batch",) if cited is not None and " × dp " in cited.text else ())):
        if name in findings.values:
            findings.cannot_tell(name, why, invocation.line)


def _on_few_gpus(invocation: Invocation, variables: Mapping[str, Variable], per_node: int | None) -> str:
    """Return how a command is kept from some GPUs of a node, empty where it is not known to be."""
    if "deepspeed" in names_of(invocation):
        flags = arguments_of(invocation).flags
        if name := next((name for name in ("--include", "--exclude") if name in flags), ""):
            return f"deepspeed starts ranks on a part of the GPUs: {flags[name].shown[:80]}"
    own: Mapping[str, Variable] = invocation.facts.get("assigned", {})
    variable = own.get(_VISIBLE) or variables.get(_VISIBLE)
    known = variable.text.known if isinstance(variable, Scalar) else None
    count = len([part for part in (known or "").split(",") if part.strip()])
    return f"{_VISIBLE} shows {count} of {per_node} GPUs" if per_node and 0 < count < per_node else ""
