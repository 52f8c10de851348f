"""Reads how a training command runs: its processes, workers of data loaders, steps, master and NCCL's variables.

These facts need no model and no plan. Each is listed only where it is certain, as evidence with a dotted name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opsk.workload.workload import Evidence
from opsk_jobcheck.scripts.bash.scope import ALL_EXPORTED, EXPORTED
from opsk_jobcheck.scripts.bash.values import Invocation, Run, Scalar, Text, Variable
from opsk_jobcheck.scripts.checkpoint_stripes import find_stripes
from opsk_jobcheck.scripts.frameworks.huggingface.trainer import EXAMPLES
from opsk_jobcheck.scripts.frameworks.python.source import PythonSource
from opsk_jobcheck.scripts.launchers.programs import find_program, list_base_names
from opsk_jobcheck.scripts.launchers.ranks import (
    NODES,
    NODES_OPTION,
    ONE_RANK_LAUNCHERS,
    PER_NODE,
    SPREADS,
    STARTERS,
    ProgramLaunch,
    compute_tasks_per_node,
    parse_launcher_arguments,
)
from opsk_jobcheck.scripts.launchers.ranks import OPTION as RANKS
from opsk_jobcheck.scripts.sbatch.directives import read_directive_options
from opsk_jobcheck.scripts.sbatch.resources import Resources
from opsk_jobcheck.scripts.settings.arguments import Argument, Arguments, get_arguments
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.submission.request import SlurmRequest, seconds

IS_ONLY, PROCESSES, IS_SERIAL = "run.is_only_program", "run.processes", "run.is_serial"
"""That no other program uses the GPUs, how many processes are started, and that the program is written for one."""
IS_ONE_NODE, MASTER = "run.is_one_node", "run.master"
"""That the processes are on one node, and the host where they meet, empty for the default."""
WORKERS, CPUS, STEPS, CONTINUES, ATTENTION = (
    *("loader.workers_per_node", "slurm.cpus_per_node", "run.steps", "run.continues"),
    "attention.kernel",
)
"""Workers and CPUs of a node, steps of the whole run, that a later job may go on with it, the attention kernel."""
TIME_LIMIT, LOADS_WHOLE = "slurm.time_limit_s", "run.loads_whole_model"
"""The limit, and that each process loads the whole model into host memory first."""
CONTAINER_IMAGE = "run.container_image"
"""The image that ``srun`` gives to pyxis."""
STRIPES = "checkpoint.stripes"
"""Storage targets of Lustre over which each file of a checkpoint is spread; -1 for all."""
ENVIRONMENT = "environment."
"""Prefix of the names of variables."""
MAX_DIGITS = 10
CHANNEL_LIMITS = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS")
"""Variables that limit the channels of a communicator; the second is the name since NCCL 2.17."""
VARIABLES = (
    *("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA"),
    *("NCCL_SHM_DISABLE", "CUDA_LAUNCH_BLOCKING", "NCCL_ALGO", "NCCL_PROTO"),
    *CHANNEL_LIMITS,
)
"""Variables that checks read."""
_LOADER_FLAGS = ("--dataloader-num-workers", "--num-workers", "--num-data-workers", "--n-workers", "--workers")
_LOADER_NAMES = tuple(name[2:].replace("-", "_") for name in _LOADER_FLAGS)
_STEP_FLAGS = ("--train-iters", "--max-steps", "--training.steps", "--max-train-steps", "--num-train-steps")
_CONTINUING = re.compile(r"load|resume|exit-duration|exit-signal|exit-interval|restart|restore|ckpt-path")
_CONTINUING_OPTIONS = frozenset({"requeue", "signal", "dependency", "array"})
_ATTENTION_FLAGS = ("--attn-implementation", "--flash-attn", "--attn-impl", "--attention-implementation")
_ATTENTION_SWITCHES = ("--use-flash-attn", "--use-flash-attn-v2", "--use-flash-attention-2", "--use-flash-attention")
_SERVERS = frozenset(
    {"vllm", "vllm-serve", "sglang", "ray", "trtllm-serve", "ollama", "lmdeploy", "tritonserver", "jupyter"}
)
"""Commands that may use the other GPUs."""
_COUNTS_RANKS = frozenset({"oumi"})
"""Commands that give a launcher behind them as many ranks as there are GPUs (``oumi distributed torchrun``)."""
_SPREADING_FLAGS = frozenset({"--config-file", "--deepspeed-hostfile", "--deepspeed-multinode-launcher"})
"""Flags of ``accelerate launch`` with which it may start others by itself."""
_MASTERS = ("--rdzv-endpoint", "--master-addr", "--main-process-ip")
_MEETS_ELSEWHERE = frozenset({"--rdzv-conf", "--standalone", "--rdzv-id", "--rdzv-backend", "--hostfile"})
_LAUNCHERS_WITH_MASTER = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
_MANY = re.compile(
    r"cuda:\s*[1-9{]|\bDataParallel|MirroredStrategy|CUDA_VISIBLE|nproc|world_size\s*=\s*torch\.cuda\.device_count"
    r"|mp\.spawn|device_map|devices=|parallelize|submitit|srun|mpirun"
)
"""Words of programs that may use several GPUs, or start other processes."""
_LOADS_ELSEWHERE = re.compile(r"device_map|init_empty_weights|meta|load_in_|quantization_config|unsloth")
_PARALLEL = (
    *("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "fully_shard", "init_process_group"),
    *("Accelerator", "all_reduce", "DistributedSampler"),
)
"""What a program calls that is written for several processes."""
_MANY_IMPORTS = re.compile(
    r"(^|\.)(lightning|pytorch_lightning|lightning_fabric|ray|jax|flax|tensorflow|keras|vllm|multiprocessing|deepspeed"
    r"|detectron2|mmengine|mmcv|ultralytics|fastai|composer|colossalai|submitit|subprocess|mpi4py|horovod|ignite"
    r"|transformers)(\.|$)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is known of the start of a training command.

    ``framework`` is that of the reader that knows the program, empty for programs of users; ``source`` the Python file
    of such a program.
    """

    command: Invocation
    launch: ProgramLaunch | None
    resources: Resources
    run: Run
    findings: Findings
    framework: str = ""
    source: PythonSource | None = None

    @property
    def arguments(self) -> Arguments:
        """The flags of the command."""
        return get_arguments(self.command)

    @property
    def nodes(self) -> int:
        """The nodes of the job, 0 where they are unknown."""
        return self.resources.nodes or 0

    def cite(self, name: str, value: object, line: int, text: str) -> Evidence:
        """Return a fact with its place."""
        file, number = self.findings.locate(line)
        return Evidence(field=name, value=value, file=file, line=number, text=text[:200])


