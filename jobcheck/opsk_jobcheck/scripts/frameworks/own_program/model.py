"""States which model a user's own program trains, which part of it, and with which loss and optimizer."""

from __future__ import annotations

import re

from opsk.frameworks.settings.usual_settings import DATA_SETS, IMAGE_SIDES, MODELS
from opsk.workload.measured_model import DATA_SET, INPUT_SIZE, LOCAL_LOSS
from opsk.workload.public_models.family_limits import find_largest_of_family
from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.measured import find_measured, is_public
from opsk.workload.unstated.open_models import HAS_OTHER_PARTS
from opsk.workload.unstated.sizes import find_side
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import MAX_NAME, UNNAMED, name_known_end, name_model
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION as TRAINABLE
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import is_only_about_adapters
from opsk_jobcheck.scripts.frameworks.huggingface.trainer import BUILT_IN_PYTHON
from opsk_jobcheck.scripts.frameworks.own_program.adapters import LORA, state_python_adapters
from opsk_jobcheck.scripts.frameworks.own_program.config_classes import state_class_sizes
from opsk_jobcheck.scripts.frameworks.own_program.open_models import state_open_models
from opsk_jobcheck.scripts.frameworks.own_program.sentence_encoders import CLASSES, is_sentence_encoder
from opsk_jobcheck.scripts.frameworks.python.image_models import find_image_side, list_image_models
from opsk_jobcheck.scripts.frameworks.python.roles import find_loss, find_trainers, forget_name, state_python_roles
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings, get_last_name
from opsk_jobcheck.scripts.frameworks.python.source import FREEZES, Call, Value
from opsk_jobcheck.scripts.launchers.programs import SHAPE
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.findings import parse_integer
from opsk_jobcheck.scripts.settings.reader import Reading

_NO_MODELS = re.compile(r"Token|Process|Config|FeatureExtractor|Schedul|^PeftModel")
"""Classes whose ``from_pretrained`` loads no model, or adapters for one that is loaded."""
_PEFT = re.compile(r"(Auto)?PeftModel")
"""Classes whose ``from_pretrained`` puts adapters on a model; merged into it, all of it may be trained."""
_OTHER_MODELS = re.compile(r"(DPO|KTO|GRPO|PPO\w*|RLOO|GKD|XPO|NashMD|OnlineDPO)Trainer")
_QUANTISERS = frozenset({"load_in_4bit", "load_in_8bit"})
_OF_ADAPTERS = frozenset({LORA, "get_peft_model", "BitsAndBytesConfig"})
_OPTIMIZERS = re.compile(
    r"(?:Fused|Deepspeed|Paged|DeepSpeedCPU)?(Adam|AdamW|SGD|Adafactor|Lion|AdaBelief|LAMB|Lamb|Muon|Shampoo|SOAP"
    r"|RMSprop|Adagrad|Prodigy|Adan|Sophia\w*|CAME)(8bit|4bit)?"
)
_MAKES = re.compile(
    r"from_pretrained|(create|build|get|make|load|init|initialize|setup|prepare|select)_\w*(model|net|backbone|encoder)\w*",
    re.IGNORECASE,
)
"""Functions that make a model, by their names."""
_TRAINERS = re.compile(r"(SFT|DPO|KTO|ORPO|CPO|Reward|GRPO|RLOO)Trainer")
"""Trainers of TRL, which load a model that is given by its name."""
_BUILDS = re.compile(r"[A-Z]\w*(For(CausalLM|ConditionalGeneration|MaskedLM|PreTraining)|LMHeadModel)")
"""Classes of transformers that make a model from a configuration."""
_HUB_NAME = re.compile(r"[\w-]{1,60}/[\w.-]{1,100}")
"""A name of HuggingFace's hub with its organisation, as programs load models by."""
_LOADS_PARTS = re.compile(
    r"Vision|Image|Video|Audio|Speech|CTC|VL[A_]?|Diffusion|Pipeline|Clip|CLIP|Multi[Mm]odal|Llava|Blip|Unet|UNet|Whisper|Omni"
)
"""Classes of models that do not read text alone."""
_NAME_KEYWORDS = ("pretrained_model_name_or_path", "model_name", "model_id")
_FUSED_LOSSES = re.compile(
    r"_?apply_liger_kernel(_to_\w+)?|LigerFusedLinear\w*Loss|AutoLigerKernelFor\w+|cce_patch|linear_cross_entropy"
)
"""Calls, and owners of ``from_pretrained``, after which logits are never whole in memory."""


