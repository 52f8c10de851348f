"""Looks up what a sign means, and lists the actions to take now, for whom, and with which command."""

from __future__ import annotations

import re
from functools import cache

from opsk.hardware.xids import xid
from opsk.postmortem.reasoning.gpu_faults import is_quoted
from opsk.postmortem.reasoning.owners import is_owned_by_cluster, is_owned_by_user
from opsk.postmortem.reasoning.places import describe_place
from opsk.postmortem.signatures.signature import Signature, signatures
from opsk.postmortem.values import (
    Action,
    Audience,
    Cause,
    FailureClass,
    Finding,
    JobFacts,
    Origin,
    Recurrence,
    Role,
)

_KERNEL = {
    "kernel.off_bus": ("a GPU fell off the bus", "drain the node and power-cycle it"),
    "kernel.sxid": ("an NVSwitch reported an error", "drain the nodes of its NVLink domain and look at the switch"),
    "kernel.nvidia_driver": ("the NVIDIA driver reported a failure", "drain the node; nvidia-bug-report.sh tells more"),
    "kernel.pcie": ("PCIe reported an error", "drain the node; look at slot, riser and cable of the device"),
    "kernel.memory_error": ("the node's memory or processor reported an error", "drain the node and test its memory"),
    "kernel.link_down": ("a network port lost its link", "look at cable, transceiver and switch port"),
    "kernel.link_up": ("a network port got its link", ""),
    "kernel.nic": ("a network adapter reported a failure", "drain the node; look at adapter, cable and temperature"),
    "kernel.oom": ("the kernel ended a process because memory ran out", "ask for more memory (--mem) or use less"),
    "kernel.hung": ("a task did not go on in the kernel", "look at storage and GPUs of the node"),
    "kernel.segfault": ("a process crashed (segmentation fault)", "look at the library that the kernel names"),
    "gpu.lost": ("a GPU no longer answered when the job ended", "drain the node and power-cycle it; look for Xid 79"),
    "gpu.needs_recovery": ("the driver asks for a reset of a GPU", "drain the node and do what nvidia-smi -q asks for"),
    "gpu.ecc_uncorrected": (
        "a GPU's memory had errors that could not be corrected",
        "drain the node and reset the GPU; replace it when that repeats",
    ),
    "gpu.row_remap": ("a GPU replaces a row of its memory at the next reset", "reset the GPU when the node is idle"),
    "gpu.nvlink_down": (
        "a NVLink of a GPU went down",
        "drain the node; look at its NVSwitches and nvidia-fabricmanager",
    ),
    "gpu.capped": ("heat or power held a GPU's clocks down", "look at cooling and power of the node"),
    "ib.port_down": ("a port had lost its link when the job ended", "look at cable, transceiver and switch port"),
    "ib.link_flapped": ("a port lost its link while the job ran", "look at cable, transceiver and switch port"),
    "ib.errors": ("a port counted errors while the job ran", "look at cable and transceiver: ibqueryerrors, mlxlink"),
    "cgroup.oom_kill": ("the job's memory limit was reached and a process killed", "ask for more memory (--mem)"),
    "slurm.step_out_of_memory": (
        "a step was ended because the job's memory limit was reached",
        "ask for more memory (--mem), use fewer data-loader workers, or offload less",
    ),
    "slurm.failed_node": ("Slurm gave a node of the job up", "look at why slurmd or the node went away"),
    "slurm.node_reason": ("a node of the job was set aside", "look at the reason: scontrol show node"),
    "flight_recorder.entry": ("PyTorch's flight recorder tells where a rank was", ""),
    "checkpoint.saved": ("a checkpoint was written", ""),
    "kernel.panic": ("the node's kernel gave up", "keep the node drained until its console log was read"),
}
_DRAIN = frozenset((FailureClass.GPU_HARDWARE, FailureClass.NVLINK, FailureClass.FABRIC, FailureClass.NODE))
_HOPELESS = frozenset((FailureClass.CONFIG, FailureClass.GPU_MEMORY))
_NODE = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,252}|[0-9]+[A-Za-z][A-Za-z0-9._-]{0,200}")
"""Names as Slurm has them: an address, by which Ray names nodes, is none."""
_JOB = re.compile(r"\d{1,10}(?:_\d{1,10}|\+\d{1,6})?")
_SURE = 0.6
_BY_CLASS = {
    FailureClass.GPU_MEMORY: "opsk check on the script says which change would fit",
    FailureClass.HOST_MEMORY: "ask for more memory (--mem), or use less",
    FailureClass.GPU_HARDWARE: "look at the node's kernel log for Xids, and at nvidia-smi -q there",
    FailureClass.NVLINK: "look at the node's NVLinks (nvidia-smi nvlink -s) and at nvidia-fabricmanager",
    FailureClass.FABRIC: "look at the port counters of the node and at its kernel log",
    FailureClass.NODE: "look at why slurmd or the node went away: scontrol show node, its console",
    FailureClass.STORAGE: "look at the file system where the path points, on this node and on its servers",
    FailureClass.TIME_LIMIT: "ask for more time, or write a checkpoint before the end",
    FailureClass.PREEMPTED: "nothing is broken: submit it again, or wait until it is requeued",
    FailureClass.CANCELLED: "sacct says who: scancel by the owner is no failure",
    FailureClass.RENDEZVOUS: "look at the first rank that could not connect: host name, port, and network to rank 0",
    FailureClass.NUMERIC: "run the same step on other nodes: if it is gone, the GPU is suspect; else look at the data",
    FailureClass.CONFIG: "a setting is wrong: compare it with the version of the program that runs",
    FailureClass.SOFTWARE: "look at what the process printed last: it ended itself",
}
"""What to do where no sign says more."""
_MAX_ADVICES = 3
_WITNESSES = (Origin.KERNEL, Origin.GPU, Origin.FABRIC, Origin.CGROUP, Origin.SLURM)
_BROKEN_FILE = re.compile(
    r"JSONDecode|Decoder?Error|UnicodeDecode|EOF|BadZip|Unpickling|truncated|corrupt|central directory|Scanner|Parser",
    re.IGNORECASE,
)
_FIRST_PART = re.compile(r"[,;:]")
"""Advice that begins with the same words is the same advice, with more or less of detail."""
_LEMON = 3.0
_OF_BOTH_ENDS = frozenset(
    ("nccl.ib_completion_error", "nccl.ib_flushed", "ucx.transport_error", "ofi.completion_error",
     "nccl.net_plugin_error", "mpi.network_failed", "nvshmem.operation_failed", "rdma.completion_error",
     "nccl.ib_no_device", "ofi.match_resources", "nvshmem.not_initialised")
)  # fmt: skip
"""One end alone tells of these: it cannot tell its own port from the peer's, nor from a container without a device."""
_NAMES_WHAT = {"program": "message", "openmp": "message", "python": "module", "shell": "path"}
"""By the family of a sign, the field that says what its sentence leaves open: the error, the module, the file."""
_NAMED_STATUS = {"-9": " (SIGKILL)", "-15": " (SIGTERM)", "-11": " (SIGSEGV)", "-6": " (SIGABRT)", "-7": " (SIGBUS)"}
_THROWN = re.compile(
    r"terminate called after throwing an instance of '(?P<type>[^']{1,100})'(?:: (?P<message>.{1,200}))?"
)
"""What libstdc++ prints of a C++ exception that nothing caught, and its message, which stands in the next line."""
_NAMES_SETTING = re.compile(
    r"divisible|must be|should be|has to be|cannot exceed|greater than|less than|not supported|does not support"
)