def read_run_facts(start: Start) -> Iterator[Evidence]:
    """Yield what is certain of how a training command runs; nothing where it may not run."""
    if not start.command.certain:
        return
    yield from _read_processes(start)
    yield from _read_master(start)
    yield from _read_loader(start)
    yield from _read_steps(start)
    yield from _read_loading(start)
    yield from _read_attention(start)
    yield from _read_environment(start)
    yield from _read_container(start)
    stripes = find_stripes(start.framework, start.arguments, start.run)
    if stripes is not None:
        yield start.cite(STRIPES, stripes.count, stripes.line, stripes.text)


def add_time_limit(
    facts: tuple[Evidence, ...], text: str, request: SlurmRequest | None, *, file: str
) -> tuple[Evidence, ...]:
    """Return the facts with the time limit; without the steps where there is none, or where the job may run again.

    Scripts that differ in their steps then have the same facts. The request overrides the script, and both the default
    of the partition.
    """
    names = {entry.field for entry in facts}
    if STEPS not in names:
        return facts
    options = read_directive_options(text) if CONTINUES not in names else {}
    limit_s = request.time_limit_s if request is not None and request.time_limit_s else seconds(options.get("time"))
    stated = f"--time={options.get('time', '')}"
    if not limit_s and "time" not in options and request is not None:
        limit_s, stated = request.default_time_s, request.default_time_source
    if not limit_s or CONTINUES in names or not _CONTINUING_OPTIONS.isdisjoint(options):
        return tuple(entry for entry in facts if entry.field != STEPS)
    limit = Evidence(field=TIME_LIMIT, value=limit_s, file=file, line=0, text=stated)
    return (*facts, limit)