def state_model(settings: ProgramSettings, invocation: Invocation, reading: Reading) -> None:
    """Name the public model, or the folder, that is trained, where its shape is not stated."""
    findings = reading.findings
    state_class_sizes(settings, reading)
    _doubt_shape(settings, reading)
    if all(name in findings.values for name in SHAPE):
        return
    entry = _find_model(settings)
    if entry is None and (given := _find_given_path(settings)) is not None and name_known_end(given, reading):
        _forget_reasons(reading)
        return
    if entry is None or entry.why or not isinstance(entry.value, str):
        state_open_models([(call, _find_name(call)) for call in _list_loads(settings)], settings, reading)
        return
    value = entry.value.strip()
    _state_image_side(settings, reading)
    is_folder = "/" in value and value.startswith((".", "/"))
    if value and len(value) < MAX_NAME and (is_folder or is_public(value) or _HUB_NAME.fullmatch(value)):
        _forget_reasons(reading)
        name_model(entry, invocation, reading)
        if any(_LOADS_PARTS.search(call.owner) for call in _list_loads(settings)):
            findings.options[HAS_OTHER_PARTS] = "true"


def _forget_reasons(reading: Reading) -> None:
    """Take back that the shape is unknown because no command names the model: its program does."""
    unknown = reading.findings.unknown
    if not any(name in reading.findings.values for name in SHAPE):
        for name in SHAPE:
            if name in unknown and unknown[name].why in (BUILT_IN_PYTHON, UNNAMED):
                del unknown[name]


def _state_image_side(settings: ProgramSettings, reading: Reading) -> None:
    """Note the side of the images, by a setting or by what the program cuts its samples to."""
    entry = settings.find(IMAGE_SIDES)
    side = parse_integer(entry.value) if entry is not None and not entry.why and entry.value is not None else None
    if not side and settings.source is not None:
        side = find_image_side(settings.source)
    if side and side > 0:
        reading.findings.options.setdefault(INPUT_SIZE, str(side))
    named = settings.find(DATA_SETS)
    if named is not None and not named.why and isinstance(named.value, str) and find_side(named.value):
        reading.findings.options.setdefault(DATA_SET, named.value)


def _doubt_shape(settings: ProgramSettings, reading: Reading) -> None:
    """Mark a shape as unknown where the program may load a public model of another one."""
    for entry in list_loaded(settings):
        name = entry.value if isinstance(entry.value, str) and len(entry.value) < MAX_NAME else ""
        shape = public_model(name) if name else None
        for field in SHAPE if shape is not None else ():
            stated = reading.findings.get(field)
            if stated is not None and stated != getattr(shape, field.removeprefix("model.")):
                why = f"the program may load {name[:80]}, which is of another shape"
                reading.findings.mark_unknown(field, why, entry.line, file=entry.file)


def _find_given_path(settings: ProgramSettings) -> Entry | None:
    """Return the setting of the command that names the model by a path which is not known in full."""
    if len(list_loaded(settings)) > 1:
        return None
    rows = [entry for name, entry in settings.given if get_last_name(name) in MODELS and entry.why]
    return rows[0] if len(rows) == 1 else None


def _find_model(settings: ProgramSettings) -> Entry | None:
    """Return the name of the model: the one that the program loads, else the first setting that names a public one."""
    loaded = list_loaded(settings)
    if len({(str(entry.value), entry.why) for entry in loaded}) > 1:
        return None
    if loaded and not loaded[0].why:
        return loaded[0]
    for name in MODELS:
        named = settings.find((name,))
        value = named.value if named is not None and not named.why else None
        is_name = isinstance(value, str) and len(value) < MAX_NAME and (is_public(value) or _is_of_family(value))
        if is_name and _is_used(name, settings):
            return named
    return None


def _is_of_family(name: str) -> bool:
    """Return whether a name of the hub is one of a family of which the largest is known."""
    return _HUB_NAME.fullmatch(name) is not None and bool(find_largest_of_family(name))


