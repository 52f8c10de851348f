"""On which of a job's nodes does ``opsk launch`` start ranks? The others are spares, until a failure brings them in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.launchers.programs import names_of
from opsk_jobcheck.scripts.sbatch.resources import Resources
from opsk_jobcheck.scripts.settings.arguments import Argument, parse_arguments
from opsk_jobcheck.scripts.settings.findings import Findings

OWN_LAUNCHER = "opsk launch"
_VALUELESS = frozenset({"--per-node"})
_MOST_DIGITS = 9
_SIZES = ("plan.nodes", "plan.gpus")


def is_own_launch(invocation: Invocation) -> bool:
    """Tell whether a command starts others by ``opsk launch``."""
    return _start(invocation) is not None


def without_spares(resources: Resources, invocations: Sequence[Invocation], findings: Findings) -> Resources:
    """Return what the ranks get of what the job gets, and state it.

    ``--nodes`` says how many nodes are used at first; without ``--per-node`` each rank is a task of its own, one a GPU
    or as many as ``--tasks-per-node`` says.
    """
    invocation = next((entry for entry in invocations if is_own_launch(entry)), None)
    if invocation is None:
        return resources
    flags = _own_flags(invocation)
    if "--per-node" in flags:
        tasks: int | None = 1
    else:
        tasks = _number(flags.get("--tasks-per-node")) or resources.gpus_per_node
    resources = replace(resources, ntasks_per_node=tasks)
    nodes = flags.get("--nodes")
    return resources if nodes is None else _on_nodes(resources, nodes, findings)


def _on_nodes(resources: Resources, asked: Argument, findings: Findings) -> Resources:
    """Return what so many nodes of the job have; nothing where their number is not known."""
    nodes, each = _number(asked), resources.gpus_per_node
    if nodes is None:
        why = asked.value.why or f"{asked.shown[:80]} is no positive whole number"
        for name in _SIZES:
            findings.cannot_tell(name, why, asked.line)
        return replace(resources, nodes=None, gpus=None)
    if resources.nodes is not None and nodes > resources.nodes:
        return resources  # opsk launch itself refuses that
    findings.state("plan.nodes", nodes, asked.line, f"{OWN_LAUNCHER} {asked.shown}")
    if each is None:
        findings.values.pop("plan.gpus", None)
        findings.evidence.pop("plan.gpus", None)
        return replace(resources, nodes=nodes, gpus=None)
    findings.state("plan.gpus", nodes * each, asked.line, f"nodes {nodes} × {each} GPUs")
    stated = (findings.evidence[name] for name in _SIZES)
    kept = (entry for entry in resources.evidence if entry.field not in _SIZES)
    return replace(resources, nodes=nodes, gpus=nodes * each, evidence=(*kept, *stated))


def _start(invocation: Invocation) -> int | None:
    """Return where the words behind ``opsk launch`` begin."""
    names = names_of(invocation)
    if "opsk" not in names:  # nearly no command has that word
        return None
    return next((at + 2 for at in range(len(names) - 1) if names[at : at + 2] == ("opsk", "launch")), None)


def _own_flags(invocation: Invocation) -> dict[str, Argument]:
    """Return the flags of ``opsk launch`` itself; what stands behind ``--`` is the command's."""
    words = invocation.words[_start(invocation) :]
    end = next((at for at, word in enumerate(words) if word.known == "--"), len(words))
    return parse_arguments(words[:end], valueless=_VALUELESS).flags


def _number(argument: Argument | None) -> int | None:
    """Return a flag's value, where it is certainly a positive whole number."""
    known = argument.value.known if argument is not None and argument.certain else None
    if not known or not known.isascii() or not known.isdigit() or len(known) > _MOST_DIGITS:
        return None
    return int(known) or None