def _read_processes(start: Start) -> Iterator[Evidence]:
    """Yield how many processes are started, and that they are on one node of several, where no reader reports it."""
    launch, command = start.launch, start.command
    if launch is None:
        return
    if _is_only_program(start) and not _spreads_model(start):
        yield start.cite(IS_ONLY, True, start.command.line, _name_program(start.command))
    count, what = _count_processes(start, launch)
    if count is not None:
        yield start.cite(PROCESSES, count, command.line, what)
        if start.source is not None and not any(start.source.find_calls(*_PARALLEL)) and not start.framework:
            yield start.cite(IS_SERIAL, True, command.line, what)
    is_alone = launch.step is None and launch.is_alone and not launch.agent and start.nodes > 1
    is_alone = is_alone and not _starts_other_nodes(command)
    is_launched = "accelerate" in list_base_names(command) and _SPREADING_FLAGS.isdisjoint(launch.launcher_flags.flags)
    if is_alone and (count is not None or start.framework or is_launched):
        yield start.cite(IS_ONE_NODE, True, command.line, _name_program(command))


def _count_processes(start: Start, launch: ProgramLaunch) -> tuple[int | None, str]:
    """Return how many processes are started in all, with what starts them; ``None`` where that is not certain."""
    launcher, name = launch.launcher_flags, _name_program(start.command)
    is_open = bool(launcher.opaque) or any(flag in launcher.flags for flag in PER_NODE)
    if (
        launch.agent in ONE_RANK_LAUNCHERS
        and not start.framework
        and _COUNTS_RANKS.isdisjoint(list_base_names(start.command))
    ):
        is_preset = "PET_NPROC_PER_NODE" in start.run.variables
        nodes = start.nodes if launch.step is not None else 1
        return (None if is_open or is_preset or not nodes else nodes), f"{launch.agent} without --nproc_per_node"
    names = set(list_base_names(start.command)) - {"srun"}
    if launch.agent or not (STARTERS | SPREADS).isdisjoint(names) or not is_certainly_one(start):
        return None, ""
    if launch.step is None:
        return (1 if launch.is_alone else None), name
    if start.framework:
        return None, ""  # reported by the reader of its launcher
    tasks = compute_tasks_per_node(launch, start.resources)
    if tasks is None and launch.step.ntasks is None and start.resources.ntasks is None:
        tasks = 1  # srun starts a task a node unless it is asked for more
    nodes = launch.step.nodes or start.nodes
    return (tasks * nodes if tasks and nodes else None), f"srun {name}"


def is_certainly_one(start: Start) -> bool:
    """Return whether the script starts one program, which starts no other process, by its text or its framework."""
    program, source = find_program(start.command), start.source
    if program is None or not _is_only_program(start):
        return False
    if start.framework.startswith("megatron"):
        return True
    if start.framework.startswith(("hf-trainer", "trl")):
        text = "\n".join(source.lines) if source is not None else ""
        return bool(EXAMPLES.fullmatch(program.file)) or (source is not None and not _MANY.search(text))
    if start.framework or source is None or not any(source.find_calls("backward")):
        return False
    if not any(source.find_calls("cuda", "to", "prepare")):  # another module places the model, on one GPU or several
        return False
    is_torch = any(name.partition(".")[0] == "torch" for name in source.imports)
    return is_torch and not any(map(_MANY_IMPORTS.search, source.imports)) and not _MANY.search("\n".join(source.lines))


def _starts_other_nodes(command: Invocation) -> bool:
    """Return whether a program starts its ranks on other nodes by itself.

    GPT-NeoX's ``deepy.py`` runs DeepSpeed's launcher with a host file, or ``launcher: slurm``.
    """
    program = find_program(command)
    return program is not None and program.file.rpartition("/")[2] == "deepy.py"


def _is_only_program(start: Start) -> bool:
    """Return whether the script starts no other program that may use GPUs, and hides none of them."""
    programs = [entry for entry in start.run.invocations if find_program(entry) is not None]
    serves = any(not _SERVERS.isdisjoint(list_base_names(entry)) for entry in start.run.invocations)
    return len(programs) == 1 and not serves and _find_variable(start, "CUDA_VISIBLE_DEVICES") is None


def _spreads_model(start: Start) -> bool:
    """Return whether one process may use all GPUs: ``device_map`` puts layers of a model on each."""
    return start.source is not None and any("device_map" in line for line in start.source.lines)


