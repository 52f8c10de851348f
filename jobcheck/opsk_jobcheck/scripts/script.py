"""Reads the training run that a launch script describes. The single entry to all readers; nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from opsk.workload.public_models.measured import fixes_length
from opsk.workload.roles import METHOD
from opsk.workload.workload import Evidence, Problem, Unknown, Workload
from opsk_jobcheck.scripts.array_tasks import run_tasks
from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.scope import DIRECTORY, START, resolve_path
from opsk_jobcheck.scripts.bash.splitting import DEFAULT_IFS
from opsk_jobcheck.scripts.bash.values import RUNS_SHELL_TEXT, Invocation, Run, Text, literal
from opsk_jobcheck.scripts.frameworks.engine_gpus import set_engine_apart
from opsk_jobcheck.scripts.frameworks.huggingface.model import find_public_name, state_config
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import ADAPTERS, read_trainable
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION as TRAINABLE
from opsk_jobcheck.scripts.frameworks.huggingface.vision_towers import doubt_tower, list_tower_settings
from opsk_jobcheck.scripts.frameworks.megatron.lookalikes import is_lookalike, may_be_lookalike
from opsk_jobcheck.scripts.frameworks.megatron.megatron import MEGATRON
from opsk_jobcheck.scripts.frameworks.own_program.program import (
    ACCELERATE,
    MAX_OWN_WEIGHT,
    OWN_PROGRAMS,
    WITH_OWN_PARTS,
    does_train,
    find_source,
    has_own_loop,
    may_be_own_program,
    name_framework,
    read_own_parts,
    read_own_program,
    takes_settings_of_trl,
)
from opsk_jobcheck.scripts.frameworks.recognition import (
    find_launcher,
    find_training_command,
    is_cut_off,
    looks_like_training,
    refine_framework,
    select_commands,
)
from opsk_jobcheck.scripts.frameworks.registry import READERS
from opsk_jobcheck.scripts.frameworks.serving import read_serving
from opsk_jobcheck.scripts.launchers.programs import (
    CONNECTIVITY,
    MAX_NAME_CHARS,
    SHAPE,
    collect_flags,
    denies_training,
    does_other_work,
    doubt_what_differs,
    filter_training,
    find_program,
    find_python_text,
    list_base_names,
    trains_as_text,
)
from opsk_jobcheck.scripts.launchers.ranks import (
    ProgramLaunch,
    check_launch,
    compute_tasks_per_node,
    doubt_replicas,
    exclude_spares,
    find_few_ranks,
    find_launch,
    find_one_task_per_gpu,
    is_opsk_launch,
    parse_launcher_arguments,
    read_ranks,
    state_launch,
)
from opsk_jobcheck.scripts.run_facts import Start, add_time_limit, read_run_facts
from opsk_jobcheck.scripts.sbatch.directives import find_late_directives, read_directive_options, read_directives
from opsk_jobcheck.scripts.sbatch.resources import Resources, build_slurm_variables, derive_values, merge
from opsk_jobcheck.scripts.sbatch.statements import Statements, apply_statements, read_opsk_lines
from opsk_jobcheck.scripts.separate_runs import list_other_runs, separate_runs
from opsk_jobcheck.scripts.settings.arguments import Arguments, get_arguments
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading, find_best_match
from opsk_jobcheck.submission.request import SlurmRequest

MAX_SCRIPT_CHARS = 1 << 18
MAX_MISSING_FILES = 16
_GPU_NODES = re.compile(r"(?i)gpu|cuda|dgx|hgx|rtx|tesla|quadro|(?<![a-z0-9])(a|v|h|b|p|k|l|gh|gb|mi)\d{2,3}(?![0-9])")
"""Names of partitions, features and nodes that have GPUs."""
MAX_PROGRAMS = 3
"""Python programs of one script whose texts are asked for."""
MAX_CUT_OFF = 4
"""Maximum number of cut-off commands that are reported."""
_NODE_COUNT_FLAGS = ("--nnodes", "--num-machines", "--num-nodes")
_PROCESS_FLAGS = ("--nproc-per-node", "--num-gpus")
_CONFIG_SUFFIX = "config.json"
_MAY_BE_OF_TRL = {"hf-trainer": "trl", "hf-trainer+deepspeed": "trl", "accelerate": "trl + accelerate"}
"""Frameworks by their flags, and what they are where the program's parser takes TRL's."""
_OWN_LOOPS = frozenset({"accelerate", "accelerate.commands.launch"})
"""Launchers whose own settings are read for a program that has flags of the Trainer's names, and no Trainer."""
_SETS_UP = re.compile(r"(^|/)(\.\w*(rc|profile)|activate|conda\.sh|profile(\.d/.*)?|lmod\.sh|modules\.sh)$")
"""Files that set up a shell, not a training run; they are large, private, and what they set stays unknown."""
_OTHER_CONFIGS = (
    "deepspeed",
    "ds_config",
    "tokenizer_config",
    "generation_config",
    "preprocessor_config",
    "adapter_config",
)


