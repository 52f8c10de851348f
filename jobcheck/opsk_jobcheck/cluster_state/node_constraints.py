"""Parses which nodes a job may get: partitions, features, node list and excluded nodes, as requested from Slurm."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import prod

from opsk import hostlist
from opsk.errors import InputError
from opsk_jobcheck.scripts.sbatch.directives import read_directive_options
from opsk_jobcheck.submission.request import MEMORY_OPTIONS, SlurmRequest, seconds

MAX_CHARACTERS = 4096
_TOKEN = re.compile(r"[()&|,]|[^()&|,\s]+")
_COUNTED = re.compile(r"[\[\]*:]")
_MAX_DEPTH = 8

_SHARE_OF_CPUS = 2
"""Slurm allocates whole cores: a job may get, and memory is counted by, twice the CPUs that it requests."""
_EACH = {"mem": "node", "mem-per-cpu": "cpu", "mem-per-gpu": "gpu"}
_SIZE = re.compile(r"\s*([0-9]{1,12})([KMGT]?)B?\s*", re.IGNORECASE)
_UNITS = {"K": 1 << 10, "": 1 << 20, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


FeatureTest = Callable[[Collection[str]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemoryRequest:
    """Host memory requested from Slurm: bytes for each node, CPU or GPU (``each``), and the option text."""

    size_bytes: int
    each: str
    words: str

    def per_node_bytes(self, *, gpus_per_node: int | None, cpus_per_node: int | None) -> int | None:
        """Return the most memory that a node's part of the job may have; ``None`` where that is unknown."""
        if self.each == "node":
            return self.size_bytes
        count = gpus_per_node if self.each == "gpu" else cpus_per_node
        return self.size_bytes * count * (_SHARE_OF_CPUS if self.each == "cpu" else 1) if count else None