def _name_program(command: Invocation) -> str:
    """Return the program as a person would call it."""
    program = find_program(command)
    return f"python {program.file}"[:80] if program is not None else list_base_names(command)[0][:80]


def _read_master(start: Start) -> Iterator[Evidence]:
    """Yield where the processes of several nodes meet; an empty name is the default, which is each node itself."""
    launch = start.launch
    if launch is None or launch.step is None or launch.step.nodes == 1 or start.nodes < 2:
        return
    flags = launch.launcher_flags.flags
    given = next((flags[name] for name in _MASTERS if name in flags), None)
    if given is not None:
        if given.certain and given.value.known:
            yield start.cite(MASTER, given.value.known, given.line, given.shown)
    elif launch.agent in _LAUNCHERS_WITH_MASTER:
        is_open = launch.launcher_flags.opaque or not _MEETS_ELSEWHERE.isdisjoint(flags)
        is_preset = any(name.startswith("PET_") for name in start.run.variables)
        if any(name in flags for name in NODES) and not is_open and not is_preset:
            yield start.cite(MASTER, "", launch.line, launch.agent)
    elif not launch.agent and STARTERS.isdisjoint(list_base_names(start.command)) and _takes_master(start):
        address = _find_variable(start, "MASTER_ADDR")
        if address is not None and address.known:
            yield start.cite(MASTER, address.known, address.line, f"MASTER_ADDR={address.known}")


def _takes_master(start: Start) -> bool:
    """Return whether the program meets where the environment says, and does not set that itself."""
    if start.framework:
        return start.framework.startswith("megatron")
    lines = start.source.lines if start.source is not None else ("MASTER_ADDR",)
    return not any("MASTER_ADDR" in line or "NODELIST" in line for line in lines)


def _read_loader(start: Start) -> Iterator[Evidence]:
    """Yield the workers that the data loaders of a node start, and the CPUs that the job requests on it."""
    cpus, tasks = start.resources.cpus_per_task, _count_requested_tasks(start.resources)
    if not cpus or not tasks:
        return
    workers, line, text = _find_workers(start)
    if workers is None:
        return
    processes = _count_processes_per_node(start) if _is_per_process(start) else 1
    more = f" × {processes} processes" if processes > 1 else ""
    yield start.cite(WORKERS, workers * processes, line, f"{text}{more}")
    stated = next((entry for entry in start.resources.evidence if entry.field == "slurm.cpus_per_task"), None)
    where = stated or start.cite(CPUS, cpus, 0, f"--cpus-per-task={cpus}")
    yield Evidence(field=CPUS, value=cpus * tasks, file=where.file, line=where.line, text=f"--cpus-per-task={cpus}")


def _count_requested_tasks(resources: Resources) -> int | None:
    """Return the tasks of a node; one where the job requests none in particular."""
    if resources.ntasks_per_node:
        return resources.ntasks_per_node
    if resources.ntasks is None:
        return 1 if resources.ntasks_per_gpu is None and resources.gpus_per_task is None else None
    return resources.ntasks // resources.nodes if resources.nodes and resources.ntasks % resources.nodes == 0 else None


def _find_workers(start: Start) -> tuple[int | None, int, str]:
    """Return the workers of one data loader with their line and text; ``None`` where they are unknown."""
    for name in _LOADER_FLAGS:
        if (argument := start.arguments.flags.get(name)) is not None:
            return _parse_count(argument), argument.line, argument.shown
    source = start.source
    if source is None or start.arguments.opaque:
        return None, 0, ""
    for name in _LOADER_NAMES:
        value = source.defaults.get(name)
        if value is not None and value.is_known and isinstance(value.literal, int) and name not in source.changed:
            return int(value.literal), start.command.line, f"default of --{name} {value.literal}"
    return None, 0, ""


def _is_per_process(start: Start) -> bool:
    """Return whether each process starts so many workers, not all of them together."""
    if start.source is not None:
        return start.source.divided.isdisjoint(_LOADER_NAMES)
    return bool(start.framework) or _LOADER_FLAGS[0] in start.arguments.flags


