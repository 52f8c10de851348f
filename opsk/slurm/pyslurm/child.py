"""Runs in the process that imports pyslurm: a loop that answers one request at a time, in frames of JSON.

Nothing of opsk is imported here: the file is run by its path, so that the process starts fast and finds the same
modules whatever folder it is started in. Only attributes that exist in 25.11 are read, one by one: pyslurm's
``to_dict`` leaves objects in its result, and one damaged attribute would lose the whole record.

pyslurm holds the interpreter's lock while it waits for slurmctld, so no thread and no Python signal handler of this
process can end a wait. The kernel can: the timer below has no handler, and its signal ends the process even when the
parent process is gone.
"""

from __future__ import annotations

import json
import os
import pwd
import resource
import signal
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

MEMORY_BYTES = 4 << 30
"""Address space of this process; a few times what the answer of a cluster with 100,000 jobs takes."""
GRACE_S = 2.0
"""The parent ends this process at the deadline; it ends itself this much later."""
CONNECT_FAILURES = (1001, 1800)
"""``..._CONNECTION_ERROR`` of slurm_errno.h: nothing listens there."""
RECEIVE_FAILURE = 1802
HANG_UP_S = 1.0
"""A receive failure within this time is a slurmctld that hung up, one after it a slurmctld that hangs.

22.05 hangs up on a client of 25.11; 24.11 reports a wrong protocol.
"""

JOB_ATTRIBUTES = (
    "id", "name", "user_id", "state", "state_reason", "partition", "account", "qos", "allocated_nodes", "num_nodes",
    "cpus", "ntasks", "array_id", "array_task_id", "array_tasks_waiting", "array_tasks_parallel", "heterogeneous_id",
    "heterogeneous_offset", "comment", "admin_comment", "reservation", "required_nodes", "excluded_nodes",
    "submit_time", "start_time", "end_time", "time_limit", "run_time", "exit_code", "exit_code_signal",
    "requeue_count", "working_directory", "command", "standard_output", "standard_error",
)  # fmt: skip
NODE_ATTRIBUTES = (
    "name", "state", "partitions", "available_features", "configured_gres", "allocated_gres", "allocated_tres",
    "total_cpus", "idle_cpus", "allocated_cpus", "real_memory", "address", "slurmd_port", "slurm_version", "reason",
    "comment",
)  # fmt: skip