_READ = frozenset(name for reader in READERS for name in reader.frameworks)
"""Frameworks whose settings are read, though not those of every program."""
_ASKS_FOR_NODES = re.compile(
    r"SLURM_(JOB_)?(NUM_NODES|NNODES|NODELIST)|SLURM_(NODEID|STEP_NODELIST|NTASKS|PROCID)|scontrol\s+show\s+host"
    r"|n_?nodes|num[_-](nodes|machines)|srun\s[^\n]*(\s-N|--nodes)",
    re.IGNORECASE,
)
"""Text of scripts that may run on several nodes, and are given their number at submission."""
_ONLY_SHOWN = re.compile(r"^[ \t]*(echo|printf)\b[^\n|>;&]*$|^[ \t]*#(?!SBATCH)[^\n]*$", re.MULTILINE)
"""Lines that only say something: many print the list of their one node."""


def read_script(
    text: str | bytes,
    *,
    file: str,
    request: SlurmRequest | None = None,
    files: Mapping[str, str] | None = None,
    unread: Collection[str] = (),
    number_spans: Sequence[tuple[int, int]] = (),
) -> Workload:
    """Return what a script states; never raises for its content.

    Parameters
    ----------
    text
        The script; bytes are read as UTF-8.
    file
        Its name, for evidence.
    request
        The request to Slurm; it overrides the script's own ``#SBATCH`` lines.
    files
        Texts of the files in `Workload.missing_files`, by the requested path.
    unread
        Paths of files whose text was asked for and cannot be read.
    number_spans
        Start and end offsets of numbers that are read as unknown; see `free_numbers`.
    """
    source, problem = _decode(text, file)
    if source is None:
        return Workload(framework=None, is_training=False, problems=(problem,) if problem else ())
    statements = read_opsk_lines(source, file=file)
    directives = read_directives(source, file=file)
    resources = merge(directives, request, is_for_one_node=not _ASKS_FOR_NODES.search(_ONLY_SHOWN.sub("", source)))
    given = request.arguments if request else None
    arguments = None if given is None else tuple(literal(word, 0) for word in given)
    options = read_directive_options(source)
    variables = build_slurm_variables(source, resources, request) | _build_shell_variables(
        request, is_moved="chdir" in options
    )

    def start(given: Mapping[str, Text]) -> Run:
        environment = request.environment if request else None
        return run(
            source,
            given=given,
            environment=environment,
            arguments=arguments,
            files=files,
            number_spans=number_spans,
        )

    result = start(variables)
    read = partial(
        _read,
        resources=resources,
        statements=statements,
        file=file,
        files=files or {},
        unread=frozenset(unread),
        job_name=directives.job_name,
    )
    extra = (
        *((problem,) if problem else ()),
        *(Problem(what=what, file=file, line=line) for line, what in result.problems),
        *find_late_directives(source, file=file),
    )

    def finish(workload: Workload) -> Workload:
        if workload.facts:
            workload = replace(workload, facts=add_time_limit(workload.facts, source, request, file=file))
        return apply_statements(_add_problems(workload, extra), statements)

    workload = finish(read(result))
    tasks = run_tasks(source, options.get("array", ""), variables, start) if workload.is_training else []
    if len(tasks) > 1:
        workload, *others = (finish(read(task)) for task in tasks)
        return _add_other_runs(workload, others, len(tasks))
    runs, count = separate_runs(result) if workload.is_training else ([], 0)
    return _add_other_runs(workload, [finish(read(run)) for run in runs], count) if runs else workload