@cache
def _index_signatures() -> dict[str, Signature]:
    """Return signatures by id."""
    return {signature.id: signature for signature in signatures()}


def find_meaning(finding: Finding) -> str:
    """Return the meaning of a finding, in one sentence without the place."""
    if finding.signature == "kernel.xid" and finding.fields.get("code", "").isdecimal():
        entry = xid(int(finding.fields["code"]))
        return f"Xid {entry.code}: {entry.meaning or entry.name or 'not in the catalogue'}"
    if finding.signature == "python.exception":
        kind, message, at = (finding.fields.get(name, "") for name in ("type", "message", "at"))
        where = f" in {at}" if at else ""
        return f"the program ended by {kind or 'an exception'}{where}" + (f": {message}" if message else "")
    if finding.signature == "slurm.cancelled" and finding.role is Role.CASCADE:
        return "srun ended the step, because a task of it had failed"
    if finding.signature == "slurm.task_killed":
        return _describe_task_end(finding)
    if finding.signature in _KERNEL:
        return _KERNEL[finding.signature][0]
    if finding.signature == "launcher.root_rank" and (status := finding.fields.get("exit", "")):
        return f"torchrun saw this process end first, with exit code {status}{_NAMED_STATUS.get(status, '')}"
    if (thrown := _THROWN.search(finding.text)) is not None and finding.signature == "process.fatal_python":
        return f"the program ended by {thrown['type']}" + (f": {thrown['message']}" if thrown["message"] else "")
    known = _index_signatures().get(finding.signature)
    if known is None:
        return finding.signature
    said = finding.fields.get(_NAMES_WHAT.get(finding.signature.partition(".")[0], ""), "")
    return f"{known.what}{_describe_meeting(finding)}" + (f": {said}" if said else "")


