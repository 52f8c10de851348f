"""Defines the Slurm request that advice is based on, and parses it from the forms of each hook and release.

``cli_filter`` sees options by their long names and as text; ``job_submit`` sees fields of ``job_desc``, where "not
given" is a large number and GPUs are written ``gres:gpu:8`` up to 23.02 and ``gres/gpu:8`` or ``gres/gpu=8`` later.
Both become one ``SlurmRequest``; a value that is not given, or given as a range, is ``None``.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opsk_jobcheck.submission.protocol import AdviseQuestion, SubmitQuestion

MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")
"""Options that request host memory; a job has one of them."""
NOT_GIVEN = frozenset({0xFFFFFFFE, 0xFFFFFFFF, 0xFFFE, 0xFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})
"""``NO_VAL`` and ``INFINITE`` of slurm.h in 32, 16 and 64 bits."""
MAX_COUNT = 1 << 24
"""Larger counts are overflow or invalid: no cluster is that large."""
_SPREADING = frozenset(
    {"nodes", "nodelist", "nodefile", "ntasks", "ntasks-per-gpu", "gpus", "gpus-per-task", "tres-per-task"}
)
"""Without any of these Slurm gives one node (``--nodes`` in sbatch(1)), but in a partition that has ``MinNodes``."""
_GRES_PREFIX = re.compile(r"^gres[:/]", re.IGNORECASE)
_SOCKETS = re.compile(r"\(S:[^()]*\)")
_COUNT = re.compile(r"^([0-9]{1,9})([kKmM]?)$")
_TIME = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,9}(?::[0-9]{1,9}){0,2})")
_SUFFIX = {"": 1, "k": 1 << 10, "m": 1 << 20}
_UNSET = frozenset({"", "unset", "(null)", "n/a"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRequest:
    """A job request; ``None`` is "not asked for".

    When a hook fills it, command line, ``SBATCH_*`` environment and ``#SBATCH`` lines are already merged by Slurm and
    its values beat the script's own lines. ``environment`` holds the submitting user's variables where they are known:
    only those that the job will see (``--export``). ``arguments`` are the script's own arguments (``$1``, ``$2``, ...),
    ``None`` where nobody knows them: whoever checks a script may give it some when it is submitted.

    Parameters
    ----------
    is_merged
        This is the complete request to Slurm. A ``#SBATCH`` line for a size that is ``None`` here is not in force: the
        command line gives a range, or ``srun``, ``salloc`` or slurmrestd never read that line.
    is_heterogeneous
        The job has several components with sizes of their own, of which a hook sees one at a time: no size is set.
    is_crontab
        The job is started by a line of a crontab, whenever its time comes.
    is_array
        Each task of an array is a job of its own, of the requested size.
    memory
        Given values of ``mem``, ``mem-per-cpu``, ``mem-per-gpu``, as text; ``job_submit`` does not get them.
    default_time_s, default_time_source
        The time limit of a job that requests none, and what sets it; ``None`` where that is unknown.
    is_memory_known
        Whether ``memory`` is all that was requested.
    is_left_to_partition
        No number of nodes was requested: ``nodes`` is Slurm's number in a partition without ``MinNodes``.
    is_exclusive
        Whole nodes are requested.
    directory, submit_directory
        Where the job starts (``--chdir``), and where it was submitted; absolute.
    """

    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    gpu_type: str | None = None
    cpus_per_task: int | None = None
    memory: Mapping[str, str] = field(default_factory=dict)
    partition: str | None = None
    constraint: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    reservation: str | None = None
    account: str | None = None
    qos: str | None = None
    time_limit_s: float | None = None
    default_time_s: float | None = None
    default_time_source: str = ""
    is_memory_known: bool = field(default=True, compare=False)
    is_merged: bool = False
    is_heterogeneous: bool = False
    is_crontab: bool = False
    is_array: bool = False
    is_left_to_partition: bool = False
    is_exclusive: bool = False
    directory: str | None = None
    submit_directory: str | None = None
    arguments: tuple[str, ...] | None = None
    environment: Mapping[str, str] | None = field(default=None)


def parse_gpus(text: object, *, bare: bool = False) -> tuple[int | None, str | None]:
    """Return the GPU count and type that a TRES or GRES text requests; both ``None`` when it requests no GPU.

    Parameters
    ----------
    text
        ``gres:gpu:8``, ``gres/gpu:h100:8``, ``gpu``, ``cpu=4,gres/gpu=1``, ``gpu:a100:2,gpu:h100:2`` (4, no one type).
        Of several counts of one type the largest is taken, as slurmctld does: ``--gres`` and ``--gpus-per-node`` of one
        job are both here.
    bare
        The text is the value of ``--gpus`` and similar options, where ``gpu`` is left out: ``8``, ``h100:8``.
    """
    counts: dict[str | None, int] = {}
    if not text:
        return None, None
    for part in _SOCKETS.sub("", str(text)).split(","):
        words = _GRES_PREFIX.sub("", part.strip()).replace("=", ":").split(":")
        if bare:
            words = ["gpu", *words]
        if words[0].lower() != "gpu":
            continue
        count, kind = _count_and_type(words[1:])
        if count is None:
            continue
        counts[kind] = max(count, counts.get(kind, 0))
    return (sum(counts.values()) if counts else None), next(iter(counts)) if len(counts) == 1 else None


def _count_and_type(words: list[str]) -> tuple[int | None, str | None]:
    """Split the words after ``gpu``: nothing, a count, a type, or both."""
    if not words:
        return 1, None
    last = _COUNT.match(words[-1])
    kind = ":".join(words[:-1] if last else words).strip(": ").lower() or None
    if last is None:
        return (1, kind) if words[-1] and not words[-1][0].isdigit() else (None, None)
    return int(last[1]) * _SUFFIX[last[2].lower()], kind


def parse_submit_request(question: SubmitQuestion) -> SlurmRequest:
    """Return the request of ``job_submit``; the environment is known only where the hook is configured to send it."""
    job = question.job
    per_node, kind = parse_gpus(job.get("tres_per_node") or job.get("gres"))
    in_all, kind_in_all = parse_gpus(job.get("tres_per_job"))
    per_task, kind_per_task = parse_gpus(job.get("tres_per_task"))
    per_socket, kind_per_socket = parse_gpus(job.get("tres_per_socket"))
    if per_node is None:
        per_node, kind = _multiply_sockets(per_socket, number(job.get("sockets_per_node"))), kind or kind_per_socket
    min_nodes, max_nodes = number(job.get("min_nodes")), number(job.get("max_nodes"))
    ntasks, ntasks_per_node = number(job.get("num_tasks")), number(job.get("ntasks_per_node"))
    is_left = bool(job) and (min_nodes, in_all, per_task) == (None, None, None) and ntasks in (None, 1, ntasks_per_node)
    if is_left:
        min_nodes, max_nodes = 1, None
    minutes = number(job.get("time_limit"))
    request = SlurmRequest(
        nodes=min_nodes if max_nodes is None or max_nodes == min_nodes else None,
        ntasks=ntasks,
        ntasks_per_node=ntasks_per_node,
        gpus=in_all,
        gpus_per_node=per_node,
        gpus_per_task=per_task,
        gpu_type=kind or kind_in_all or kind_per_task,
        cpus_per_task=number(job.get("cpus_per_task")),
        partition=words(job.get("partition")),
        constraint=words(job.get("features")),
        nodelist=words(job.get("req_nodes")),
        exclude=words(job.get("exc_nodes")),
        reservation=words(job.get("reservation")),
        account=words(job.get("account")),
        qos=words(job.get("qos")),
        time_limit_s=None if minutes is None else minutes * 60.0,
        is_memory_known=False,
        is_merged=True,
        is_heterogeneous=is_given(job.get("het_job_offset")),
        is_crontab=job.get("cron_job") is True,
        is_array=words(job.get("array_inx")) is not None,
        is_left_to_partition=is_left,
        is_exclusive=job.get("shared") == 0,
        arguments=_arguments(question.argv),
        environment=question.env,
    )
    return without_sizes(request) if request.is_heterogeneous else request


def _arguments(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the arguments of a script; unknown where not even its own name is known (``--wrap``, standard input)."""
    return argv[1:] if argv else None


