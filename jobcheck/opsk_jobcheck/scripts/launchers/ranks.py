"""Reads which ranks a launcher starts and on which nodes, and compares them with the request to Slurm.

Launchers are ``srun`` before a training program, ``torchrun`` and programs that take its flags (``tune run``,
``colossalai run``, ``torch.distributed.launch``), ``accelerate launch``, ``deepspeed`` and ``composer``. The flags of
a launcher precede the program; the words after the program are the program's. The nodes that ``opsk launch`` does not
use at first are spares, until a failure brings them in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from opsk.workload.workload import Problem
from opsk_jobcheck.scripts.bash.values import Invocation, Run, Scalar, Text, Variable
from opsk_jobcheck.scripts.launchers.programs import find_program, list_base_names
from opsk_jobcheck.scripts.sbatch.directives import Directives, read_words
from opsk_jobcheck.scripts.sbatch.resources import Resources, merge
from opsk_jobcheck.scripts.settings.arguments import Argument, Arguments, get_arguments, parse_arguments
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match

BUILTIN_LAUNCHER = "opsk launch"
_VALUELESS = frozenset({"--per-node"})
_MAX_DIGITS = 9
_SIZES = ("plan.nodes", "plan.gpus")
NODES = ("--nnodes", "--num-machines", "--num-nodes")
PER_NODE = ("--nproc-per-node", "--num-gpus", "--nproc")
_COMPARED = "launcher.compared"
_AGENTS = frozenset(
    {
        *("torchrun", "torchrun_jsc", "torch.distributed.run", "torch.distributed.launch", "tune", "colossalai"),
        *("deepspeed", "composer", "dlrover-run"),
    }
)
"""Launchers of which one runs on each node, and starts the ranks there."""
_WAITS = frozenset({"torchrun", "torchrun_jsc", "torch.distributed.run", "torch.distributed.launch"})
"""Launchers that take one node when the number of nodes is not given."""
_DEEPSPEED, _HOSTS = "deepspeed", frozenset({"--hostfile", "-H", "--launcher", "--no-local-rank", "--no-ssh"})
"""DeepSpeed's launcher stays on its node unless other hosts are given."""
SPREADS = frozenset(
    {
        *("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "jsrun", "aprun", "flux", "horovodrun"),
        *("ssh", "pdsh", "clush", "parallel", "parallel-ssh", "pssh", "ansible", "sbatch", "salloc", "ray"),
        *("opsk-srun", "opsk"),
    }
)
"""Commands that may start others on several nodes."""
MAX_BACK = 4
"""How many commands before a program may hold the ``srun`` that starts the shell around it."""
ONE_RANK_LAUNCHERS = frozenset({"torchrun", "torch.distributed.run"})
"""Launchers that start one rank a node by default."""
_MPI = frozenset({"mpirun", "mpiexec", "orterun"})
_MPI_RANKS = ("--np", "--n")
RANK_PER_TASK = ("megatron", "hf-trainer", "trl", "gpt-neox")
"""Frameworks whose programs never start ranks by themselves."""
STARTERS = frozenset(
    {"accelerate", "accelerate.commands.launch", "ray", "horovodrun", "bash", "sh", "deepspeed.launcher"}
)
OPTION = "launcher.ranks"
"""Name of the workload option for the number of ranks."""
DISAGREE = "requested from Slurm do not agree"
"""How the problem ends of a launcher whose numbers differ from the request."""
ONE_RANK = "starts one rank a node"
"""What the problem says of a launcher that is given no number of ranks."""
REQUESTED_GPUS = "slurm.gpus"
"""Name of the workload option for the GPUs requested from Slurm, where the job starts fewer ranks."""
NODES_OPTION = "launcher.nodes"
"""Name of the workload option for the launcher's number of nodes."""
_ALL = ("--num-processes",)
"""Flags that count the ranks of all nodes (``accelerate launch``)."""
_RANKS_PER_NODE = ("--nproc-per-node", "--num-gpus")
MAX_RANKS = 1 << 24
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that hides GPUs from a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLaunch:
    """How a training program is started.

    ``step`` is the request of the ``srun`` before it, ``None`` without one. ``launcher_flags`` are the launcher's
    flags, and ``agent`` its name, empty where it does not start several ranks. ``is_alone``: nothing in the script can
    start it on other nodes than the first one.
    """

    launcher_flags: Arguments
    agent: str = ""
    step: Resources | None = None
    line: int = 0
    words: tuple[Text, ...] = field(default=())
    is_alone: bool = False


def find_launch(run: Run, invocation: Invocation | None) -> ProgramLaunch | None:
    """Return how the training command of a script is started, ``None`` where there is no such command."""
    if invocation is None:
        return None
    words = _find_launcher_words(invocation)
    agent = next((name for word in words if (name := word.shown.rpartition("/")[2]) in _AGENTS), "")
    return ProgramLaunch(
        launcher_flags=parse_arguments(words),
        agent=agent,
        step=_find_step(run.invocations, invocation),
        line=invocation.line,
        words=words,
        is_alone=not any(_may_spread(entry) for entry in run.invocations),
    )


def parse_launcher_arguments(invocation: Invocation) -> Arguments:
    """Return the flags before the training program: the launcher's own."""
    return parse_arguments(_find_launcher_words(invocation))


def _may_spread(invocation: Invocation) -> bool:
    """Return whether a command may start another one on several nodes: known for it, or not known at all."""
    words = invocation.words
    return not words or words[0].known is None or not SPREADS.isdisjoint(list_base_names(invocation))


def state_launch(launch: ProgramLaunch | None, resources: Resources, findings: Findings) -> None:
    """State nodes and GPUs of ``srun`` and the launcher, where the request to Slurm has none, or more."""
    step = launch.step if launch else None
    if launch is None or step is None:
        return
    _state_part(launch, step, resources, findings)
    if any(name in findings.unknown for name in ("plan.nodes", "plan.gpus_per_node", "plan.gpus")):
        return
    for name in ("nodes", "gpus_per_node", "gpus"):
        value = getattr(step, name)
        if value is not None and f"plan.{name}" not in findings.values:
            findings.state(f"plan.{name}", value, launch.line, f"srun: {name.replace('_', ' ')} {value}")


def _state_part(launch: ProgramLaunch, step: Resources, resources: Resources, findings: Findings) -> None:
    """State the nodes and GPUs of a step on a part of the job's nodes; mark them unknown where Slurm chooses them.

    A step on one node may be one of several that train together: it counts where the launcher is given as many nodes
    as the step has, or where it starts several ranks on each by itself.
    """
    stated_nodes, nodes, tasks = _find_number(launch.launcher_flags, NODES), resources.nodes, step.ntasks
    if nodes and step.nodes and step.nodes < nodes:
        if stated_nodes[1] == step.nodes if stated_nodes else not launch.agent and (tasks or 0) > step.nodes:
            findings.state("plan.nodes", step.nodes, launch.line, f"srun: nodes {step.nodes} of {nodes}")
            if step.gpus_per_node:
                findings.state(
                    "plan.gpus_per_node", step.gpus_per_node, launch.line, f"srun: {step.gpus_per_node} GPUs"
                )
            gpus_per_node = findings.get("plan.gpus_per_node")
            gpus = step.gpus or (step.nodes * gpus_per_node if gpus_per_node else None)
            findings.values.pop("plan.gpus", None)
            if gpus:
                findings.state("plan.gpus", gpus, launch.line, f"srun: nodes {step.nodes} × {gpus_per_node} GPUs")
    elif (
        nodes
        and tasks
        and resources.ntasks
        and not launch.agent
        and nodes < tasks < resources.ntasks
        and not stated_nodes
    ):
        for name in ("plan.nodes", "plan.gpus"):
            why = f"srun starts {tasks} of {resources.ntasks} tasks, and Slurm chooses on which nodes"
            findings.mark_unknown(name, why, launch.line)


def check_launch(
    launch: ProgramLaunch | None, resources: Resources, findings: Findings, *, is_preset: bool = False
) -> bool:
    """Report ranks that do not match the GPUs, and nodes that do not match the job.

    ``is_preset``: the environment may state the number of nodes (``PET_NNODES``). Returns whether the launcher runs on
    one node of several, and nothing names the others.
    """
    if launch is None or not launch.agent:
        return False
    nodes, per_node = _find_number(launch.launcher_flags, NODES), _find_number(launch.launcher_flags, PER_NODE)
    if any(_may_be_any(launch.launcher_flags, name) for name in (*NODES, *PER_NODE)):
        findings.options[_COMPARED] = "any"  # one that agrees with Slurm would be free, and another does not agree
    if launch.step is None or launch.step.nodes in (None, resources.nodes):
        # a step on a part of the nodes may well start fewer
        _compare_with_slurm(findings, nodes, resources, "nodes", "nodes")
    _compare_ranks(findings, launch, per_node, resources)
    is_stated = any(name in launch.launcher_flags.flags for name in NODES)
    values = [argument.value for argument in launch.launcher_flags.flags.values()]
    # unknown words that are no flag's value may hold flags
    is_open = is_preset or any(all(word is not value for value in values) for word in launch.launcher_flags.opaque)
    takes_one_node = launch.agent in _WAITS and not is_stated and not is_open
    if takes_one_node and launch.step is not None:
        _report_one_node(findings, launch, resources)
    if launch.agent in _WAITS and launch.step is None and launch.is_alone:
        _report_first_node(findings, launch, resources)
    runs_on_one_node = launch.is_alone if launch.step is None else launch.step.nodes == 1
    if (
        launch.agent == _DEEPSPEED
        and runs_on_one_node
        and not is_stated
        and not _HOSTS & launch.launcher_flags.flags.keys()
    ):
        return _report_missing_hosts(findings, launch, resources)
    return takes_one_node and runs_on_one_node and (resources.nodes or 0) > 1


def find_one_task_per_gpu(launch: ProgramLaunch | None, resources: Resources) -> int | None:
    """Return the tasks of a node where they are requested, or where they are as many as its GPUs."""
    if resources.ntasks_per_node is not None:
        return resources.ntasks_per_node
    tasks = compute_tasks_per_node(launch, resources)
    gpus = resources.gpus_per_node or (launch.step.gpus_per_node if launch and launch.step else None)
    return tasks if tasks and tasks == gpus else None


def compute_tasks_per_node(launch: ProgramLaunch | None, resources: Resources) -> int | None:
    """Return how many tasks ``srun`` starts on a node, where that is known."""
    for source in (launch.step if launch else None, resources):
        if source is None:
            continue
        if source.ntasks_per_node is not None:
            return source.ntasks_per_node
        nodes = source.nodes or resources.nodes
        if source.ntasks is not None and nodes and source.ntasks % nodes == 0:
            return source.ntasks // nodes
    return None


def _compare_ranks(
    findings: Findings, launch: ProgramLaunch, per_node: tuple[Argument, int] | None, resources: Resources
) -> None:
    """Compare the ranks of a node with its GPUs; with several tasks a node each of them starts as many."""
    requested = resources.gpus_per_node
    if per_node is None or not requested:
        return
    argument, count = per_node
    tasks = (compute_tasks_per_node(launch, resources) or 1) if launch.step is not None else 1
    if tasks > 1 and launch.agent in _WAITS and tasks * count > requested:
        what = (
            f"srun starts {tasks} tasks a node, each starts {count} ranks ({argument.shown[:60]}), for {requested} GPUs"
        )
        hint = "one task a node: --ntasks-per-node=1"
        _report_problem(findings, argument.line, f"{what}{_cite(resources, findings, 'gpus_per_node')}", hint)
    elif tasks == 1:
        _compare_with_slurm(findings, per_node, resources, "gpus_per_node", "GPUs a node")


def _compare_with_slurm(
    findings: Findings, given: tuple[Argument, int] | None, resources: Resources, name: str, what: str
) -> None:
    """Report that a launcher's number differs from the request to Slurm."""
    requested = getattr(resources, name)
    if given is None or requested is None or given[1] == requested:
        return
    argument, count = given
    given_text = f"{argument.shown[:60]} and {requested} {what} {DISAGREE}"
    text = f"{given_text}{_cite(resources, findings, name)}"
    hint = f"give {argument.written or argument.flag} {requested}, or ask Slurm for {count} {what}"
    _report_problem(findings, argument.line, text, hint)


def _report_one_node(findings: Findings, launch: ProgramLaunch, resources: Resources) -> None:
    """Report that a launcher without a number of nodes takes one."""
    nodes = resources.nodes
    if not nodes or nodes < 2 or (launch.step is not None and launch.step.nodes == 1):
        return
    what = f"{launch.agent} gets no number of nodes and uses 1; the job has {nodes}"
    _report_problem(findings, launch.line, f"{what}{_cite(resources, findings, 'nodes')}", f"give --nnodes={nodes}")


def _report_first_node(findings: Findings, launch: ProgramLaunch, resources: Resources) -> None:
    """Report that a launcher runs where the batch script does, which is on one node."""
    nodes = resources.nodes
    if not nodes or nodes < 2:
        return
    what = f"no srun starts {launch.agent}: it runs on the first of the job's {nodes} nodes alone"
    hint = f"srun --ntasks-per-node=1 {launch.agent} --nnodes={nodes} …"
    _report_problem(findings, launch.line, f"{what}{_cite(resources, findings, 'nodes')}", hint)


def _report_missing_hosts(findings: Findings, launch: ProgramLaunch, resources: Resources) -> bool:
    """Report that DeepSpeed stays on one node; return whether there are others."""
    nodes = resources.nodes
    if not nodes or nodes < 2:
        return False
    what = f"deepspeed gets no list of hosts and runs on one of the job's {nodes} nodes"
    _report_problem(findings, launch.line, f"{what}{_cite(resources, findings, 'nodes')}", "give --hostfile")
    return True


def _cite(resources: Resources, findings: Findings, name: str) -> str:
    """Return the source of a size in the request to Slurm, in brackets."""
    entry = next((entry for entry in resources.evidence if entry.field == f"plan.{name}"), None)
    if entry is None or not entry.line:
        return ""
    place = f"line {entry.line}" if entry.file == findings.file else f"{entry.file}:{entry.line}"
    return f" ({entry.text[:60]}, {place})"


def _report_problem(findings: Findings, line: int, what: str, hint: str) -> None:
    file, number = findings.locate(line)
    findings.problems.append(Problem(what=what, file=file, line=number, hint=hint))


def _find_number(arguments: Arguments, names: Sequence[str]) -> tuple[Argument, int] | None:
    """Return the first of these flags that is certainly a number."""
    for name in names:
        argument = arguments.flags.get(name)
        known = argument.value.known if argument is not None and argument.certain else None
        if argument is not None and known and known.isascii() and known.isdigit() and 0 < len(known) < 9:
            return argument, int(known)
    return None


def _may_be_any(arguments: Arguments, name: str) -> bool:
    """Return whether a flag holds one of the numbers that are read as if they were any; see `free_numbers`."""
    argument = arguments.flags.get(name)
    return argument is not None and any(part.number for part in argument.value.parts)


def _find_launcher_words(invocation: Invocation) -> tuple[Text, ...]:
    """Return the words before the training program; all words where there is none."""
    program = find_program(invocation)
    return invocation.words[: len(invocation.words) - len(program.words)] if program else invocation.words


def _find_step(invocations: Sequence[Invocation], invocation: Invocation) -> Resources | None:
    """Return what the ``srun`` asks for that starts a command, or the shell around it."""
    position = next((index for index, entry in enumerate(invocations) if entry is invocation), None)
    if position is None:
        return None
    for index in range(position, max(-1, position - MAX_BACK - 1), -1):
        words, names = invocations[index].words, list_base_names(invocations[index])
        if "srun" in names:
            start = names.index("srun")
            is_around = index == position or "-c" in names or "-lc" in names
            is_around = is_around or any(word.shown.endswith((".sh", ".bash")) for word in words[start + 1 :])
            return merge(_parse_srun_request(words[start + 1 :]), None) if is_around else None
    return None


def _parse_srun_request(words: tuple[Text, ...]) -> Directives:
    """Return what the options of an ``srun`` ask for; nothing where wholly unknown words stand among them."""
    row: list[str] = []
    if words and words[0].known and not words[0].known.startswith("-"):
        return Directives()  # the command itself
    for word in words:
        is_value = bool(row) and row[-1].startswith("-") and "=" not in row[-1]
        if word.known is None and not (word.parts and not word.parts[0].why) and not is_value:
            return Directives()
        row.append(word.shown)
    return read_words(row, file="srun")


def find_few_ranks(
    launch: ProgramLaunch | None,
    match: Match,
    resources: Resources,
    variables: Mapping[str, Variable],
    findings: Findings,
) -> str:
    """Return how a launcher starts fewer ranks than there are GPUs, empty where it is not known to.

    Parameters
    ----------
    match
        The command that trains.
    variables
        Variables at the end of the script.
    """
    gpus, per_node = findings.get("plan.gpus"), findings.get("plan.gpus_per_node")
    if launch is None or not launch.words or (per_node or 0) < 2:
        return ""
    is_stated = any(name in launch.launcher_flags.flags for name in PER_NODE) or "PET_NPROC_PER_NODE" in variables
    if launch.agent in ONE_RANK_LAUNCHERS and not is_stated and not launch.launcher_flags.opaque:
        return f"{launch.agent} {ONE_RANK} without --nproc-per-node, and there are {per_node} GPUs"
    if reason := _find_few_by_program(match, per_node or 0):
        return reason
    names = {word.shown.rpartition("/")[2] for word in launch.words}
    if launch.agent or not STARTERS.isdisjoint(names) or not match.framework.startswith(RANK_PER_TASK):
        return ""
    if _MPI & names:
        return _find_few_by_mpi(launch, gpus)
    tasks = compute_tasks_per_node(launch, resources)
    if launch.step is not None and tasks and tasks < per_node:
        return f"srun starts {tasks} {'task' if tasks == 1 else 'tasks'} on each node of {per_node} GPUs"
    return ""


def _find_few_by_program(match: Match, per_node: int) -> str:
    """Return the same of programs that start their ranks themselves: litgpt, and torchtune's recipes for one GPU."""
    words = match.invocation.known_words
    if match.framework == "torchtune" and any("single_device" in word for word in words):
        return f"the recipe trains on one of {per_node} GPUs of a node"
    if match.framework != "litgpt":
        return ""
    argument = match.arguments.flags.get("--devices") or match.arguments.flags.get("--train.devices")
    known = "1" if argument is None and any("finetune" in word for word in words) else argument and argument.value.known
    if known and known.isdigit() and len(known) < 9 and int(known) < per_node:
        return f"litgpt trains on {int(known)} of {per_node} GPUs of a node"
    return ""


def _find_few_by_mpi(launch: ProgramLaunch, gpus: int | None) -> str:
    """Return the same of ``mpirun -np``."""
    for name in _MPI_RANKS:
        argument = launch.launcher_flags.flags.get(name)
        known = argument.value.known if argument is not None and argument.certain else None
        if argument is not None and known and known.isdigit() and len(known) < 9 and gpus and int(known) < gpus:
            return f"mpirun starts {int(known)} ranks, and there are {gpus} GPUs: {argument.shown[:80]}"
    return ""


def read_ranks(arguments: Arguments, findings: Findings) -> None:
    """State the number of ranks in ``findings.options``; nothing where a flag is missing or unknown.

    A launcher without a number of nodes takes one: only then is the number a node the total.
    """
    total = _parse_number(arguments, _ALL)
    per_node, nodes = _parse_number(arguments, _RANKS_PER_NODE), _parse_number(arguments, NODES)
    if total is None and per_node is not None:
        is_single = findings.get("plan.nodes") == 1
        if nodes is None and is_single and not any(name in arguments.flags for name in NODES):
            nodes = 1
        total = per_node * nodes if nodes else None
    if total and total <= MAX_RANKS:
        findings.options[OPTION] = str(total)
        if nodes:
            findings.options[NODES_OPTION] = str(nodes)


def _parse_number(arguments: Arguments, names: tuple[str, ...]) -> int | None:
    """Return the first positive whole number that one of these flags is given."""
    return next((number for name in names if (number := _parse_positive(arguments.flags.get(name)))), None)


def doubt_replicas(
    invocation: Invocation, variables: Mapping[str, Variable], findings: Findings, *, is_one_node: bool, few: str = ""
) -> None:
    """Remove the replicas, and a batch that follows from them, where fewer ranks may train than there are GPUs.

    They are then assumed, not stated. The reason is reported.

    Parameters
    ----------
    variables
        Variables at the end of the script.
    is_one_node
        The launcher runs on one node of several.
    few
        A reader's reason for few ranks; empty where there is none.
    """
    what = few or _find_hidden_gpus(invocation, variables, findings.get("plan.gpus_per_node"))
    if what:
        file, line = findings.locate(invocation.line)
        hint = "start as many ranks as there are GPUs, or ask for fewer GPUs"
        findings.problems.append(Problem(what=what, file=file, line=line, hint=hint))
    if not what and not is_one_node:
        return
    stated = findings.evidence.get("plan.global_batch")
    for name in ("plan.dp", *(("plan.global_batch",) if stated is not None and " × dp " in stated.text else ())):
        findings.values.pop(name, None)
        findings.evidence.pop(name, None)


def _find_hidden_gpus(invocation: Invocation, variables: Mapping[str, Variable], per_node: int | None) -> str:
    """Return how some of the GPUs are hidden from a command, empty where none are known to be."""
    if "deepspeed" in list_base_names(invocation):
        flags = get_arguments(invocation).flags
        if name := next((name for name in ("--include", "--exclude") if name in flags), ""):
            return f"deepspeed starts ranks on a part of the GPUs: {flags[name].shown[:80]}"
    visible = get_known_variable(invocation, variables, VISIBLE) or ""
    shown = len([part for part in visible.split(",") if part.strip()])
    return f"{VISIBLE} shows {shown} of {per_node} GPUs" if per_node and 0 < shown < per_node else ""


def get_known_variable(invocation: Invocation, variables: Mapping[str, Variable], name: str) -> str | None:
    """Return the value of a variable for a command, its own assignments first; empty where unknown, ``None`` unset."""
    variable = {**variables, **invocation.facts.get("assigned", {})}.get(name)
    if variable is None:
        return None
    return (variable.text.known or "") if isinstance(variable, Scalar) else ""


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
        tasks = _parse_positive(flags.get("--tasks-per-node")) or resources.gpus_per_node
    resources = replace(resources, ntasks_per_node=tasks)
    nodes = flags.get("--nodes")
    return resources if nodes is None else _limit_to_nodes(resources, nodes, findings)


def _limit_to_nodes(resources: Resources, argument: Argument, findings: Findings) -> Resources:
    """Return the resources of so many nodes of the job; none where their number is not known."""
    nodes, gpus_per_node = _parse_positive(argument), resources.gpus_per_node
    if nodes is None:
        why = argument.value.why or f"{argument.shown[:80]} is not a positive whole number"
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
    names = list_base_names(invocation)
    if "opsk" not in names:  # nearly no command has that word
        return None
    return next((index + 2 for index in range(len(names) - 1) if names[index : index + 2] == ("opsk", "launch")), None)


def _parse_opsk_flags(invocation: Invocation) -> dict[str, Argument]:
    """Return the flags of ``opsk launch`` itself; words after ``--`` are the command's."""
    words = invocation.words[_find_start(invocation) :]
    end = next((index for index, word in enumerate(words) if word.known == "--"), len(words))
    return parse_arguments(words[:end], valueless=_VALUELESS).flags


def _parse_positive(argument: Argument | None) -> int | None:
    """Return a flag's value, where it is certainly a positive whole number."""
    known = argument.value.known if argument is not None and argument.certain else None
    if not known or not known.isascii() or not known.isdigit() or len(known) > _MAX_DIGITS:
        return None
    return int(known) or None
