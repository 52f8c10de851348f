"""Computes the nodes, tasks and GPUs of a job from the script's directives and the request to Slurm.

The command line overrides the input environment (``SBATCH_PARTITION``), and both override the script. Source: INPUT
ENVIRONMENT VARIABLES in sbatch(1); ``env_vars`` in ``src/sbatch/opt.c`` of Slurm 22.05 to 26.05. The variables that
Slurm sets, and the sizes that follow by arithmetic, are computed from them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from opsk.errors import InputError
from opsk.hostlist import expand
from opsk.workload.rules import count_ends
from opsk.workload.workload import Evidence, Problem, Unknown
from opsk_jobcheck.scripts.bash.values import Text, literal, unknown
from opsk_jobcheck.scripts.sbatch.directives import Directives, read_directive_options, read_words
from opsk_jobcheck.scripts.settings.deepspeed_config import derive_global_batch
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.submission.request import MEMORY_OPTIONS, SlurmRequest, seconds

ENVIRONMENT = {
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GRES": "gres",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_PARTITION": "partition",
    "SBATCH_TRES_PER_TASK": "tres-per-task",
}
"""Those variables that advice depends on, and the options that they stand for."""
REQUEST = "Slurm request"
"""``file`` in the evidence of a value that came with the request."""
HETEROGENEOUS = "the job is heterogeneous (hetjob): every component has its own nodes and GPUs"
NOT_IN_FORCE = "this line has no effect: another option overrides it, or sbatch did not read it"
_FIELDS = {
    "nodes": "plan.nodes",
    "gpus_per_node": "plan.gpus_per_node",
    "gpus": "plan.gpus",
    "ntasks": "slurm.ntasks",
    "ntasks_per_node": "slurm.ntasks_per_node",
    "ntasks_per_gpu": "slurm.ntasks_per_gpu",
    "gpus_per_task": "slurm.gpus_per_task",
    "cpus_per_task": "slurm.cpus_per_task",
    "gpu_type": "gpu",
    "partition": "slurm.partition",
    "constraint": "slurm.constraint",
    "nodelist": "slurm.nodelist",
}
_SIZES = tuple(name for name in _FIELDS if name not in ("partition", "constraint"))
_BY_OPTION = {
    "gpus": ("SLURM_GPUS", "gpus"),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE", "gpus_per_node"),
    "gpus-per-task": ("SLURM_GPUS_PER_TASK", "gpus_per_task"),
    "ntasks-per-gpu": ("SLURM_NTASKS_PER_GPU", "ntasks_per_gpu"),
}
"""The variables that hold the value of an option, and the attribute of its number, by option.