def parse_advise_request(question: AdviseQuestion) -> SlurmRequest:
    """Return the request of ``cli_filter``, with the environment that the job will see."""
    options = _parse_cli_options(question.options_json)
    directory = absolute(question.cwd)
    request = replace(
        options.request,
        is_heterogeneous=question.heterogeneous,
        directory=directory,
        submit_directory=None if options.has_chdir else directory,
        arguments=_arguments(question.argv),
        environment=job_environment(question.env, options.export),
    )
    return without_sizes(request) if request.is_heterogeneous else request


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParsedOptions:
    """The result of parsing options: the request, the variables that the job sees, and whether it starts elsewhere."""

    request: SlurmRequest
    export: str
    has_chdir: bool


def _parse_cli_options(options_json: str) -> _ParsedOptions:
    """Return the request in the options of ``json_cli_options``."""
    options = parse_options(options_json)
    gres_count, gres_kind = parse_gpus(options.get("gres"))
    per_node, kind = parse_gpus(options.get("gpus-per-node"), bare=True)
    in_all, kind_in_all = parse_gpus(options.get("gpus"), bare=True)
    per_task, kind_per_task = parse_gpus(options.get("gpus-per-task"), bare=True)
    if per_task is None:
        per_task, kind_per_task = parse_gpus(options.get("tres-per-task"))
    per_socket, kind_per_socket = parse_gpus(options.get("gpus-per-socket"), bare=True)
    if per_node is None and gres_count is None:
        per_node, kind = _multiply_sockets(per_socket, _count_sockets(options)), kind or kind_per_socket
    is_left = bool(options) and not _SPREADING & options.keys()
    request = SlurmRequest(
        nodes=1 if is_left else node_count(options.get("nodes")),
        ntasks=number(options.get("ntasks")),
        ntasks_per_node=number(options.get("ntasks-per-node")),
        gpus=in_all,
        gpus_per_node=max((count for count in (per_node, gres_count) if count is not None), default=None),
        gpus_per_task=per_task,
        gpu_type=kind or gres_kind or kind_in_all or kind_per_task,
        cpus_per_task=number(options.get("cpus-per-task")),
        memory={name: value for name in MEMORY_OPTIONS if (value := words(options.get(name)))},
        partition=words(options.get("partition")),
        constraint=words(options.get("constraint")),
        nodelist=words(options.get("nodelist")),
        exclude=words(options.get("exclude")),
        reservation=words(options.get("reservation")),
        account=words(options.get("account")),
        qos=words(options.get("qos")),
        time_limit_s=seconds(options.get("time")),
        is_merged=bool(options),
        is_array=words(options.get("array")) is not None,
        is_left_to_partition=is_left,
        # the same option holds what --oversubscribe and --exclusive=user ask for (slurm_opt.c)
        is_exclusive=options.get("exclusive") == "exclusive",
    )
    return _ParsedOptions(request=request, export=options.get("export", ""), has_chdir="chdir" in options)


