"""Reads trainings of Ultralytics: its command ``yolo``, programs that call its models, and YOLOv5's ``train.py``.

The batch is that of all GPUs together, and a training uses one GPU unless ``device`` names more.
Source: ``cfg/default.yaml``, ``engine/trainer.py`` and ``entrypoint`` of ultralytics 8.0 to 8.4; ``train.py`` of YOLOv5
7.0, whose ranks are those of its launcher.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from opsk.workload.measured_model import HAS_AVERAGE, INPUT_SIZE
from opsk.workload.public_models.measured import find_measured
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import SHAPE
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.frameworks.python.source import Call, PythonSource
from opsk_jobcheck.scripts.launchers.programs import (
    SURE,
    Program,
    find_command,
    find_program,
    list_flag_names,
    parse_assignments,
    parse_program_flags,
)
from opsk_jobcheck.scripts.launchers.ranks import OPTION as RANKS
from opsk_jobcheck.scripts.settings.arguments import drop_prefix, get_arguments
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    mark_all_unknown,
    parse_boolean,
    parse_integer,
    state_data_parallel_only,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

ULTRALYTICS, YOLOV5 = "ultralytics", "yolov5"
_COMMAND = "yolo"
_TRAIN = "train"
_CLASSES = ("YOLO", "RTDETR", "YOLOE", "YOLOWorld", "NAS", "FastSAM", "SAM")
_SETTINGS = frozenset({"data", "epochs", "imgsz", "batch", "device", "cfg", "resume", "name", "project"})
"""Arguments that tell the ``train`` of one of its models from any other."""
_LAUNCHERS = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
_FILES = re.compile(r"train(_dual|_aux)?\.py")
_PATH = re.compile(r"(?i)yolov?[5-9]")
_FLAGS = frozenset(
    {"hyp", "cfg", "weights", "img", "imgsz", "img_size", "noautoanchor", "sync_bn", "cos_lr", "multi_scale"}
)
MIN_FLAGS = 3
_MODEL_FILE = re.compile(r"\.(pt|ya?ml)$")
_ALIAS = re.compile(r"yolov(1[12]|26)(?=[a-z])")
"""YOLO11 and later have no v in their names; people write one."""
_NO_SCALE = re.compile(r"(yolo(?:v8|11|12|26))(-(?:seg|pose|obb|cls))?")
_COUNT = re.compile(r"\[?\(?\s*(\d{1,2}(?:\s*,\s*\d{1,2})*)\s*\)?\]?")
_LISTED = re.compile(r"device\s*=\s*[\[(]([\d,\s]{1,60})[\])]")
DEFAULT_BATCH, DEFAULT_SIZE = 16, 640
MULTI_SCALE = 1.5
"""Largest side over the stated one where images change their size (``multi_scale``)."""
_CHOSEN_BATCH = "a batch below 1 lets Ultralytics choose it, so that a share of the GPU's memory is used"


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with Ultralytics, or with YOLOv5's program."""
    program = find_command(invocation, _COMMAND)
    if program is not None and _trains(program):
        return Match(framework=ULTRALYTICS, weight=SURE, invocation=invocation, arguments=get_arguments(invocation))
    program = find_program(invocation)
    if program is None or not _FILES.fullmatch(program.file[:255]):
        return None
    flags = _FLAGS & list_flag_names(program)
    if not flags or (len(flags) < MIN_FLAGS and not _PATH.search(program.name[-512:])):
        return None
    return Match(framework=YOLOV5, weight=len(flags), invocation=invocation, arguments=get_arguments(invocation))


def _trains(program: Program) -> bool:
    """Return whether the words of ``yolo`` ask for a training."""
    words = [word.known for word in program.words[:8]]
    return _TRAIN in words or "mode=train" in words


def read_ultralytics(match: Match, reading: Reading) -> None:
    """State what a command says, and the defaults of what it does not say."""
    invocation = match.invocation
    program = find_command(invocation, _COMMAND)
    if match.framework == ULTRALYTICS and program is not None:
        given = _collect_words(program, invocation, reading)
        _state(given, reading, invocation.line, count=_count_devices(given.get("device")))
    elif (program := find_program(invocation)) is not None:
        is_launched = not _LAUNCHERS.isdisjoint(invocation.shown_words)
        given = _collect_flags(program)
        count = reading.findings.get("plan.gpus") if is_launched else _count_devices(given.get("device"))
        _state(given, reading, invocation.line, count=count)