Slurm 24.11 and 26.05 set ``SLURM_TRES_PER_TASK=gres/gpu=2`` in place of ``SLURM_GPUS_PER_TASK=2``.
"""
_RUNTIME = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_PROCID", "SLURM_NODEID")
_RUNTIME_MORE = ("SLURM_LOCALID", "SLURM_SUBMIT_DIR", "SLURM_JOB_NAME", "SLURMD_NODENAME", "SLURM_JOB_PARTITION")
_OF_ARRAYS = tuple(f"SLURM_ARRAY_{name}" for name in ("TASK_ID", "JOB_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX"))
_NUMBERS = {
    "SLURM_NNODES": "nodes",
    "SLURM_JOB_NUM_NODES": "nodes",
    "SLURM_NTASKS": "ntasks",
    "SLURM_NPROCS": "ntasks",
    "SLURM_NTASKS_PER_NODE": "ntasks_per_node",
    "SLURM_CPUS_PER_TASK": "cpus_per_task",
    "SLURM_GPUS_ON_NODE": "gpus_per_node",
}
"""Variables that are always set, by what they hold."""
_WHEN_IT_RUNS = {
    name: unknown(f"{name} is known only when the job runs", 0, filled=True)
    for name in (*_RUNTIME, *_RUNTIME_MORE, *_OF_ARRAYS)
}
_NOT_FIXED = {
    name: unknown(f"{name} is set by Slurm, and the script does not fix it", 0, filled=True) for name in _NUMBERS
}
_BUT_FOR_ARRAYS = {name: text for name, text in _WHEN_IT_RUNS.items() if name not in _OF_ARRAYS}
_COUNT = re.compile(r"[0-9]{1,9}")


def build_typed_request(
    words: Sequence[str],
    environ: Mapping[str, str],
    *,
    nodes: int | None = None,
    arguments: tuple[str, ...] | None = None,
) -> SlurmRequest:
    """Return the request of the environment and the command line; never raises.

    Parameters
    ----------
    words
        Options as typed after ``sbatch``.
    environ
        The submitting user's variables.
    nodes
        Number of nodes, if given separately; it overrides all.
    arguments
        The script's ``$1``, ``$2``, ...; ``None`` where that is not known.
    """
    inherited = [f"--{name}={environ[variable]}" for variable, name in ENVIRONMENT.items() if environ.get(variable)]
    requested = read_words((*inherited, *words), file="sbatch")
    options = read_directive_options(f"#SBATCH {shlex.join((*inherited, *words))}")
    return SlurmRequest(
        nodes=nodes or requested.nodes,
        ntasks=requested.ntasks,
        ntasks_per_node=requested.ntasks_per_node,
        gpus=requested.gpus,
        gpus_per_node=requested.gpus_per_node,
        gpus_per_task=requested.gpus_per_task,
        gpu_type=requested.gpu_type,
        cpus_per_task=requested.cpus_per_task,
        memory={name: options[name] for name in MEMORY_OPTIONS if options.get(name)},
        partition=requested.partition,
        constraint=requested.constraint,
        nodelist=requested.nodelist,
        qos=options.get("qos"),
        time_limit_s=seconds(options.get("time")),
        is_array="array" in options,
        arguments=arguments,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of a job; ``None`` is "not requested, or unknown".

    Every value has one entry of evidence; one fixed by arithmetic carries the formula and the place of its last input.
    ``unknown`` holds requested values that are unknown; ``problems`` what sbatch refuses, changes or cannot mean.
    """

    scheduler: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    gpus: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    ntasks_per_gpu: int | None = None
    gpus_per_task: int | None = None
    cpus_per_task: int | None = None
    gpu_type: str | None = None
    partition: str | None = None
    constraint: str | None = None
    nodelist: str | None = None
    evidence: tuple[Evidence, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    problems: tuple[Problem, ...] = ()


def merge(directives: Directives, request: SlurmRequest | None, *, is_for_one_node: bool = False) -> Resources:
    """Return the resources of the job, with those that follow by arithmetic; never raises.

    Parameters
    ----------
    directives
        The script's own lines.
    request
        The request that Slurm received (command line, environment and script merged); it overrides the script.
    is_for_one_node
        Whether the script does not read its nodes: without ``--nodes`` it then runs on the one that Slurm gives.
    """
    merged = _Merger(directives)
    if request is not None:
        merged.override(request)
    if directives.is_heterogeneous or (request is not None and request.is_heterogeneous):
        merged.forget_sizes()
    merged.take_default_nodes(is_for_one_node=is_for_one_node and not (request is not None and request.is_merged))
    merged.derive_values()
    if request is not None and request.is_merged:
        merged.report_open_node_count()
    return Resources(
        scheduler=directives.scheduler,
        evidence=tuple(merged.evidence.values()),
        unknown=tuple(merged.unknown.values()),
        problems=tuple(merged.problems),
        **merged.values,  # type: ignore[arg-type]
    )


class _Merger:
    """The values while they are put together."""

    def __init__(self, directives: Directives) -> None:
        self.values: dict[str, int | str] = {
            name: value for name in _FIELDS if (value := getattr(directives, name)) is not None
        }
        self.evidence = {entry.field: entry for entry in directives.evidence}
        self.unknown = {entry.field: entry for entry in directives.unknown}
        self.problems = list(directives.problems)

    def override(self, request: SlurmRequest) -> None:
        """Replace the script's values by those that were requested."""
        for name, field in _FIELDS.items():
            value = getattr(request, name, None)
            if value is None and request.is_merged and hasattr(request, name):
                self._drop_unused(name)
            if value is None or value == self.values.get(name):
                continue
            self.values[name] = value
            text = f"{name.replace('_', '-')}={value}"
            self.evidence[field] = Evidence(field=field, value=value, file=REQUEST, line=0, text=text)
            self.unknown.pop(field, None)

    def _drop_unused(self, name: str) -> None:
        """Drop a value of the script that the request to Slurm does not have."""
        if self.values.pop(name, None) is None:
            return
        entry = self.evidence.pop(_FIELDS[name])
        self.unknown[entry.field] = Unknown(field=entry.field, why=NOT_IN_FORCE, file=entry.file, line=entry.line)

    def report_open_node_count(self) -> None:
        """Report why the number of GPUs is unknown, where only the number of nodes is missing."""
        if "gpus" in self.values or "nodes" in self.values or "gpus_per_node" not in self.values:
            return
        why = "Slurm chooses the number of nodes"
        self.unknown.setdefault("plan.gpus", Unknown(field="plan.gpus", why=why, file=REQUEST, line=0))

    def take_default_nodes(self, *, is_for_one_node: bool) -> None:
        """Take the nodes that Slurm gives where neither nodes, tasks nor GPUs of the whole job are requested.

        They are those of ``--nodelist``, else one where ``is_for_one_node``. Source: sbatch's man page, ``--nodes``:
        enough nodes for the resources per job, of which there are none. With ``--ntasks-per-gpu`` Slurm 26.05 may
        spread tasks over more nodes.
        """
        whole_job = ("nodes", "ntasks", "gpus", "gpus_per_task", "ntasks_per_gpu")
        is_open = any(name in self.values or _FIELDS[name] in self.unknown for name in whole_job)
        entry = self.evidence.get("plan.gpus_per_node")
        if is_open or entry is None or "slurm.nodelist" in self.unknown:
            return
        count, text = 1, "Slurm gives one node when none is requested"
        if "nodelist" in self.values:
            count = _count_hosts(str(self.values["nodelist"]))
            entry = self.evidence["slurm.nodelist"]
            text = entry.text
        elif not is_for_one_node:
            return
        if count:
            self.values["nodes"] = count
            self.evidence["plan.nodes"] = Evidence(
                field="plan.nodes", value=count, file=entry.file, line=entry.line, text=text
            )

    def forget_sizes(self) -> None:
        """Drop every size: a heterogeneous job has several components, and a hook receives one at a time."""
        place = next((entry for entry in self.unknown.values() if HETEROGENEOUS in entry.why), None)
        file, line = (place.file, place.line) if place else (REQUEST, 0)
        for name in _SIZES:
            self.values.pop(name, None)
            self.evidence.pop(_FIELDS[name], None)
        for name in ("nodes", "gpus_per_node", "gpus", "gpu_type"):
            self.unknown[_FIELDS[name]] = Unknown(field=_FIELDS[name], why=HETEROGENEOUS, file=file, line=line)

    def derive_values(self) -> None:
        """Add what follows from the rest."""
        self._limit_nodes_to_tasks()
        self._report_contradiction()
        product: Callable[[int, int], int | None] = lambda left, right: left * right  # noqa: E731
        if "plan.nodes" not in self.unknown:
            self._derive_one_node()
            self._derive("nodes", ("ntasks", "ntasks_per_node"), "/", _divide_up)
        self._derive("nodes", ("gpus", "gpus_per_node"), "/", _divide_exactly)
        self._derive("ntasks", ("nodes", "ntasks_per_node"), "x", product)
        self._derive_one_task_per_node()
        self._derive("ntasks", ("gpus", "gpus_per_task"), "/", _divide_exactly)
        self._derive("gpus_per_node", ("gpus_per_task", "ntasks_per_node"), "x", product)
        self._derive("gpus", ("gpus_per_task", "ntasks"), "x", product)
        self._derive("gpus", ("ntasks", "ntasks_per_gpu"), "/", _divide_exactly)
        self._derive("gpus", ("nodes", "gpus_per_node"), "x", product)
        self._derive("gpus_per_node", ("gpus", "nodes"), "/", _divide_exactly)
        self._derive("nodes", ("gpus", "gpus_per_node"), "/", _divide_exactly)
        self._derive("ntasks", ("nodes", "ntasks_per_node"), "x", product)
        self._derive("ntasks", ("gpus", "ntasks_per_gpu"), "x", product)

    def _derive(self, name: str, inputs: tuple[str, str], sign: str, rule: Callable[[int, int], int | None]) -> None:
        """Set ``name`` from two others where both are known and it is not."""
        if name in self.values:
            return
        left, right = self.values.get(inputs[0]), self.values.get(inputs[1])
        if not isinstance(left, int) or not isinstance(right, int):
            return
        value = rule(left, right)
        if value is None:
            return
        field = _FIELDS[name]
        last = max((self.evidence[_FIELDS[part]] for part in inputs), key=lambda entry: entry.line)
        text = f"{inputs[0]} {left} {sign} {inputs[1]} {right}"
        self.values[name] = value
        self.evidence[field] = Evidence(field=field, value=value, file=last.file, line=last.line, text=text)
        self.unknown.pop(field, None)

    def _limit_nodes_to_tasks(self) -> None:
        """Do as sbatch does when there are fewer tasks than nodes: take that many nodes."""
        nodes, tasks = self.values.get("nodes"), self.values.get("ntasks")
        if not isinstance(nodes, int) or not isinstance(tasks, int) or tasks >= nodes:
            return
        entry = self.evidence["slurm.ntasks"]
        what = f"{tasks} tasks cannot run on {nodes} nodes: sbatch takes {tasks} nodes"
        hint = "raise --ntasks or lower --nodes"
        self.problems.append(Problem(what=what, file=entry.file, line=entry.line, hint=hint))
        self.values["nodes"] = tasks
        text = f"no more nodes than tasks: {tasks} of {nodes}"
        self.evidence["plan.nodes"] = Evidence(
            field="plan.nodes", value=tasks, file=entry.file, line=entry.line, text=text
        )

    def _derive_one_node(self) -> None:
        """Take one node for the one task, or the one GPU of the job, that a script asks for.

        A step's one task states nothing about the job.
        """
        entry, text = self.evidence.get("slurm.ntasks"), "one task runs on one node"
        if self.values.get("ntasks") != 1:
            entry, text = self.evidence.get("plan.gpus"), "one GPU is on one node"
            is_one = self.values.get("gpus") == 1 and "ntasks" not in self.values and "slurm.ntasks" not in self.unknown
            entry = entry if is_one else None
        if "nodes" in self.values or entry is None or not entry.line:
            return
        self.values["nodes"] = 1
        self.evidence["plan.nodes"] = Evidence(field="plan.nodes", value=1, file=entry.file, line=entry.line, text=text)

    def _derive_one_task_per_node(self) -> None:
        """Take the GPUs of one task as those of a node, where nodes alone are requested: each then has one task."""
        others = ("ntasks", "ntasks_per_node", "ntasks_per_gpu", "gpus", "gpus_per_node")
        if "nodes" not in self.values or any(name in self.values or _FIELDS[name] in self.unknown for name in others):
            return
        count, entry = self.values.get("gpus_per_task"), self.evidence.get("slurm.gpus_per_task")
        if isinstance(count, int) and entry is not None:
            self.values["gpus_per_node"] = count
            text = f"gpus_per_task {count}, and one task a node when no tasks are requested"
            self.evidence["plan.gpus_per_node"] = Evidence(
                field="plan.gpus_per_node", value=count, file=entry.file, line=entry.line, text=text
            )

    def _report_contradiction(self) -> None:
        """Report two different numbers of GPUs, and drop both."""
        nodes, per_node, in_all = (self.values.get(name) for name in ("nodes", "gpus_per_node", "gpus"))
        if not (isinstance(nodes, int) and isinstance(per_node, int) and isinstance(in_all, int)):
            return
        if nodes * per_node == in_all:
            return
        entry = self.evidence["plan.gpus"]
        what = f"{in_all} GPUs are requested, but {nodes} nodes x {per_node} GPUs are {nodes * per_node}"
        self.problems.append(Problem(what=what, file=entry.file, line=entry.line, hint="leave out --gpus"))
        # both stay in the request, so neither can be trusted to be what the job gets
        for name in ("gpus", "gpus_per_node"):
            del self.values[name]
            del self.evidence[_FIELDS[name]]
            self.unknown[_FIELDS[name]] = Unknown(field=_FIELDS[name], why=what, file=entry.file, line=entry.line)


def _divide_exactly(dividend: int, divisor: int) -> int | None:
    """Return the exact quotient, or ``None`` when there is none."""
    return dividend // divisor if divisor and dividend % divisor == 0 else None


def _divide_up(dividend: int, divisor: int) -> int | None:
    """Return the quotient rounded up: the last node may have fewer tasks."""
    return -(-dividend // divisor) if divisor else None


def _count_hosts(text: str) -> int:
    """Return the number of nodes that a host list names, 0 where it is none."""
    try:
        return len(expand(text))
    except InputError:
        return 0


def build_slurm_variables(text: str, resources: Resources, request: SlurmRequest | None) -> dict[str, Text]:
    """Return the variables that Slurm sets.

    Parameters
    ----------
    text
        The script, for options that count by their name.
    resources
        What the job will get.
    request
        The request that Slurm received; it overrides the script.
    """
    given = dict(_NOT_FIXED)
    for name, what in _NUMBERS.items():
        if (number := getattr(resources, what)) is not None:
            given[name] = literal(str(number), 0)
    options = read_directive_options(text)
    given |= _build_option_variables(options, resources, request)
    if request is None or not request.is_merged:
        given |= _parse_export(options.get("export", ""))
    is_array = "array" in options or (request is not None and request.is_array)
    return given | (_WHEN_IT_RUNS if is_array else _BUT_FOR_ARRAYS)


def _parse_export(export: str) -> dict[str, Text]:
    """Return the variables that ``--export`` gives a value; a merged request has its own."""
    pairs = (part.strip().partition("=") for part in export.split(",") if "=" in part)
    return {name: literal(value, 0) for name, _, value in pairs if name.isidentifier()}


def _build_option_variables(
    options: dict[str, str], resources: Resources, request: SlurmRequest | None
) -> dict[str, Text]:
    """Return the variables that are there because of an option of the script."""
    given: dict[str, Text] = {}
    for option, (name, attribute) in _BY_OPTION.items():
        number = getattr(resources, attribute)
        if option not in options or number is None:
            continue
        requested = getattr(request, attribute, None)
        if requested is None and request is not None and request.is_merged and hasattr(request, attribute):
            continue  # the line is not in force
        given[name] = literal(options[option].strip() if requested is None else str(number), 0)
    return given


def derive_values(findings: Findings) -> None:
    """State what follows by arithmetic once nodes and GPUs are known."""
    _derive_virtual_stages(findings)
    gpus, tp, pp = findings.get("plan.gpus"), findings.get("plan.tp"), findings.get("plan.pp")
    cp = findings.get("plan.cp")
    if None in (gpus, tp, pp) or "plan.cp" in findings.unknown:
        return
    per_replica = tp * pp * (cp or 1)
    file, line = findings.find_source("plan.tp", "plan.pp")
    if gpus % per_replica:
        findings.problems.append(
            Problem(
                what=f"{gpus} GPUs are not a multiple of TP {tp} × PP {pp} × CP {cp or 1} = {per_replica}",
                file=file,
                line=line,
                hint="change the node count, TP or PP so that the product divides the GPUs",
            )
        )
        return
    dp = gpus // per_replica
    if (stated := findings.get("plan.dp")) not in (None, dp):
        _report_contradiction(findings, stated, dp, gpus=stated * per_replica)
        return
    if "plan.dp" in findings.unknown:
        return
    if stated is None:
        findings.state("plan.dp", dp, line, f"gpus {gpus} / (tp {tp} × pp {pp} × cp {cp or 1})", file=file)
    derive_global_batch(findings, dp)


def _report_contradiction(findings: Findings, stated: int, dp: int, *, gpus: int) -> None:
    """Report that the data parallelism that is stated is not the one that the GPUs leave."""
    evidence = findings.evidence["plan.dp"]
    what = f"DP {stated} is stated ({evidence.text[:60]}), and the GPUs of the job leave DP {dp}"
    hint = f"ask Slurm for {gpus} GPUs, or make DP {dp}"
    findings.problems.append(Problem(what=what, file=evidence.file, line=evidence.line, hint=hint))


def _derive_virtual_stages(findings: Findings) -> None:
    """State VPP from the number of layers in one chunk."""
    per_chunk = findings.options.get("pipeline.layers_per_chunk", "")
    layers, pp = findings.get("model.layers"), findings.get("plan.pp")
    if not _COUNT.fullmatch(per_chunk) or not int(per_chunk) or not layers or not pp:
        return
    counted = layers + sum(count_ends(findings.options).values())
    if counted % (pp * int(per_chunk)) == 0:
        file, line = findings.find_source("model.layers")
        words = f"{counted} / pp {pp} / {per_chunk} layers" + (", ends counted" if counted > layers else "")
        findings.state("plan.vpp", counted // pp // int(per_chunk), line, words, file=file)
