"""Which nodes may a job get at all? By partition, features, node list and what it excludes, as asked of Slurm."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import prod

from opsk import hostlist
from opsk.errors import InputError
from opsk_jobcheck.host_memory import HostMemoryAsked, memory_asked
from opsk_jobcheck.scripts.sbatch.directives import directive_options
from opsk_jobcheck.submission.request import SlurmRequest

MAX_CHARACTERS = 4096
_TOKEN = re.compile(r"[()&|,]|[^()&|,\s]+")
_COUNTED = re.compile(r"[\[\]*:]")
_DEEPEST = 8

FeatureTest = Callable[[Collection[str]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesWanted:
    """What a job asks of its nodes.

    Parameters
    ----------
    partitions
        Any of these; empty where Slurm takes its default.
    constraint
        Features, as in ``--constraint``.
    only, exclude
        ``--nodelist`` and ``--exclude``. A node list shorter than the job's size must be part of it.
    reservation
        ``--reservation``; which nodes it holds is not known here.
    is_exclusive
        Whole nodes are asked for.
    memory, cpus_per_node
        Host memory as asked for, and CPUs of a node where tasks and CPUs of each are given; placements do not depend
        on them.
    unclear
        What of it cannot be understood, in words; then nothing is said of free nodes.
    """

    partitions: tuple[str, ...] = ()
    constraint: str | None = None
    only: tuple[str, ...] = ()
    exclude: frozenset[str] = frozenset()
    reservation: str | None = None
    is_exclusive: bool = False
    memory: HostMemoryAsked | None = field(default=None, compare=False)
    cpus_per_node: int | None = field(default=None, compare=False)
    unclear: str = ""


ANY_NODES = NodesWanted()


def wanted_nodes(text: str | bytes, request: SlurmRequest | None = None) -> NodesWanted:
    """Return what a script and its request ask of nodes; the request beats the script. Never raises."""
    script = text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text
    options = directive_options(script)

    def asked(name: str, field: str) -> str | None:
        given = getattr(request, field, None) if request is not None else None
        value = given if given is not None else options.get(name)
        return str(value)[: MAX_CHARACTERS + 1] if value else None

    constraint, reservation = asked("constraint", "constraint"), asked("reservation", "reservation")
    partitions = asked("partition", "partition") or ""
    is_exclusive = "exclusive" in options or bool(getattr(request, "is_exclusive", False))
    cpus, tasks = asked("cpus-per-task", "cpus_per_task"), asked("ntasks-per-node", "ntasks_per_node")
    try:
        if constraint is not None:
            feature_test(constraint)
        return NodesWanted(
            partitions=tuple(name for name in partitions.split(",") if name),
            constraint=constraint,
            only=_names(asked("nodelist", "nodelist"), "--nodelist"),
            exclude=frozenset(_names(asked("exclude", "exclude"), "--exclude")),
            reservation=reservation,
            is_exclusive=is_exclusive,
            memory=_memory(options, request),
            cpus_per_node=_product(cpus, tasks),
        )
    except InputError as error:
        return NodesWanted(unclear=error.message)


def _memory(options: Mapping[str, str], request: SlurmRequest | None) -> HostMemoryAsked | None:
    """Return the host memory asked for; what Slurm has merged counts alone."""
    if request is not None and (request.memory or request.is_merged):
        return memory_asked(request.memory)
    return memory_asked(options)


def _product(*counts: str | None) -> int | None:
    """Return the product of counts, ``None`` where one is not given."""
    given = [int(count) for count in counts if count and count.isascii() and count.isdigit() and len(count) < 8]
    return prod(given) if len(given) == len(counts) else None


def _names(value: str | None, option: str) -> tuple[str, ...]:
    """Return the nodes of a host list; a file name stands for a list that is not known here.

    Raises
    ------
    InputError
        It is no host list.
    """
    if value is None:
        return ()
    if "/" in value or len(value) > MAX_CHARACTERS:
        raise InputError(f"{option} names a file, or more nodes than are read")
    try:
        return hostlist.expand(value)
    except InputError as error:
        raise InputError(f"{option} is no host list") from error


def feature_test(text: str) -> FeatureTest:
    """Return what tells whether a node with these features satisfies ``--constraint``.

    ``&`` and ``|`` have one rank and are read from left to right, as Slurm does (sbatch(1)); a comma is ``&``.

    Raises
    ------
    InputError
        It asks for counts of nodes (``[a*2&b*4]``, ``a*2``), or for one of several for all nodes (``[a|b]``), or is
        none that Slurm would take.
    """
    if _COUNTED.search(text):
        raise InputError("--constraint counts nodes, or wants one of several features for all of them")
    tokens = _TOKEN.findall(text[:MAX_CHARACTERS])
    test, rest = _either(tokens, 0)
    if rest:
        raise InputError("--constraint is not understood")
    return test


def _either(tokens: list[str], depth: int) -> tuple[FeatureTest, list[str]]:
    """Read terms with signs between them; return the test and what is left."""
    test, rest = _term(tokens, depth)
    while rest and rest[0] in "&|,":
        other, after = _term(rest[1:], depth)
        test, rest = _joined(test, other, is_any=rest[0] == "|"), after
    return test, rest


def _joined(one: FeatureTest, other: FeatureTest, *, is_any: bool) -> FeatureTest:
    """Return the test of either, or of both."""
    if is_any:
        return lambda features: one(features) or other(features)
    return lambda features: one(features) and other(features)


def _term(tokens: list[str], depth: int) -> tuple[FeatureTest, list[str]]:
    """Read a feature, or what stands in parentheses."""
    if not tokens or depth > _DEEPEST or tokens[0] in "&|,)":
        raise InputError("--constraint is not understood")
    if tokens[0] != "(":
        name = tokens[0]
        return (lambda features: name in features), tokens[1:]
    test, rest = _either(tokens[1:], depth + 1)
    if not rest or rest[0] != ")":
        raise InputError("--constraint is not understood")
    return test, rest[1:]