def _decode(text: str | bytes, file: str) -> tuple[str | None, Problem | None]:
    """Return the script as text, cut where it is too long, with a problem where it cannot be read in full."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    if "\0" in text:
        what = "this is a binary file, not a script: it holds NUL characters"
        return None, Problem(what=what, file=file, hint="sbatch wants a text script")
    if len(text) > MAX_SCRIPT_CHARS:
        cut = text.rfind("\n", 0, MAX_SCRIPT_CHARS) + 1 or MAX_SCRIPT_CHARS
        what = f"the script has {len(text)} characters; only the first {cut} were read"
        return text[:cut], Problem(what=what, file=file, line=text.count("\n", 0, cut) + 1, hint="put data in files")
    if text.startswith("\ufeff"):
        what = "the script starts with a byte order mark, and sbatch refuses it: the first line must start with #!"
        return text[1:], Problem(what=what, file=file, line=1, hint="save it as UTF-8 without a byte order mark")
    return text, None


def _build_shell_variables(request: SlurmRequest | None, *, is_moved: bool) -> dict[str, Text]:
    """Return the variables of a shell that is new, and those that say where the job starts, as far as that is known.

    Parameters
    ----------
    is_moved
        Whether the job starts in another directory than the one that it is submitted from.
    """
    places: dict[str, Text] = {"IFS": literal(DEFAULT_IFS, 0)}
    if not is_moved:
        places["SLURM_SUBMIT_DIR"] = START
    if request and request.directory:
        places |= {DIRECTORY: literal(request.directory, 0), "PWD": literal(request.directory, 0)}
    if request and request.submit_directory:
        places["SLURM_SUBMIT_DIR"] = literal(request.submit_directory, 0)
    return places


def _add_other_runs(workload: Workload, runs: list[Workload], count: int) -> Workload:
    """Return a workload with the script's trainings of other settings, and the files that these need."""
    missing = dict.fromkeys(path for run in (workload, *runs) for path in run.missing_files)
    others = list_other_runs(workload, runs)
    return replace(
        workload,
        other_runs=others,
        run_count=count if others else 1,
        missing_files=tuple(missing)[:MAX_MISSING_FILES],
    )


