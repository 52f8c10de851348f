"""Adds what following a program's text tells of its calls to what reading them one by one tells.

``TrainingArguments(per_device_train_batch_size=cfg["train"]["batch"])`` states no number by itself; what ``cfg`` is
follows from how the program is started.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from opsk.costmodel.sizes.parameters import total_parameters
from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.measured import find_measured
from opsk_jobcheck.scripts.bash.values import Invocation, literal
from opsk_jobcheck.scripts.frameworks.own_models.arguments import list_arguments
from opsk_jobcheck.scripts.frameworks.own_models.count import Followed
from opsk_jobcheck.scripts.frameworks.own_models.machine import PLACES
from opsk_jobcheck.scripts.frameworks.own_models.noted_calls import SETS_TRAINING, NotedCall
from opsk_jobcheck.scripts.frameworks.own_models.values import Choice, External
from opsk_jobcheck.scripts.frameworks.own_program.followed_once import follow_once
from opsk_jobcheck.scripts.frameworks.own_program.model_files import read_model_files
from opsk_jobcheck.scripts.frameworks.own_program.numbers import FIELDS
from opsk_jobcheck.scripts.frameworks.own_program.samples import find_inputs
from opsk_jobcheck.scripts.frameworks.own_program.started_with import StartedWith
from opsk_jobcheck.scripts.frameworks.python.parts import is_installed
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.frameworks.python.source import UNPACKED, Call, PythonSource, Value
from opsk_jobcheck.scripts.launchers.programs import SHAPE, Program
from opsk_jobcheck.scripts.settings.config_file import ConfigFile
from opsk_jobcheck.scripts.settings.reader import Reading

_PACKAGES = frozenset(
    {
        "torch",
        "pytorch_lightning",
        "lightning",
        "transformers",
        "trl",
        "accelerate",
        "timm",
        "unsloth",
        "tensorflow",
        "keras",
    }
)
_DECIDES = re.compile(
    r"(per_device_train_|train_|micro_)?batch_size|gradient_(accumulation_steps|checkpointing)|bf16|fp16|optim|r"
    r"|target_modules|load_in_[48]bit|max_(seq_|prompt_|completion_)?length|model(_name|_id)?|num_generations|use_vllm"
    r"|pretrained_model_name_or_path"
)
"""Arguments that decide how much memory is used."""
_LOADS = re.compile(r"(.*\.)?(from_pretrained|from_config|create_model|[A-Z]\w*(For[A-Z]\w+|Model))|torchvision\..*")
_NO_MODELS = re.compile(r"Token|Process|Config|FeatureExtractor|Schedul|Collat|EMA")
OTHER_SHARE = 0.1
"""Part of the parameters that a head, or none of its own, may make up."""
OTHER_KEYS = "?"
"""The key of a table that has further ones, which are not known."""
MAX_WORDS = 64
MAX_OPTIONS = 8
MAX_CHARS = 200


def follow(settings: ProgramSettings, program: Program, invocation: Invocation, reading: Reading) -> Followed | None:
    """Follow a program of PyTorch, and ask for its modules; ``None`` for any other.

    One that imports no package of training itself may leave it to a module of its own.
    """
    source = settings.source
    if source is None or not (_imports(source, _PACKAGES) or any(not is_installed(name) for name in source.imports)):
        return None
    targets = [entry.value for name, entry in settings.of_files if name.endswith("_target_")]
    files = read_model_files(program, invocation, reading, [x for x in targets[:MAX_WORDS] if isinstance(x, str)])
    if not files:
        return None

    def read_config(path: str) -> ConfigFile | None:
        return reading.config(literal(path, invocation.line), invocation)

    is_short = any(_LOADS.fullmatch(call.function) for call in source.calls)
    started = StartedWith(settings, list_arguments(files), read_config, program.words)
    return follow_once(files, started, is_short=is_short, inputs=find_inputs(settings))


def _imports(source: PythonSource, packages: Collection[str]) -> bool:
    """Return whether a program imports one of some packages."""
    return any(name.partition(".")[0] in packages for name in source.imports)


def is_open(settings: ProgramSettings) -> bool:
    """Return whether an argument that decides is not known from the call alone, or no call names a model."""
    calls = settings.source.calls if settings.source is not None else ()
    has_model = False
    for call in calls:
        if not SETS_TRAINING.fullmatch(call.function) or settings.is_active(call) is False:
            continue
        is_loaded = call.function in ("from_pretrained", "create_model")
        has_model = has_model or is_loaded
        values = [value for name, value in call.keywords.items() if _DECIDES.fullmatch(name)]
        if any(settings.resolve(value).why for value in (*values, *([call.first] if is_loaded else ()))):
            return True
        if call.function.endswith("TrainingArguments") and "output_dir" not in call.keywords:
            return True  # they are given in a table
    return not has_model and not all(settings.find(FIELDS[name], with_attributes=False) for name in SHAPE)


def fill_calls(settings: ProgramSettings, followed: Followed) -> None:
    """Give the calls of a program the values that following it gives, and add those of other files."""
    source = settings.source
    if source is None:
        return
    places = [(_find_line(call, settings), call.name.rpartition(".")[2]) for call in followed.calls]
    # two calls of one line are not told apart
    rows = zip(places, followed.calls, strict=True)
    reached = {_find_place(*place, settings) for place in followed.places} if followed.places else None
    noted = {place: call for place, call in rows if places.count(place) == 1}
    made = [call for call in source.calls if reached is None or _is_made(call, reached)]
    calls = [_fill(call, noted.pop((call.line, call.function), None), settings) for call in made]
    others = [call for call in noted.values() if call.file not in (settings.file, *source.parts)]
    loaded = [call for call in followed.calls if _loads_model(call)]
    is_one = len(loaded) == 1 and _agrees(loaded[0], followed)
    calls += [_make_call(call) for call in others if is_one or not _loads_model(call)]
    settings.replace_calls(calls)


def _is_made(call: Call, reached: Collection[object]) -> bool:
    """Return whether a program comes to a call, as far as that loads a model or makes tokens."""
    return PLACES.fullmatch(call.function) is None or call.line in reached


def _agrees(call: NotedCall, followed: Followed) -> bool:
    """Return whether the model that a call makes may be all that the program trains, by their parameters."""
    owner, _, function = call.name.rpartition(".")
    first = call.positional[0] if call.positional else None
    name = function if owner.startswith("torchvision") else first
    is_text = function in ("from_pretrained", "from_config")
    is_counted = followed.count is not None
    return is_one_model(name if isinstance(name, str) else None, followed) if is_counted or not is_text else True


def is_one_model(name: str | None, followed: Followed | None, *, is_part_enough: bool = False) -> bool:
    """Return whether what a program trains is a public model, with its head at most.

    Parameters
    ----------
    is_part_enough
        Whether it may train a part of that model alone.
    """
    shape = public_model(name or "")
    measured = find_measured(name or "")
    count = followed.count if followed is not None else None
    if count is None or count.parameters.high is None or (shape is None and measured is None):
        return False
    whole = measured.parameters if measured is not None else total_parameters(shape) if shape is not None else 0
    counted = count.parameters if is_part_enough else count.trained
    return counted.low >= (1 - OTHER_SHARE) * whole and count.parameters.high <= (1 + OTHER_SHARE) * whole


def _loads_model(call: NotedCall) -> bool:
    """Return whether a call makes a model, and no tokenizer or configuration of one."""
    return _LOADS.fullmatch(call.name) is not None and not _NO_MODELS.search(call.name.partition(".")[2])


def _find_line(call: NotedCall, settings: ProgramSettings) -> tuple[str, int] | int:
    """Return the line of a call among those of the program and its parts; with its file, where it is in neither."""
    return _find_place(call.file, call.line, settings)


def _find_place(file: str, line: int, settings: ProgramSettings) -> tuple[str, int] | int:
    """Return a line of a file among those of the program and its parts; with its file, where it is in neither."""
    parts: Mapping[str, int] = settings.source.parts if settings.source is not None else {}
    if file == settings.file:
        return line
    return line + parts[file] if file in parts else (file, line)


def _fill(call: Call, noted: NotedCall | None, settings: ProgramSettings) -> Call:
    """Return a call with the values that are not known from itself."""
    if noted is None:
        return call
    known = dict(_iterate_values(noted, settings))
    keywords = {
        name: value
        for name, value in call.keywords.items()
        if name not in known or (name != "model" and _is_equal(value, known[name], settings))
    }
    if OTHER_KEYS not in noted.keywords:
        keywords.pop(UNPACKED, None)
    first = call.first
    if "" in known and not _is_equal(first, known[""], settings):
        first = known[""]
    return replace(
        call,
        first=first,
        keywords={**{key: x for key, x in known.items() if key}, **keywords},
        conditions=() if noted.is_sure else call.conditions,
    )


def _is_equal(value: Value, known: Value, settings: ProgramSettings) -> bool:
    """Return whether an argument's own text says as much as following the program did."""
    entry = settings.resolve(value)
    is_open = bool(known.words) or bool(known.options)
    return bool(value.words) or (not entry.why and (is_open or str(entry.value) == str(known.literal)))