def _count_processes_per_node(start: Start) -> int:
    """Return the processes of a node as far as they are known, else one."""
    options, launch = start.findings.options, start.launch
    ranks, nodes = options.get(RANKS, ""), options.get(NODES_OPTION, "") or str(start.nodes)
    if ranks.isdigit() and nodes.isdigit() and int(nodes) and int(ranks) % int(nodes) == 0:
        return int(ranks) // int(nodes)
    for name in PER_NODE if launch is not None else ():
        if launch is not None and (argument := launch.launcher_flags.flags.get(name)) is not None:
            return _parse_count(argument) or 1
    if launch is not None and launch.step is not None and not launch.agent:
        return compute_tasks_per_node(launch, start.resources) or 1
    return 1


def _read_steps(start: Start) -> Iterator[Evidence]:
    """Yield the steps of a program whose steps are those of the optimizer, and that it goes on with an earlier run."""
    if not start.framework:
        return
    flags = start.arguments.flags
    argument = next((flags[name] for name in _STEP_FLAGS if name in flags), None)
    if argument is None or (count := _parse_count(argument)) is None:
        return
    yield start.cite(STEPS, count, argument.line, argument.shown)
    continuing = _CONTINUING.search(" ".join(flags))
    resubmits = any("sbatch" in list_base_names(entry)[:1] for entry in start.run.invocations)
    if continuing or resubmits or start.arguments.opaque:
        yield start.cite(CONTINUES, True, start.command.line, continuing[0] if continuing else "")


def _read_loading(start: Start) -> Iterator[Evidence]:
    """Yield that each process loads the whole model before it goes to its GPU, as ``from_pretrained`` does.

    Source: ``PreTrainedModel.from_pretrained`` of transformers loads into host memory unless it gets a ``device_map``.
    """
    program = find_program(start.command)
    if program is None or not start.framework.startswith(("hf-trainer", "trl")):
        return
    text = "\n".join(start.source.lines) if start.source is not None else ""
    if EXAMPLES.fullmatch(program.file) or (text and not _LOADS_ELSEWHERE.search(text)):
        yield start.cite(LOADS_WHOLE, True, start.command.line, _name_program(start.command))


def _read_attention(start: Start) -> Iterator[Evidence]:
    """Yield the attention kernel that a flag names."""
    flags = start.arguments.flags
    for name in _ATTENTION_FLAGS:
        if (argument := flags.get(name)) is not None and argument.certain and argument.value.known:
            yield start.cite(ATTENTION, argument.value.known, argument.line, argument.shown)
    for name in _ATTENTION_SWITCHES:
        argument = flags.get(name)
        if argument is not None and argument.certain and argument.value.known in (None, "", "true", "True", "1"):
            kernel = "flash_attention_2" if "2" in name else "flash_attention"
            yield start.cite(ATTENTION, kernel, argument.line, argument.shown)


def _read_environment(start: Start) -> Iterator[Evidence]:
    """Yield the variables that the command gets from the script."""
    for name in VARIABLES:
        text = _find_variable(start, name)
        if text is not None and text.known:
            yield start.cite(f"{ENVIRONMENT}{name}", text.known, text.line, f"{name}={text.known}")


def _read_container(start: Start) -> Iterator[Evidence]:
    """Yield the container image of every ``srun`` of the script that names one, where it is the same."""
    steps = [entry for entry in start.run.invocations if "srun" in list_base_names(entry)]
    named = [parse_launcher_arguments(entry).flags.get("--container-image") for entry in steps]
    images = [argument for argument in named if argument is not None]
    if images and len({(entry.certain, entry.value.known) for entry in images}) == 1:
        (first, *_) = images
        if first.certain and first.value.known:
            yield start.cite(CONTAINER_IMAGE, first.value.known, first.line, first.shown)


def _find_variable(start: Start, name: str) -> Text | None:
    """Return the value of an exported variable, or of one that stands before the command."""
    assigned: Mapping[str, Variable] = start.command.facts.get("assigned", {})
    variables = start.run.variables
    exports = [variables[key] for key in (EXPORTED + name, ALL_EXPORTED) if key in variables]
    is_exported = any(isinstance(entry, Scalar) and entry.text.known is not None for entry in exports)
    variable = assigned.get(name) or (variables.get(name) if is_exported else None)
    return variable.text if isinstance(variable, Scalar) else None


def _parse_count(argument: Argument) -> int | None:
    """Return the whole number that a flag is certainly given."""
    known = argument.value.known if argument.certain else None
    return int(known) if known and known.isascii() and known.isdigit() and len(known) < MAX_DIGITS else None