def is_ultralytics(source: PythonSource | None) -> bool:
    """Return whether a program trains a model of Ultralytics."""
    return source is not None and "ultralytics" in _list_packages(source) and any(_list_trainings(source))


def state_ultralytics(settings: ProgramSettings, invocation: Invocation, reading: Reading) -> bool:
    """State what a program hands to a model of Ultralytics; return whether it trains one."""
    source = settings.source
    if source is None or not is_ultralytics(source):
        return False
    calls = [call for call in _list_trainings(source) if settings.is_active(call) is not False]
    if len(calls) != 1:
        why = "the program trains several models, or none"
        mark_all_unknown(reading.findings, (*SHAPE, "plan.micro_batch"), why, invocation.line)
        return True
    call = calls[0]
    given = {name: settings.resolve(value) for name, value in call.keywords.items()}
    if (listed := _find_listed_devices(call, source)) is not None:
        given["device"] = listed
    given["model"] = _find_model(settings, source)
    _state(given, reading, invocation.line, count=_count_devices(given.get("device")))
    return True


ULTRALYTICS_READER = Reader(frameworks=(ULTRALYTICS, YOLOV5), recognise=recognise, read=read_ultralytics)


def _collect_words(program: Program, invocation: Invocation, reading: Reading) -> dict[str, Entry]:
    """Return the settings of ``yolo``'s words, over those of the file that ``cfg`` names."""
    given = dict(parse_assignments(program.words))
    word = next((word for word in program.words if word.shown.startswith("cfg=")), None)
    if word is None:
        return given
    config = reading.config(drop_prefix(word, len("cfg=")), invocation)
    if config.why:
        unread = Entry(line=word.line, why=config.why)
        return {"model": unread, "batch": unread, "imgsz": unread} | given
    stated = {name: entry for name in config.names() if (entry := config.entry(name)) is not None}
    return {name: entry for name, entry in stated.items() if entry.value is not None} | given


def _collect_flags(program: Program) -> dict[str, Entry]:
    """Return the flags of YOLOv5's program under the names of Ultralytics' settings."""
    given = dict(parse_program_flags(program))
    for name, others in (("imgsz", ("img", "img_size")), ("batch", ("batch_size",))):
        if name not in given and (other := next((given[key] for key in others if key in given), None)) is not None:
            given[name] = other
    described = given.get("cfg")
    if described is None or (not described.value and not described.why):
        described = given.get("weights", Entry(value="yolov5s", text="default of --weights"))
    return given | {"model": described, "optimizer": given.get("optimizer", Entry(value="SGD"))}


def _list_packages(source: PythonSource) -> set[str]:
    """Return the first parts of the names of imported modules."""
    return {name.partition(".")[0] for name in source.imports}


def _list_trainings(source: PythonSource) -> Iterator[Call]:
    """Yield the calls that train a model: ``train`` with settings that no other ``train`` takes."""
    return (call for call in source.find_calls("train") if _SETTINGS & call.keywords.keys())


def _find_listed_devices(call: Call, source: PythonSource) -> Entry | None:
    """Return the devices of a call that lists their numbers (``device=[0, 1]``)."""
    value = call.keywords.get("device")
    if value is None or value.is_known or value.name:
        return None
    line = value.line or call.line
    listed = _LISTED.search(source.get_line(line))
    return Entry(value=listed[1], line=line, text=listed[0]) if listed is not None else None


def _find_model(settings: ProgramSettings, source: PythonSource) -> Entry:
    """Return the one model that a program makes."""
    calls = [call for call in source.find_calls(*_CLASSES) if settings.is_active(call) is not False]
    rows = [settings.resolve(call.keywords.get("model", call.first)) for call in calls]
    names = {_parse_name(row) for row in rows if not row.why}
    if len(names) == 1 and all(not row.why for row in rows):
        return rows[0]
    first = next((row for row in rows if row.why), None)
    return first or Entry(line=calls[0].line if calls else 0, why="the program makes several models, or none")


def _parse_name(entry: Entry) -> str:
    """Return the name of a model without folder and ending."""
    stem = _MODEL_FILE.sub("", str(entry.value).strip()).rpartition("/")[2][:80].lower()
    stem = _ALIAS.sub(r"yolo\1", stem)
    scaled = _NO_SCALE.fullmatch(stem)
    return f"{scaled[1]}n{scaled[2] or ''}" if scaled is not None else stem


