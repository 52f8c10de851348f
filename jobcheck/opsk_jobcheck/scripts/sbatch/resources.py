"""Computes the nodes, tasks and GPUs of a job from the script's directives and the request to Slurm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opsk.workload.workload import Evidence, Problem, Unknown
from opsk_jobcheck.scripts.sbatch.directives import Directives
from opsk_jobcheck.submission.request import SlurmRequest

REQUEST = "Slurm request"
"""``file`` in the evidence of a value that came with the request."""

HETEROGENEOUS = "the job is heterogeneous (hetjob): every component has its own nodes and GPUs"
NOT_IN_FORCE = "Slurm was not asked for what this line says: something else beats it, or it was never read"
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
}
_SIZES = tuple(name for name in _FIELDS if name not in ("partition", "constraint"))


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
    if is_for_one_node and not (request is not None and request.is_merged):
        merged.take_one_node()
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
        why = "how many nodes the job gets is left to Slurm"
        self.unknown.setdefault("plan.gpus", Unknown(field="plan.gpus", why=why, file=REQUEST, line=0))

    def take_one_node(self) -> None:
        """Take the one node that Slurm gives where neither nodes, tasks nor GPUs of the whole job are requested.

        Source: sbatch's man page, ``--nodes``: enough nodes for the resources per job, of which there are none.
        """
        whole_job = ("nodes", "ntasks", "gpus", "gpus_per_task")
        is_open = any(name in self.values or _FIELDS[name] in self.unknown for name in whole_job)
        entry = self.evidence.get("plan.gpus_per_node")
        if is_open or entry is None:
            return
        text = "Slurm gives one node where none are asked for"
        self.values["nodes"] = 1
        self.evidence["plan.nodes"] = Evidence(field="plan.nodes", value=1, file=entry.file, line=entry.line, text=text)

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
            self._derive("nodes", ("ntasks", "ntasks_per_node"), "/", _divide_exactly)
        self._derive("nodes", ("gpus", "gpus_per_node"), "/", _divide_exactly)
        self._derive("ntasks", ("nodes", "ntasks_per_node"), "x", product)
        self._derive("ntasks", ("gpus", "gpus_per_task"), "/", _divide_exactly)
        self._derive("gpus_per_node", ("gpus_per_task", "ntasks_per_node"), "x", product)
        self._derive("gpus", ("gpus_per_task", "ntasks"), "x", product)
        self._derive("gpus", ("ntasks", "ntasks_per_gpu"), "/", _divide_exactly)
        self._derive("gpus", ("nodes", "gpus_per_node"), "x", product)
        self._derive("gpus_per_node", ("gpus", "nodes"), "/", _divide_exactly)
        self._derive("nodes", ("gpus", "gpus_per_node"), "/", _divide_exactly)
        self._derive("ntasks", ("nodes", "ntasks_per_node"), "x", product)

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
        """Take one node for the one task that a script asks for; a step's one task states nothing about the job."""
        entry = self.evidence.get("slurm.ntasks")
        if "nodes" in self.values or self.values.get("ntasks") != 1 or entry is None or not entry.line:
            return
        self.values["nodes"] = 1
        text = "one task runs on one node"
        self.evidence["plan.nodes"] = Evidence(field="plan.nodes", value=1, file=entry.file, line=entry.line, text=text)

    def _report_contradiction(self) -> None:
        """Report two different numbers of GPUs, and drop both."""
        nodes, per_node, in_all = (self.values.get(name) for name in ("nodes", "gpus_per_node", "gpus"))
        if not (isinstance(nodes, int) and isinstance(per_node, int) and isinstance(in_all, int)):
            return
        if nodes * per_node == in_all:
            return
        entry = self.evidence["plan.gpus"]
        what = f"{in_all} GPUs are asked for, and {nodes} nodes x {per_node} GPUs are {nodes * per_node}"
        self.problems.append(Problem(what=what, file=entry.file, line=entry.line, hint="leave out --gpus"))
        # both stay in the request, so neither can be trusted to be what the job gets
        for name in ("gpus", "gpus_per_node"):
            del self.values[name]
            del self.evidence[_FIELDS[name]]
            self.unknown[_FIELDS[name]] = Unknown(field=_FIELDS[name], why=what, file=entry.file, line=entry.line)


def _divide_exactly(dividend: int, divisor: int) -> int | None:
    """Return the exact quotient, or ``None`` when there is none."""
    return dividend // divisor if divisor and dividend % divisor == 0 else None