def parse_memory_request(options: Mapping[str, str]) -> HostMemoryRequest | None:
    """Return the memory request of sbatch's options; ``None`` for none, all of a node, several at once, or no size.

    ``--mem`` and its kin count in MiB unless a letter says otherwise, by powers of 1024: sbatch(1).
    """
    names = [name for name in MEMORY_OPTIONS if options.get(name)]
    match = _SIZE.fullmatch(options[names[0]]) if len(names) == 1 else None
    if match is None or not int(match[1]):
        return None
    option_text = f"--{names[0]}={options[names[0]].strip()[:40]}"
    return HostMemoryRequest(
        size_bytes=int(match[1]) * _UNITS[match[2].upper()], each=_EACH[names[0]], words=option_text
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstraints:
    """The nodes that a job requests.

    Parameters
    ----------
    partitions
        Any of these; empty for Slurm's default.
    constraint
        Features, as in ``--constraint``.
    only, exclude
        ``--nodelist`` and ``--exclude``. A node list shorter than the job's size must be part of it.
    reservation
        ``--reservation``; its nodes are unknown here.
    is_exclusive
        Whole nodes are requested.
    memory, cpus_per_node
        Requested host memory, and CPUs of a node where tasks and CPUs of each are given; placements do not depend on
        them.
    leaves_memory
        Whether no host memory is requested: the partition's default applies.
    time_limit_s, names_qos
        The requested time limit [s], and whether a QOS is named, whose limits may override the partition's.
    unclear
        The part that cannot be parsed, as text; then free nodes are not reported.
    """

    partitions: tuple[str, ...] = ()
    constraint: str | None = None
    only: tuple[str, ...] = ()
    exclude: frozenset[str] = frozenset()
    reservation: str | None = None
    is_exclusive: bool = False
    memory: HostMemoryRequest | None = field(default=None, compare=False)
    cpus_per_node: int | None = field(default=None, compare=False)
    leaves_memory: bool = field(default=False, compare=False)
    time_limit_s: float | None = field(default=None, compare=False)
    names_qos: bool = field(default=False, compare=False)
    unclear: str = ""


ANY_NODES = NodeConstraints()


def parse_node_constraints(text: str | bytes, request: SlurmRequest | None = None) -> NodeConstraints:
    """Return the node constraints of a script and its request; the request overrides the script. Never raises."""
    script = text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text
    options = read_directive_options(script)

    def read_option(name: str, field: str) -> str | None:
        given = getattr(request, field, None) if request is not None else None
        value = given if given is not None else options.get(name)
        return str(value)[: MAX_CHARACTERS + 1] if value else None

    constraint, reservation = read_option("constraint", "constraint"), read_option("reservation", "reservation")
    partitions = read_option("partition", "partition") or ""
    is_exclusive = options.get("exclusive") in ("", "exclusive") or bool(getattr(request, "is_exclusive", False))
    cpus, tasks = read_option("cpus-per-task", "cpus_per_task"), read_option("ntasks-per-node", "ntasks_per_node")
    try:
        if constraint is not None:
            build_feature_test(constraint)
        return NodeConstraints(
            partitions=tuple(name for name in partitions.split(",") if name),
            constraint=constraint,
            only=_expand_hosts(read_option("nodelist", "nodelist"), "--nodelist"),
            exclude=frozenset(_expand_hosts(read_option("exclude", "exclude"), "--exclude")),
            reservation=reservation,
            is_exclusive=is_exclusive,
            memory=_select_memory_request(options, request),
            cpus_per_node=_multiply(cpus, tasks),
            leaves_memory=_leaves_memory(options, request),
            time_limit_s=(request.time_limit_s if request is not None else None) or seconds(options.get("time")),
            names_qos=read_option("qos", "qos") is not None,
        )
    except InputError as error:
        return NodeConstraints(unclear=error.message)


def _select_memory_request(options: Mapping[str, str], request: SlurmRequest | None) -> HostMemoryRequest | None:
    """Return the requested host memory; a request that Slurm has merged overrides the script."""
    if request is not None and (request.memory or request.is_merged):
        return parse_memory_request(request.memory)
    return parse_memory_request(options)


def _leaves_memory(options: Mapping[str, str], request: SlurmRequest | None) -> bool:
    """Return whether a job certainly requests no host memory."""
    if request is not None and (request.memory or not request.is_memory_known):
        return False
    is_in_script = any(options.get(name) for name in MEMORY_OPTIONS)
    return not is_in_script or (request is not None and request.is_merged)


def _multiply(*counts: str | None) -> int | None:
    """Return the product of counts, ``None`` where one is not given."""
    numbers = [int(count) for count in counts if count and count.isascii() and count.isdigit() and len(count) < 8]
    return prod(numbers) if len(numbers) == len(counts) else None


def _expand_hosts(value: str | None, option: str) -> tuple[str, ...]:
    """Return the nodes of a host list; a file name stands for a list that is unknown here.

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


def build_feature_test(text: str) -> FeatureTest:
    """Return a function that checks whether a node with some features satisfies ``--constraint``.

    ``&`` and ``|`` have one precedence and are read from left to right, as Slurm does (sbatch(1)); a comma is ``&``.

    Raises
    ------
    InputError
        The text asks for counts of nodes (``[a*2&b*4]``, ``a*2``), or for one of several features for all nodes
        (``[a|b]``), or is invalid for Slurm.
    """
    if _COUNTED.search(text):
        raise InputError("--constraint counts nodes, or wants one of several features for all of them")
    tokens = _TOKEN.findall(text[:MAX_CHARACTERS])
    test, rest = _parse_terms(tokens, 0)
    if rest:
        raise InputError("--constraint is not understood")
    return test


def _parse_terms(tokens: list[str], depth: int) -> tuple[FeatureTest, list[str]]:
    """Parse terms with operators between them; return the test and the remaining tokens."""
    test, rest = _parse_term(tokens, depth)
    while rest and rest[0] in "&|,":
        other, after = _parse_term(rest[1:], depth)
        test, rest = _join_tests(test, other, is_any=rest[0] == "|"), after
    return test, rest


def _join_tests(first: FeatureTest, second: FeatureTest, *, is_any: bool) -> FeatureTest:
    """Return the test of either, or of both."""
    if is_any:
        return lambda features: first(features) or second(features)
    return lambda features: first(features) and second(features)


def _parse_term(tokens: list[str], depth: int) -> tuple[FeatureTest, list[str]]:
    """Parse a feature, or an expression in parentheses."""
    if not tokens or depth > _MAX_DEPTH or tokens[0] in "&|,)":
        raise InputError("--constraint is not understood")
    if tokens[0] != "(":
        name = tokens[0]
        return (lambda features: name in features), tokens[1:]
    test, rest = _parse_terms(tokens[1:], depth + 1)
    if not rest or rest[0] != ")":
        raise InputError("--constraint is not understood")
    return test, rest[1:]