def _read(
    result: Run,
    *,
    resources: Resources,
    statements: Statements,
    file: str,
    files: Mapping[str, str],
    unread: frozenset[str],
    job_name: str | None,
) -> Workload:
    """Combine the values of resources, framework and named files."""
    commands = select_commands(result.invocations)
    findings = Findings(file, places=result.places)
    _state_resources(resources, findings)
    resources = exclude_spares(resources, commands, findings)
    reading = Reading(
        run=result,
        findings=findings,
        files=files,
        missing_files=list(result.sourced),
        unread=unread,
        has_gpus=_may_have_gpus(resources),
    )
    chosen = _choose_command(commands, reading)
    _report_cut_off_flags(result, findings)
    command = chosen[1].invocation if chosen else _find_own_command(result, commands, reading)
    launch = find_launch(result, command)
    state_launch(launch, resources, findings)
    is_preset = "PET_NNODES" in result.variables or any(map(is_opsk_launch, commands))
    is_one_node = check_launch(launch, resources, findings, is_preset=is_preset)
    _state_launcher_sizes(result, launch.launcher_flags if launch and chosen else None, findings)
    framework = refine_framework(chosen[1].framework if chosen else None, result.invocations)
    if chosen:
        chosen[0].read(chosen[1], reading)
        doubt_what_differs(chosen[1], READERS, filter_training(commands), reading)
        if not findings.options.keys() & {TRAINABLE, ADAPTERS, METHOD}:
            read_trainable(
                chosen[1].invocation, findings, framework=chosen[1].framework, known=list_tower_settings(findings)
            )
        read_ranks(launch.launcher_flags if launch else get_arguments(chosen[1].invocation), findings)
    if chosen and chosen[1].framework in WITH_OWN_PARTS:
        read_own_parts(chosen[1].invocation, reading, is_trl=chosen[1].framework in ("trl", "trl + accelerate"))
    is_own = may_be_own_program(framework, is_read=chosen is not None)
    if command is not None and is_own and (not chosen or chosen[1].weight <= MAX_OWN_WEIGHT):
        tasks = compute_tasks_per_node(launch, resources)
        trainer = read_own_program(command, reading, tasks=tasks)
        framework = name_framework(framework, trainer, is_read=chosen is not None)
    if command is not None and not chosen and not reading.model_name:
        reading.model_name = find_public_name(collect_flags(get_arguments(command)))
    name = _read_named_configs(reading)
    doubt_tower(reading)
    _state_statements(statements, findings)
    has_engine = chosen is not None and set_engine_apart(commands, chosen[1].invocation, findings)
    derive_values(findings)
    if chosen and not has_engine:
        few = reading.few_ranks or find_few_ranks(launch, chosen[1], resources, result.variables, findings)
        doubt_replicas(chosen[1].invocation, result.variables, findings, is_one_node=is_one_node, few=few)
    is_training = bool(statements.framework or _trains(result, chosen[1] if chosen else None, framework))
    if not is_training and command is not None and not chosen:
        does_go_back = reading.trains is not False and does_train(find_source(command, reading))
        is_known = reading.trains or trains_as_text(command) or does_go_back
        is_training = is_known and not denies_training(command)
    facts: tuple[Evidence, ...] = ()
    if is_training and command is not None:
        start = Start(
            command=command,
            launch=launch,
            resources=resources,
            run=result,
            findings=findings,
            framework=chosen[1].framework if chosen and chosen[1].framework not in OWN_PROGRAMS else "",
            source=find_source(command, reading) if is_own or framework in WITH_OWN_PARTS else None,
        )
        facts = tuple(read_run_facts(start))
    if not is_training:
        read_serving(result.invocations, reading)
    if is_training and not chosen:
        _report_unread(framework, findings, model_name=reading.model_name)
    return Workload(
        framework=framework,
        launcher=_find_launcher(result, resources, launch),
        job_name=job_name,
        is_training=is_training,
        gpu=resources.gpu_type,
        model=findings.model(name),
        plan=findings.plan(),
        options=tuple(sorted(findings.options.items())),
        evidence=tuple(findings.evidence.values()),
        own_names=reading.own_names,
        command_line=_find_line(command, findings),
        facts=facts,
        missing_files=_list_missing_files(reading),
        unknown=tuple(findings.unknown.values()),
        problems=tuple(findings.problems),
    )


def _choose_command(commands: Sequence[Invocation], reading: Reading) -> tuple[Reader, Match] | None:
    """Return the command to be read and its reader; not Megatron's where a program only has flags of its spelling."""
    chosen = _find_best_match(commands, READERS)
    if chosen is not None and chosen[1].framework in _MAY_BE_OF_TRL:
        match, asked = chosen[1], len(reading.missing_files)
        source = find_source(match.invocation, reading)
        if source is None:  # its reader asks for it, after what comes first
            del reading.missing_files[asked:]
        if takes_settings_of_trl(source):
            return chosen[0], replace(match, framework=_MAY_BE_OF_TRL[match.framework])
        if match.framework != ACCELERATE and has_own_loop(source):
            launched = _OWN_LOOPS.intersection(list_base_names(match.invocation))
            return (chosen[0], replace(match, framework=ACCELERATE, weight=MAX_OWN_WEIGHT)) if launched else None
    if chosen is None or chosen[0] is not MEGATRON or not may_be_lookalike(chosen[1], reading.run):
        return chosen
    if not is_lookalike(chosen[1], find_source(chosen[1].invocation, reading)):
        return chosen
    return _find_best_match(commands, [reader for reader in READERS if reader is not MEGATRON])