_READING = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What an attribute of pyslurm may raise: text that is no UTF-8, a list that is shorter than was thought."""
_LENGTH = struct.Struct(">I")


class UnusableError(Exception):
    """pyslurm cannot serve this cluster, now or later."""


class Answerer:
    """Answers requests with a pyslurm that is imported at the first one."""

    def __init__(self) -> None:
        self._pyslurm: ModuleType | None = None
        self._users: dict[int, str] = {}
        self._has_served = False

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``{"answer": ...}``, or ``{"error": kind, "text": ..., "errno": ...}``."""
        try:
            return {"answer": self._start()} if question["ask"] == "start" else self._query(question)
        except UnusableError as error:
            return {"error": "unusable", "text": str(error)}
        except MemoryError:
            return {"error": "memory", "text": f"the answer needs more than {MEMORY_BYTES >> 30} GiB"}
        except (*_READING, AssertionError) as error:
            return {"error": "reading", "text": f"{type(error).__name__}: {error}"}

    def _query(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return what slurmctld answers, or why it refuses to."""
        if self._pyslurm is None:
            self._start()
        module = self._pyslurm
        assert module is not None
        try:
            self._ping(module)
            result = self._handlers()[question["ask"]](module, question)
        except module.PyslurmError as error:
            return _refusal(error)
        self._has_served = True
        return {"answer": result}

    def _handlers(self) -> dict[str, Callable[[ModuleType, Mapping[str, Any]], Any]]:
        return {"cluster": _cluster, "jobs": self._jobs, "job": self._job, "nodes": self._nodes}

    def _start(self) -> dict[str, Any]:
        """Import and initialise pyslurm; either may end this process."""
        try:
            import pyslurm  # type: ignore[import-not-found, unused-ignore]
        except (ImportError, *_READING) as error:
            raise UnusableError(f"import pyslurm: {error}") from error
        try:
            pyslurm.slurm_init()
        except pyslurm.PyslurmError as error:
            raise UnusableError(f"pyslurm.slurm_init: {error}") from error
        self._pyslurm = pyslurm
        return {"release": str(pyslurm.__version__)}

    def _ping(self, module: ModuleType) -> None:
        """Check whether any slurmctld listens: a load waits 10 s to find out that none does, a ping no time."""
        started_s = time.monotonic()
        try:
            module.slurmctld.ping_primary()
        except module.PyslurmError as error:
            number = getattr(error, "errno", None)
            if number == RECEIVE_FAILURE and not self._has_served and time.monotonic() - started_s < HANG_UP_S:
                raise UnusableError(f"slurmctld hung up, it may be older than pyslurm: {error}") from error
            if number not in CONNECT_FAILURES:
                raise
            try:
                module.slurmctld.ping_backup()
            except module.PyslurmError:
                raise error from None

    def _jobs(self, module: ModuleType, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return every job in slurmctld's memory, without those in excluded states."""
        excluded_states = frozenset(question.get("without_states", ()))
        jobs = module.Jobs.load().values()
        return [
            self._job_record(job, details=question["details"])
            for job in jobs
            if _get(job, "state") not in excluded_states
        ]

    def _job(self, module: ModuleType, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the jobs that an id names: one, or all of an array or of a heterogeneous job.

        ``Job.load`` keeps only the first of several, so it is used only where there cannot be several.
        """
        number = int(question["id"])
        job = module.Job.load(number)
        if _get(job, "array_id") is None and _get(job, "heterogeneous_id") is None:
            return [self._job_record(job, details=True)]
        names = ("id", "array_id", "heterogeneous_id")
        jobs = [job for job in module.Jobs.load().values() if number in {_get(job, name) for name in names}]
        return [self._job_record(job, details=True) for job in jobs]

    def _nodes(self, module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the nodes, and which of their GPUs jobs hold: nodes themselves do not report it."""
        nodes = [_record(node, NODE_ATTRIBUTES) for node in module.Nodes.load().values()]
        held: dict[str, list[str]] = {}
        for job in module.Jobs.load().values():
            for node, indices in _layout(job).items():
                held.setdefault(node, []).append(indices)
        return {"nodes": nodes, "held": held}

    def _job_record(self, job: Any, *, details: bool) -> dict[str, Any]:
        record = _record(job, JOB_ATTRIBUTES)
        record["user"] = self._user(record["user_id"])
        record["gpus"] = _counts(_gpus(job))
        record["gpus_per_node"] = _counts(_get(job, "gres_per_node"))
        record["gpus_per_task"] = _counts(getattr(_get(job, "tres_per_task"), "gres", None))
        if details:
            record["layout"] = _layout(job)
        return record

    def _user(self, uid: Any) -> str:
        """Return a user's name, or the number where this machine does not know it, as ``squeue`` does."""
        if not isinstance(uid, int):
            return ""
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except (KeyError, OverflowError):
                self._users[uid] = str(uid)
        return self._users[uid]


def _refusal(error: Exception) -> dict[str, Any]:
    number = getattr(error, "errno", None)
    return {"error": "rpc", "errno": number if isinstance(number, int) else None, "text": str(error)}


def _cluster(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides whether pyslurm can serve this cluster."""
    config = module.slurmctld.Config.load()
    return {"release": _plain(_get(config, "version")), "tracked": _plain(_get(config, "accounting_storage_tres"))}


def _get(thing: Any, name: str) -> Any:
    """Return an attribute, or ``None`` where pyslurm cannot read what Slurm sent."""
    try:
        return getattr(thing, name)
    except _READING:
        return None


def _record(thing: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: _plain(_get(thing, name)) for name in names}


def _plain(value: Any) -> Any:
    """Return a value as JSON can represent it; ``None`` for objects."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else None


def _gpus(job: Any) -> Any:
    """Return the GPUs allocated, or requested where none are, as ``squeue`` does for jobs in any state."""
    for name in ("allocated_tres", "requested_tres"):
        resources = _get(job, name)
        if resources is not None:
            return getattr(resources, "gres", None)
    return _get(job, "gpus")


def _counts(resources: Any) -> dict[str, int]:
    """Return the number of GPUs by name (``gpu``, ``gpu:h100``), of numbers or of pyslurm's GPU objects."""
    if not isinstance(resources, Mapping):
        return {}
    named = {str(name).removeprefix("gres/"): getattr(item, "count", item) for name, item in resources.items()}
    is_gpu = {name: name == "gpu" or name.startswith("gpu:") for name in named}
    return {name: count for name, count in named.items() if is_gpu[name] and isinstance(count, int)}


def _layout(job: Any) -> dict[str, str]:
    """Return node to the GPU indices that the job holds there, ``0-2,5``."""
    try:
        nodes = job.get_resource_layout_per_node()
        return {str(name): text for name, node in nodes.items() if (text := _indices(node.get("gres")))}
    except _READING:
        return {}


def _indices(resources: Any) -> str:
    if not isinstance(resources, Mapping):
        return ""
    texts = [
        str(item.get("indexes") or "")
        for name, item in resources.items()
        if str(name).split(":")[0] == "gpu" and isinstance(item, Mapping)
    ]
    return ",".join(text for text in texts if text)


def read_frame(source: int) -> dict[str, Any] | None:
    """Return the next request; ``None`` when the parent has gone."""
    head = _read_exactly(source, _LENGTH.size)
    body = _read_exactly(source, _LENGTH.unpack(head)[0]) if head else None
    return json.loads(body) if body else None


def _read_exactly(source: int, count: int) -> bytes | None:
    chunks = bytearray()
    while len(chunks) < count:
        chunk = os.read(source, count - len(chunks))
        if not chunk:
            return None
        chunks += chunk
    return bytes(chunks)


def write_frame(target: int, message: Mapping[str, Any]) -> None:
    """Write one answer."""
    body = json.dumps(message).encode("ascii")
    rest = memoryview(_LENGTH.pack(len(body)) + body)
    while rest:
        rest = rest[os.write(target, rest) :]


def _set_limits() -> int:
    """Bound this process, and return where answers are written: what libraries print to stdout goes nowhere."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_BYTES if hard_limit == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard_limit)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return answers


def main() -> None:
    """Answer until the parent closes its end."""
    answers = _set_limits()
    answerer = Answerer()
    while (question := read_frame(0)) is not None:
        signal.setitimer(signal.ITIMER_REAL, float(question["deadline_s"]) + GRACE_S)
        try:
            write_frame(answers, answerer.answer(question))
        except BrokenPipeError:
            return
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