def _is_used(name: str, settings: ProgramSettings) -> bool:
    """Return whether a setting is given, or handed to what makes a model: a default alone may be of another program."""
    if settings.source is None or any(get_last_name(key) == name for key, _ in (*settings.given, *settings.of_files)):
        return True
    made = (call for call in settings.source.calls if _MAKES.fullmatch(call.function))
    return any(name in (call.first.name, *(value.name for value in call.keywords.values())) for call in made)


def list_loaded(settings: ProgramSettings) -> list[Entry]:
    """Return the names of the models that the program loads, each once."""
    entries: dict[tuple[object, str], Entry] = {}
    kept = _list_loads(settings)
    for call in settings.source.calls if settings.source is not None else ():
        is_loaded = call in kept
        if (is_loaded or _creates_public(call, settings)) and settings.is_active(call) is not False:
            entry = settings.resolve(_find_name(call))
            entries.setdefault((entry.value, entry.why), entry)
        elif _TRAINERS.fullmatch(call.function) and settings.is_active(call) is not False:
            value = call.keywords.get("model", call.first)
            if value.is_known and isinstance(value.literal, str):
                entry = settings.resolve(value)
                entries.setdefault((entry.value, entry.why), entry)
        elif _BUILDS.fullmatch(call.function) and not call.owner and settings.is_active(call):
            why = f"the program builds a {call.function} ({settings.file}, line {call.line})"
            entries.setdefault((None, why), Entry(file=settings.file, line=call.line, why=why))
    for call in list_image_models(settings.source) if settings.source is not None else ():
        if settings.is_active(call) is not False and settings.source is not None:
            text = settings.source.get_line(call.line)
            entry = Entry(value=call.function, file=settings.file, line=call.line, text=text)
            entries.setdefault((entry.value, ""), entry)
    return list(entries.values())


def find_weight_format(settings: ProgramSettings) -> Entry | None:
    """Return the number format in which a program loads its one model; ``None`` where nothing states it."""
    kinds = [call.keywords.get("torch_dtype", call.keywords.get("dtype")) for call in _list_loads(settings)]
    return settings.resolve(kinds[0]) if len(kinds) == 1 and kinds[0] is not None else None


def _list_loads(settings: ProgramSettings) -> list[Call]:
    """Return the calls that load weights of a model."""
    makers = ("from_pretrained", *(CLASSES if is_sentence_encoder(settings.source) else ()))
    calls = settings.source.find_calls(*makers) if settings.source is not None else ()
    loads = [call for call in calls if not _NO_MODELS.search(call.owner) and settings.is_active(call) is not False]
    return _drop_later(loads, settings)


def _drop_later(loads: list[Call], settings: ProgramSettings) -> list[Call]:
    """Return the calls without those behind the training that load what is not known: what it has written, to test it.

    Memory that the training had is free for them.
    """
    source = settings.source
    if source is None or len(loads) < 2:
        return loads
    last = min(source.parts.values(), default=len(source.lines))
    trains = [call.line for call in source.find_calls("train") if "trainer" in call.owner.lower() and call.line <= last]
    if not trains or not any(call.line < trains[0] for call in loads):
        return loads
    return [call for call in loads if not trains[0] < call.line <= last or not settings.resolve(_find_name(call)).why]


def _creates_public(call: Call, settings: ProgramSettings) -> bool:
    """Return whether a call makes a model of timm or OpenCLIP, and not one by a function of the program's own."""
    if call.function != "create_model" or settings.source is None:
        return False
    makers = ("timm", "open_clip")
    return (
        call.is_followed
        or call.owner.startswith(makers)
        or any(name.startswith(makers) and name.endswith(".create_model") for name in settings.source.imports)
    )


_LOADS = ("import_module", "__import__", "spec_from_file_location")
"""Functions that load a module whose name is a value."""


def _find_name(call: Call) -> Value:
    """Return the argument that names the model of a call."""
    first = call.first
    if first.is_known or first.name or first.options or first.choice:
        return first
    named = (call.keywords[name] for name in _NAME_KEYWORDS if name in call.keywords)
    return next(named, next(iter(call.keywords.values()), Value()))