def absolute(path: str) -> str | None:
    """Return a directory that is absolute and safe to join paths to, else ``None``."""
    return path if path.startswith("/") and "\0" not in path and len(path) < 4096 else None


def without_sizes(request: SlurmRequest) -> SlurmRequest:
    """Return a request without the fields that differ between the components of a heterogeneous job."""
    return replace(
        request,
        nodes=None,
        ntasks=None,
        ntasks_per_node=None,
        gpus=None,
        gpus_per_node=None,
        gpus_per_task=None,
        gpu_type=None,
        cpus_per_task=None,
        is_left_to_partition=False,
    )


def _multiply_sockets(per_socket: int | None, sockets: int | None) -> int | None:
    """Return the GPUs of a node requested by socket; Slurm requires the number of sockets with it."""
    return per_socket * sockets if per_socket is not None and sockets is not None else None


def _count_sockets(options: Mapping[str, str]) -> int | None:
    """Return the sockets of a node: ``--sockets-per-node``, or the first number of ``--extra-node-info``."""
    return number(options.get("sockets-per-node")) or number(options.get("extra-node-info", "").partition(":")[0])


def seconds(text: object) -> float | None:
    """Return a time limit in seconds; ``None`` for none, ``UNLIMITED`` and what is no time.

    Source: ``--time`` in sbatch(1): ``M``, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M``, ``D-H:M:S``.
    """
    match = _TIME.fullmatch(str(text or "").strip())
    if match is None:
        return None
    parts = [int(part) for part in match[2].split(":")]
    if match[1] is not None:
        hours, minutes, rest = (*parts, 0, 0)[:3]
        return (int(match[1]) * 24.0 + hours) * 3600 + minutes * 60 + rest
    if len(parts) == 3:
        return parts[0] * 3600.0 + parts[1] * 60 + parts[2]
    return parts[0] * 60.0 + sum(parts[1:])


