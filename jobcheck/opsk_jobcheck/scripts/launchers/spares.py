"""Computes on which of a job's nodes ``opsk launch`` starts ranks.

The other nodes are spares, until a failure brings them in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.launchers.programs import names_of
from opsk_jobcheck.scripts.sbatch.resources import Resources
from opsk_jobcheck.scripts.settings.arguments import Argument, parse_arguments
from opsk_jobcheck.scripts.settings.findings import Findings

BUILTIN_LAUNCHER = "opsk launch"
_VALUELESS = frozenset({"--per-node"})
_MAX_DIGITS = 9
_SIZES = ("plan.nodes", "plan.gpus")


def is_opsk_launch(invocation: Invocation) -> bool:
    """Return whether a command starts others by ``opsk launch``."""
    return _find_start(invocation) is not None


def exclude_spares(resources: Resources, invocations: Sequence[Invocation], findings: Findings) -> Resources:
    """Return the resources of the ranks out of those of the job, and state them.

    ``--nodes`` is the number of nodes that are used at first; without ``--per-node`` each rank is a separate task, one
    a GPU or as many as ``--tasks-per-node``.
    """
    invocation = next((entry for entry in invocations if is_opsk_launch(entry)), None)
    if invocation is None:
        return resources
    flags = _parse_opsk_flags(invocation)
    if "--per-node" in flags:
        tasks: int | None = 1
    else:
        tasks = _parse_number(flags.get("--tasks-per-node")) or resources.gpus_per_node
    resources = replace(resources, ntasks_per_node=tasks)
    nodes = flags.get("--nodes")
    return resources if nodes is None else _limit_to_nodes(resources, nodes, findings)


def _limit_to_nodes(resources: Resources, argument: Argument, findings: Findings) -> Resources:
    """Return the resources of so many nodes of the job; none where their number is not known."""
    nodes, gpus_per_node = _parse_number(argument), resources.gpus_per_node
    if nodes is None:
        why = argument.value.why or f"{argument.shown[:80]} is no positive whole number"
        for name in _SIZES:
            findings.mark_unknown(name, why, argument.line)
        return replace(resources, nodes=None, gpus=None)
    if resources.nodes is not None and nodes > resources.nodes:
        return resources  # opsk launch itself refuses that
    findings.state("plan.nodes", nodes, argument.line, f"{BUILTIN_LAUNCHER} {argument.shown}")
    if gpus_per_node is None:
        findings.values.pop("plan.gpus", None)
        findings.evidence.pop("plan.gpus", None)
        return replace(resources, nodes=nodes, gpus=None)
    findings.state("plan.gpus", nodes * gpus_per_node, argument.line, f"nodes {nodes} × {gpus_per_node} GPUs")
    stated = (findings.evidence[name] for name in _SIZES)
    others = (entry for entry in resources.evidence if entry.field not in _SIZES)
    return replace(resources, nodes=nodes, gpus=nodes * gpus_per_node, evidence=(*others, *stated))


def _find_start(invocation: Invocation) -> int | None:
    """Return where the words after ``opsk launch`` begin."""
    names = names_of(invocation)
    if "opsk" not in names:  # nearly no command has that word
        return None
    return next((index + 2 for index in range(len(names) - 1) if names[index : index + 2] == ("opsk", "launch")), None)


def _parse_opsk_flags(invocation: Invocation) -> dict[str, Argument]:
    """Return the flags of ``opsk launch`` itself; words after ``--`` are the command's."""
    words = invocation.words[_find_start(invocation) :]
    end = next((index for index, word in enumerate(words) if word.known == "--"), len(words))
    return parse_arguments(words[:end], valueless=_VALUELESS).flags


def _parse_number(argument: Argument | None) -> int | None:
    """Return a flag's value, where it is certainly a positive whole number."""
    known = argument.value.known if argument is not None and argument.certain else None
    if not known or not known.isascii() or not known.isdigit() or len(known) > _MAX_DIGITS:
        return None
    return int(known) or None