def state_trained_part(settings: ProgramSettings, reading: Reading, *, framework: str) -> None:
    """State that adapters, a part of the model, or other models beside it are trained or held."""
    source, findings = settings.source, reading.findings
    if source is None:
        return
    trainers = find_trainers(settings)
    if trainers:
        forget_name(settings, findings)
    if TRAINABLE in findings.options and not is_only_about_adapters(findings.options):
        return
    # the trained model with its adapters off is the reference, unless the program loads another one
    is_alone = not trainers or len(_list_loads(settings)) <= 1
    has_adapters = is_alone and state_python_adapters(settings, framework, findings)
    if has_adapters:
        findings.options.pop(TRAINABLE, None)
    elif TRAINABLE in findings.options:
        if trainers:
            state_python_roles(trainers[0], settings, findings)
        return
    parts = {name for name in source.functions if _get_part(name)}
    loads_adapters = not any(source.find_calls("merge_and_unload"))
    for call in source.calls:
        is_adapter = loads_adapters and call.function == "from_pretrained" and _PEFT.match(call.owner) is not None
        if call.function not in parts and not is_adapter and _QUANTISERS.isdisjoint(call.keywords):
            continue
        if (find_loss(call.function) and trainers) or (has_adapters and call.function in _OF_ADAPTERS):
            continue
        quantised = [call.keywords[name] for name in _QUANTISERS if name in call.keywords]
        is_quantised = not has_adapters and any(not value.is_known or value.literal for value in quantised)
        what = (
            "the weights are quantized"
            if is_quantised
            else _get_part("get_peft_model" if is_adapter else call.function)
        )
        if what and settings.is_active(call) is not False:
            findings.options[TRAINABLE] = f"unknown: {what} ({call.function}, {settings.file}:{call.line})"
            if trainers and is_only_about_adapters(findings.options):
                state_python_roles(trainers[0], settings, findings)
            return
    if trainers:
        state_python_roles(trainers[0], settings, findings)
    else:
        _doubt_loaded_modules(settings, reading)
    _state_optimizer(settings, reading)


def _doubt_loaded_modules(settings: ProgramSettings, reading: Reading) -> None:
    """State that other models may be in memory where a program makes none itself and loads modules by their names."""
    source = settings.source
    load = next(source.find_calls(*_LOADS), None) if source is not None else None
    if source is None or load is None or any(source.find_calls("from_pretrained", "from_config", "create_model")):
        return
    what = f"other models may be in memory too: modules are loaded by name ({load.function}"
    reading.findings.options.setdefault(TRAINABLE, f"unknown: {what}, {settings.file}:{load.line})")


def state_loss(settings: ProgramSettings, reading: Reading) -> None:
    """State a loss that is fused with the output layer, where the program certainly uses one.

    A contrastive loss counts as one that compares the samples of a GPU: only OpenCLIP compares all with all by default.
    """
    measured = find_measured(reading.model_name or "")
    if measured is not None and measured.kind == "clip":
        reading.findings.options.setdefault(LOCAL_LOSS, "true")
    for call in settings.source.calls if settings.source is not None else ():
        is_fused = _FUSED_LOSSES.fullmatch(call.function) or _FUSED_LOSSES.fullmatch(call.owner)
        switch = call.keywords.get("fused_linear_cross_entropy")
        if is_fused and settings.is_active(call) and (switch is None or switch.literal is True):
            reading.findings.options.setdefault("loss.kernel", "fused")
            return


def _get_part(function: str) -> str:
    """Return what a call says about the trained part, empty where it says nothing."""
    if function in ("LoraConfig", "get_peft_model", "AdaLoraConfig", "IA3Config", "PrefixTuningConfig"):
        return "only adapters are trained"
    if function == "BitsAndBytesConfig":
        return "the weights are quantized"
    if function == FREEZES:
        return "part of the model is frozen"
    return "other models are in memory too" if _OTHER_MODELS.fullmatch(function) else ""


def _state_optimizer(settings: ProgramSettings, reading: Reading) -> None:
    """State an optimizer other than Adam."""
    if settings.source is None or "optimizer.name" in reading.findings.options:
        return
    known = [name for name in settings.source.functions if _OPTIMIZERS.fullmatch(name)]
    active = (call for call in settings.source.find_calls(*known) if settings.is_active(call) is not False)
    names = [call.function for call in active]
    if names and not any(name.removeprefix("Fused") in ("Adam", "AdamW") for name in names):
        reading.findings.options["optimizer.name"] = names[0].lower()[:40]