def _find_best_match(commands: Sequence[Invocation], readers: Sequence[Reader]) -> tuple[Reader, Match] | None:
    """Return the command to be read and its reader; commands that only run a shell's text come last."""
    training = filter_training(commands)
    direct = [entry for entry in training if RUNS_SHELL_TEXT not in entry.facts]
    for row in [direct, training, commands]:
        if row is direct or len(row) > len(direct):
            chosen = find_best_match(readers, row)
            if chosen is not None:
                return chosen
    return None


def _find_own_command(result: Run, commands: Sequence[Invocation], reading: Reading) -> Invocation | None:
    """Return the command that trains by its name or launcher, else a Python program that does no other work.

    Of several, it is the first that trains by what its text says, else the last.
    """
    command = find_training_command(result.invocations)
    is_script = (
        command is not None and find_program(command) is None and any(_is_script(word) for word in command.words)
    )
    if command is not None and not is_script:
        return command
    training = filter_training(commands)
    programs = [entry for entry in training if find_program(entry) is not None or find_python_text(entry)]
    if len(programs) > 1:
        trains = (entry for entry in programs[:MAX_PROGRAMS] if does_train(find_source(entry, reading)))
        return next(trains, programs[-1])
    return programs[-1] if programs else command


def _find_line(command: Invocation | None, findings: Findings) -> int:
    """Return the line of the script on which a command starts; 0 for none, and for one of another script."""
    if command is None:
        return 0
    file, line = findings.locate(command.line)
    return line if file == findings.file else 0


def _is_script(word: Text) -> bool:
    """Return whether a word names a script of a shell."""
    return word.shown.endswith((".sh", ".bash"))


def _report_cut_off_flags(result: Run, findings: Findings) -> None:
    """Report flags that are cut off from their command; they are none of its settings.

    The line before them is a comment, or has no backslash, or one with a blank behind it.
    """
    for entry in [entry for entry in result.invocations if entry.words and is_cut_off(entry)][:MAX_CUT_OFF]:
        file, line = findings.locate(entry.line)
        what = f"{entry.known_words[0][:60]} starts a new command, as the line before does not continue"
        hint = "end that line with a backslash alone; no comment in between"
        findings.problems.append(Problem(what=what, file=file, line=line, hint=hint))


def _trains(result: Run, chosen: Match | None, framework: str | None) -> bool:
    """Return whether a script trains: what only prepares data, evaluates or tests the network does not."""
    if chosen:
        return chosen.framework != CONNECTIVITY and not does_other_work(chosen.invocation)
    rest = filter_training(result.invocations)
    return looks_like_training(rest) or (framework is not None and len(rest) == len(result.invocations))


def _find_launcher(result: Run, resources: Resources, launch: ProgramLaunch | None) -> str | None:
    """Return how ranks are started; for a script of another scheduler, that scheduler."""
    if resources.scheduler not in (None, "slurm"):
        return resources.scheduler.upper()
    return find_launcher(result.invocations, ntasks_per_node=find_one_task_per_gpu(launch, resources))


def _may_have_gpus(resources: Resources) -> bool:
    """Return whether a job may have GPUs although the number of them is not known."""
    is_open = any(row.field in ("plan.gpus", "plan.gpus_per_node") for row in resources.unknown)
    named = (resources.partition, resources.constraint, resources.nodelist)
    return is_open or any(_GPU_NODES.search(name[:MAX_NAME_CHARS]) is not None for name in named if name)