def _state(given: Mapping[str, Entry], reading: Reading, line: int, *, count: int | None) -> None:
    """State model, size, batch and number format."""
    findings = reading.findings
    _state_model(given.get("model"), reading, line)
    _state_size(given, findings)
    _state_batch(given.get("batch"), count, findings, line)
    amp = given.get("amp")
    is_off = amp is not None and (parse_boolean(amp.value) is False or str(amp.value).lower() == "fp32")
    text = amp.text if amp is not None else "Ultralytics computes under autocast unless amp is off"
    if amp is not None and amp.why:
        findings.mark_unknown("plan.precision", amp.why, amp.line, file=amp.file)
    else:
        findings.state("plan.precision", "fp32" if is_off else "fp16", amp.line if amp is not None else line, text)
    findings.state("plan.recompute", "none", line, "Ultralytics recomputes nothing")
    findings.state("plan.sharding", "none", line, "Ultralytics holds a replica on every GPU")
    state_data_parallel_only(findings, "Ultralytics splits no model", line)
    findings.options[HAS_AVERAGE] = "true"
    optimizer = given.get("optimizer")
    is_sgd = optimizer is not None and str(optimizer.value).lower() in ("sgd", "musgd", "rmsprop")
    findings.options["optimizer.name"] = "sgd" if is_sgd else "adamw_torch_fused"


def _state_model(entry: Entry | None, reading: Reading, line: int) -> None:
    """Name the model, or mark its shape as unknown."""
    name = _parse_name(entry) if entry is not None and not entry.why and entry.value else ""
    if name and find_measured(name) is not None:
        reading.model_name = name
        return
    why = (
        "no model is named"
        if entry is None
        else entry.why or f"the model is {str(entry.value)[:100]}: opsk does not know it"
    )
    mark_all_unknown(reading.findings, SHAPE, why, entry.line if entry is not None else line)


def _state_size(given: Mapping[str, Entry], findings: Findings) -> None:
    """Note the largest side of the images; of several numbers the first, which is the one of training."""
    entry, factor = given.get("imgsz"), 1.0
    scaled = given.get("multi_scale")
    if scaled is not None and parse_boolean(scaled.value) is not False:
        factor = MULTI_SCALE
    if entry is not None and entry.why:
        findings.mark_unknown("plan.micro_batch", f"the side of the images: {entry.why}", entry.line, file=entry.file)
        return
    first = re.match(r"\W*(\d{1,5})", str(entry.value)) if entry is not None else None
    side = int(first[1]) if first is not None else 0
    if side or factor > 1:
        findings.options[INPUT_SIZE] = str(round(factor * (side or DEFAULT_SIZE)))


def _count_devices(entry: Entry | None) -> int | None:
    """Return how many GPUs ``device`` names; ``None`` where that is not known. Without it, that is one."""
    if entry is None or (entry.value in (None, "") and not entry.why):
        return 1
    match = _COUNT.fullmatch(str(entry.value).strip()) if not entry.why else None
    if match is not None:
        return match[1].count(",") + 1
    return 1 if str(entry.value).startswith("cuda") and not entry.why else None


def _state_batch(entry: Entry | None, count: int | None, findings: Findings, line: int) -> None:
    """State the images of one GPU: the batch is divided by the GPUs that train."""
    if "plan.micro_batch" in findings.unknown:
        return
    gpus = findings.get("plan.gpus")
    if count is None and gpus == 1:
        count = 1
    batch = parse_integer(entry.value) if entry is not None and not entry.why else None
    if entry is None:
        batch, entry = DEFAULT_BATCH, Entry(line=line, text=f"Ultralytics' own {DEFAULT_BATCH}")
    if entry.why or batch is None or batch < 1:
        findings.mark_unknown("plan.micro_batch", entry.why or _CHOSEN_BATCH, entry.line, file=entry.file)
    elif count is None:
        why = f"{entry.text[:80]} is shared by GPUs whose number is not known"
        findings.mark_unknown("plan.micro_batch", why, entry.line, file=entry.file)
    else:
        text = f"{entry.text} over {count} GPUs" if count > 1 else entry.text
        findings.state("plan.micro_batch", max(1, batch // count), entry.line, text, file=entry.file)
    if gpus and count and count < gpus:
        findings.options[RANKS] = str(count)