def _make_call(noted: NotedCall) -> Call:
    """Return a call of another file."""
    known = dict(_iterate_values(noted, None))
    owner, _, function = noted.name.rpartition(".")
    return Call(
        function=function,
        line=noted.line,
        owner=owner.rpartition(".")[2],
        first=known.pop("", Value(file=noted.file, line=noted.line) if noted.positional else Value()),
        keywords=known,
        conditions=() if noted.is_sure else ("?",),
        is_followed=True,
    )


def _iterate_values(noted: NotedCall, settings: ProgramSettings | None) -> Iterator[tuple[str, Value]]:
    """Yield the arguments of a call that are known by their names, the first one by none."""
    text = ""
    if settings is not None and settings.source is not None and isinstance(line := _find_line(noted, settings), int):
        text = settings.source.get_line(line)
    for name, value in (*([("", noted.positional[0])] if noted.positional else ()), *noted.keywords.items()):
        shown = value.name if isinstance(value, External) else value
        place = Value(line=noted.line, file=noted.file, text=text or f"{name}={shown!s:.80}"[:MAX_CHARS])
        if value is None or isinstance(value, str | int | float):
            yield name, replace(place, literal=value, is_known=True)
        elif isinstance(value, External) and value.name.startswith("torch."):
            yield name, replace(place, literal=value.name, is_known=True)
        elif isinstance(value, list) and 0 < len(value) <= MAX_WORDS and all(isinstance(x, str) for x in value):
            yield name, replace(place, words=tuple(value))
        elif isinstance(value, Choice):
            texts = [x for x in value.options[: MAX_OPTIONS + 2] if x is not None]
            if len(texts) <= MAX_OPTIONS and all(x and isinstance(x, str | int) for x in texts):
                yield name, replace(place, options=tuple(map(str, texts)))