def _state_resources(resources: Resources, findings: Findings) -> None:
    """State the request to Slurm."""
    for name in ("nodes", "gpus_per_node", "gpus"):
        if (value := getattr(resources, name)) is not None:
            findings.values[f"plan.{name}"] = value
    for entry in resources.evidence:
        if entry.field.startswith("plan.") or entry.field == "gpu":
            findings.evidence[entry.field] = entry
    for reason in resources.unknown:
        if reason.field.startswith("plan."):
            findings.unknown[reason.field] = reason
    findings.problems.extend(resources.problems)


def _state_launcher_sizes(result: Run, arguments: Arguments | None, findings: Findings) -> None:
    """Fill nodes and GPUs from the launcher's own flags where the request to Slurm has none."""
    rows = (
        [arguments] if arguments else [parse_launcher_arguments(entry) for entry in filter_training(result.invocations)]
    )
    for field, names in (("plan.nodes", _NODE_COUNT_FLAGS), ("plan.gpus_per_node", _PROCESS_FLAGS)):
        for row in rows:
            argument = next((row.flags[name] for name in names if name in row.flags), None)
            if argument and field not in findings.values and (argument.value.known or "").isdigit():
                findings.state_number(field, argument.value, argument.line, argument.shown)
    nodes, per_node = findings.get("plan.nodes"), findings.get("plan.gpus_per_node")
    if nodes and per_node and "plan.gpus" not in findings.values:
        file, line = findings.find_source("plan.gpus_per_node")
        findings.state("plan.gpus", nodes * per_node, line, f"nodes {nodes} × {per_node} GPUs", file=file)


def _read_named_configs(reading: Reading) -> str | None:
    """Read the HuggingFace configurations of models that the script names; return the model's name."""
    name: str | None = None
    seen: set[str] = set()
    for entry in select_commands(reading.run.invocations):
        for known in entry.known_words:
            if not known.endswith(_CONFIG_SUFFIX):
                continue
            path = known.partition("=")[2] if known.startswith("--") else known
            if not path.endswith(_CONFIG_SUFFIX) or any(name in path.lower() for name in _OTHER_CONFIGS):
                continue
            place, why = resolve_path(path, entry.directory)
            if place in seen:
                continue
            seen.add(place)
            if not why and place in reading.files:
                name = state_config(reading.files[place], place, reading.findings) or name
            elif not why:
                reading.missing_files.append(place)
    return name or reading.model_name


def _list_missing_files(reading: Reading) -> tuple[str, ...]:
    """Return the files whose text is missing, without those of shell set-up."""
    known = reading.files.keys() | reading.unread
    missing = (path for path in reading.missing_files if path not in known and not _SETS_UP.search(path))
    return tuple(dict.fromkeys(missing))[:MAX_MISSING_FILES]


def _state_statements(statements: Statements, findings: Findings) -> None:
    """Apply the user's ``#OPSK`` lines, so that arithmetic starts from them."""
    for entry in statements.evidence:
        group, _, key = entry.field.partition(".")
        if group in ("model", "plan") and key != "name":
            findings.values[entry.field] = getattr(getattr(statements, group), key)
            findings.evidence[entry.field] = entry
            findings.unknown.pop(entry.field, None)


def _report_unread(framework: str | None, findings: Findings, *, model_name: str | None) -> None:
    """Mark the unread settings of a training job as unknown; the shape of a public model is known by its name."""
    is_unread = framework is not None and framework not in _READ
    why = f"opsk cannot read the settings of {framework} yet" if is_unread else "no setting that opsk knows states it"
    fields = (
        *(() if model_name else SHAPE),
        *(() if fixes_length(model_name) else ("model.seq",)),
        "plan.micro_batch",
    )
    for name in fields:
        if name not in findings.values:
            findings.unknown.setdefault(name, Unknown(field=name, why=why, file=findings.file))


def _add_problems(workload: Workload, problems: tuple[Problem, ...]) -> Workload:
    """Return the workload with more problems."""
    return replace(workload, problems=(*workload.problems, *problems)) if problems else workload