def _describe_meeting(finding: Finding) -> str:
    """Return who did not come to the start, or how many had come, where the message says so."""
    if finding.failure is not FailureClass.RENDEZVOUS:
        return ""
    if absent := finding.fields.get("absent", ""):
        return f": {absent} did not come"
    joined, world = finding.fields.get("joined", ""), finding.fields.get("world", "")
    if not (joined.isdecimal() and world.isdecimal()):
        return ""
    if int(joined) > int(world):
        return f": {joined} came where {world} were expected, those of an earlier start among them"
    return f": {joined} of {world} had come"


def _describe_task_end(finding: Finding) -> str:
    """Return how tasks ended, as srun reports it; several at once by SIGTERM are its own clean-up."""
    tasks, end = finding.fields.get("tasks", ""), finding.fields.get("end", "")
    several = not tasks.isdecimal()
    name = f"task{'s' if several else ''} {tasks}"
    if end.startswith("Terminated"):
        return f"srun ended {name}"
    how = end[:1].lower() + end[1:] if end.startswith(("Exited", "Aborted")) else f"ended: {end.lower()}"
    return f"{name} {how}"


def find_advice(finding: Finding) -> tuple[str, str]:
    """Return the action for a finding, and its source; empty where nothing is known."""
    if finding.signature == "kernel.xid" and finding.fields.get("code", "").isdecimal():
        entry = xid(int(finding.fields["code"]))
        return entry.action, entry.source
    if finding.signature == "python.exception":
        return _advise_on_exception(finding), ""
    if finding.signature in _KERNEL:
        return _KERNEL[finding.signature][1], ""
    known = _index_signatures().get(finding.signature)
    return (known.action, known.source) if known is not None else ("", "")


def _advise_on_exception(finding: Finding) -> str:
    """Return what an exception asks for: a missing file, a broken one and a wrong setting are different work."""
    kind, message, at = (finding.fields.get(name, "") for name in ("type", "message", "at"))
    if finding.failure is FailureClass.SOFTWARE:
        return f"look at {at or 'where it was raised'}: the program ended itself there"
    if finding.failure is not FailureClass.CONFIG:
        return ""
    if kind in ("NotADirectoryError", "IsADirectoryError"):
        return "a path is of a directory where a file is asked for, or of a file in place of a directory: correct it"
    if kind == "FileNotFoundError" or "o such file" in message:
        return "a file is missing: check its path on all nodes"
    if _BROKEN_FILE.search(f"{kind}: {message}"):
        return "a file is broken or was not written whole: make it again, or use one from before it"
    if _NAMES_SETTING.search(message):
        return "change the setting that the message names"
    return "a setting is wrong: compare it with the version of the program that runs"


def list_actions(root: Cause | None, job: JobFacts | None, recurrence: tuple[Recurrence, ...]) -> tuple[Action, ...]:
    """Return what to do, the most useful first; nothing where nothing failed.

    Commands contain only names that Slurm allows: text from logs is never pasted into one.
    """
    if root is None:
        return ()
    actions = []
    node = root.where.node if _NODE.fullmatch(root.where.node) else ""
    is_hardware = root.failure in _DRAIN and root.confidence >= _SURE and _is_accused(root)
    if is_hardware and node:
        reason = f"opsk: {root.failure.value}".replace("'", "")
        actions.append(Action(
            what=f"drain {node} until it was looked at", audience=Audience.ADMINISTRATOR,
            command=f"scontrol update NodeName={node} State=DRAIN Reason='{reason}'",
        ))  # fmt: skip
    is_of_cluster = is_owned_by_cluster(root)
    if is_owned_by_user(root):
        actions.append(Action(what="not the cluster: hand it to the job's owner", audience=Audience.ADMINISTRATOR))
    if root.failure is FailureClass.COLLECTIVE_HANG:
        actions.append(_look_at_ranks(root))
    else:
        actions += _list_advice(root, Audience.ADMINISTRATOR if is_of_cluster else Audience.USER)
    actions += _list_next_steps(root, job, node)
    actions += [
        Action(
            what=f"{each.subject} was in {each.failures} failures within {each.days} days: test it before its next use",
            audience=Audience.ADMINISTRATOR,
        )
        for each in recurrence
        if each.lemon >= _LEMON
    ]  # fmt: skip
    return tuple(actions[:8])