def parse_options(text: str) -> dict[str, str]:
    """Return the options of ``json_cli_options`` that are set, as text; a broken document has none."""
    try:
        document = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    if isinstance(document.get("options"), dict):
        document = document["options"]
    return {
        str(name).replace("_", "-"): str(value)
        for name, value in document.items()
        if isinstance(value, str | int | float) and str(value).strip().lower() not in _UNSET
    }


def job_environment(mentioned: Mapping[str, str], export: str) -> dict[str, str]:
    """Return those of the mentioned variables that ``--export`` lets the job see, with the values that it sets.

    Source: ``--export`` in sbatch(1): ``ALL`` (default), ``NONE``, ``NIL``, names and ``name=value``, comma separated.
    """
    parts = [part.strip() for part in export.split(",") if part.strip()] or ["ALL"]
    assigned = dict(part.split("=", 1) for part in parts if "=" in part)
    named = {part for part in parts if "=" not in part}
    if "ALL" in {name.upper() for name in named}:
        return {**mentioned, **assigned}
    exported = {name: value for name, value in mentioned.items() if name in named or name.startswith("SLURM_")}
    return {**exported, **assigned}


def node_count(text: object) -> int | None:
    """Return the number of nodes of ``--nodes``; a range or a list of several is no number."""
    first, _, last = str(text or "").partition("-")
    count = number(first)
    return count if not last or number(last) == count else None


def number(value: object) -> int | None:
    """Return a positive whole number that was actually given, else ``None``."""
    try:
        count = int(float(str(value)))
    except (ValueError, OverflowError):
        return None
    return count if 0 < count < MAX_COUNT and count not in NOT_GIVEN else None


def is_given(value: object) -> bool:
    """Return whether a field that may be zero was actually given."""
    return isinstance(value, int | float) and not isinstance(value, bool) and int(value) not in NOT_GIVEN


def words(value: object) -> str | None:
    """Return a text that was actually given, else ``None``."""
    text = "" if value is None else str(value)
    return None if text.strip().lower() in _UNSET else text


def command_text(command: str, argv: tuple[str, ...]) -> str:
    """Return the script that stands for a command typed after ``srun`` or ``salloc``."""
    line = shlex.join(argv)
    return f"#!/bin/sh\n{'srun ' if command == 'srun' else ''}{line}\n"


def contradicts(earlier: SlurmRequest, request: SlurmRequest) -> bool:
    """Return whether two requests cannot be the same submission: both state a size, and state it differently.

    Fields that only one of the two hooks can see (environment, defaults filled in by Slurm) are no contradiction. But
    no size that ``cli_filter`` got is lost on the way to ``job_submit``, except in heterogeneous jobs.
    """
    names = ("nodes", "gpus", "gpus_per_node", "gpus_per_task", "gpu_type", "ntasks_per_node", "partition")
    pairs = ((getattr(earlier, name), getattr(request, name)) for name in names)
    if any(first is not None and second is not None and first != second for first, second in pairs):
        return True
    if earlier.is_merged and request.is_merged and not request.is_heterogeneous:
        size_names = ("nodes", "gpus", "gpus_per_node", "gpus_per_task", "ntasks_per_node")
        if any(getattr(earlier, name) is not None and getattr(request, name) is None for name in size_names):
            return True
        if earlier.is_array != request.is_array:
            return True
    return (earlier.arguments or ()) != (request.arguments or ())