def _is_accused(root: Cause) -> bool:
    """Return whether a sign speaks of the node itself: an operation that failed is of both ends, or of the set-up."""
    if root.findings and all(is_quoted(each) for each in root.findings if each.role is Role.ROOT):
        return False  # anybody can print a line of the kernel
    return root.failure is not FailureClass.FABRIC or any(
        each.origin in _WITNESSES or not (each.signature in _OF_BOTH_ENDS or _is_of_connection(each))
        for each in root.findings
    )


def _is_of_connection(finding: Finding) -> bool:
    """Return whether an event of an InfiniBand device is of one of its queues: the device and its port are well."""
    event = finding.fields.get("event", "")
    return finding.signature == "nccl.ib_async_event" and ("QP" in event or "CQ" in event or "work queue" in event)


def _list_advice(root: Cause, audience: Audience) -> list[Action]:
    """Return what the signs of a cause advise, each once; of hardware only the clearest, which says it all."""
    observed = [each for each in root.findings if each.role is Role.ROOT] or list(root.findings)
    if root.failure in _DRAIN:
        observed.sort(key=lambda each: each.origin not in _WITNESSES)
    advices: dict[str, str] = {}
    beginnings: set[str] = set()
    for text, source in map(find_advice, observed):
        beginning = _FIRST_PART.split(text, maxsplit=1)[0]
        if text and beginning not in beginnings:
            beginnings.add(beginning)
            advices[text] = source
    if not advices and root.failure in _BY_CLASS:
        advices[_BY_CLASS[root.failure]] = ""
    shown = list(advices.items())[: 1 if root.failure in _DRAIN else _MAX_ADVICES]
    return [Action(what=text, audience=audience, source=source) for text, source in shown]


def _look_at_ranks(root: Cause) -> Action:
    """Return where to look at after a hang."""
    place = root.where
    if place.rank is None and not place.ranks and not place.node:
        return Action(what=_advise_on_stacks(root), audience=Audience.USER)
    return Action(
        what=f"look at what {describe_place(place)} did last: its log, its stack, the kernel log of its node",
        audience=Audience.ADMINISTRATOR,
    )


def _advise_on_stacks(root: Cause) -> str:
    """Return how to find the rank that is behind next time: only PyTorch's process groups have a flight recorder."""
    printers = {each.signature.partition(".")[0] for each in root.findings}
    if "horovod" in printers:
        how = (
            "the lines below Horovod's warning name the ranks that are missing; keep the stacks of all ranks next time"
        )
        return f"{how} (py-spy dump, HOROVOD_TIMELINE)"
    tools = "flight recorder, py-spy dump" if printers & {"torch", "flight_recorder"} else "py-spy dump"
    return f"no rank is known to be behind: keep the stacks of all ranks next time ({tools})"


def _list_next_steps(root: Cause, job: JobFacts | None, node: str) -> list[Action]:
    """Return the actions that bring the job back."""
    if root.failure in _HOPELESS:
        return [Action(what="do not submit it unchanged: it would end the same way", audience=Audience.USER)]
    if root.failure in (FailureClass.CANCELLED, FailureClass.TIME_LIMIT):
        return []
    number = job.job_id if job is not None and _JOB.fullmatch(job.job_id) else ""
    if root.failure in _DRAIN and not _is_accused(root):
        return [
            Action(
                what="submit it again; leave out the nodes that it names where it fails there again",
                audience=Audience.USER,
            )
        ]
    if root.failure in _DRAIN and node:
        return [Action(
            what=f"submit it again without {node}; it goes on from its last checkpoint", audience=Audience.USER,
            command=f"sbatch --exclude={node} SCRIPT" + (f"   # was job {number}" if number else ""),
        )]  # fmt: skip
    return []
