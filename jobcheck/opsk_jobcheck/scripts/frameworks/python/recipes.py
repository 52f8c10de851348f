"""Reads recipes of NeMo 2 and Megatron-Bridge that a Python program configures.

``recipe = llm.llama3_8b.pretrain_recipe(...)`` and ``recipe.trainer.strategy.tensor_model_parallel_size = 2``, or
``config.model.tensor_model_parallel_size = 2`` of a ``ConfigContainer``. What NeMo's recipes set is in
`opsk.frameworks.settings.nemo_recipes`; those of Megatron-Bridge change from release to release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opsk.frameworks.settings.megatron_flags import BOOLEAN_OVERRIDES, OVERRIDES
from opsk.frameworks.settings.nemo import NAMES_2, NUMBERS_2, SEQUENCE_PARALLEL_2
from opsk.frameworks.settings.nemo_recipes import EVERY, RECIPES
from opsk.workload.workload import OwnName
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.frameworks.python.source import Call, PythonSource, Value
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.findings import Findings, state_number, state_truth, state_word
from opsk_jobcheck.scripts.settings.reader import Reading

NEMO, BRIDGE = "nemo", "megatron-bridge"
RECIPE_FRAMEWORKS = frozenset({NEMO, BRIDGE})
_PRETRAIN, _FINETUNE = "pretrain_recipe", "finetune_recipe"
_RECOMPUTE = "model.config.recompute_granularity"
_NEMO_SWITCHES: Mapping[str, str] = {SEQUENCE_PARALLEL_2: "plan.sequence_parallel"}
_RECOMPUTE_WORDS: Mapping[str, object] = {"full": "full", "selective": "selective", "none": "none"}
_OTHER_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "plan.precision": ("trainer.plugins",),
    "plan.sharding": ("optim", "trainer.strategy.ddp", "trainer.strategy.fsdp"),
    "plan.recompute": (_RECOMPUTE, "model.config.recompute_method", "model.config.recompute_modules"),
    "plan.sequence_parallel": (SEQUENCE_PARALLEL_2,),
}
"""Settings beside the numbers after which what a recipe sets is not known."""
_ELSEWHERE = ("SlurmExecutor", "SkypilotExecutor", "DGXCloudExecutor", "LeptonExecutor")
"""Executors that start the training as another job."""
_TAKES_OVERRIDES = ("parse_known_args", "parse_hydra_overrides", "process_config_with_overrides", "parse_cli_args")


def find_recipe_framework(source: PythonSource | None) -> str:
    """Return the framework whose recipe a program configures, empty where it configures none."""
    if source is None:
        return ""
    if any(source.find_calls(*_ELSEWHERE)) and not any(source.find_calls("LocalExecutor")):
        return ""
    if any(source.find_calls(_PRETRAIN, _FINETUNE)) and any(name.startswith("nemo.") for name in source.imports):
        return NEMO
    is_bridge = any(name.startswith("megatron.bridge") for name in source.imports)
    return BRIDGE if is_bridge and any(source.find_calls("pretrain", "finetune")) else ""


def state_python_recipe(settings: ProgramSettings, reading: Reading) -> str:
    """State what a program sets of a recipe, and what the recipe sets; return its framework, empty for none."""
    source, findings = settings.source, reading.findings
    framework = find_recipe_framework(source)
    if source is None or not framework:
        return ""
    names, switches = (NUMBERS_2, _NEMO_SWITCHES) if framework == NEMO else (OVERRIDES, BOOLEAN_OVERRIDES)
    given = _collect(settings, source)
    for name, field in names.items():
        entry = given.get(name)
        is_off = field == "plan.vpp" and entry is not None and entry.value is None and not entry.why
        if entry is not None and not is_off:
            state_number(findings, field, entry)
    for name, field in switches.items():
        if (entry := given.get(name)) is not None:
            state_truth(findings, field, entry)
    if (entry := given.get(_RECOMPUTE)) is not None:
        word = replace(entry, value="none") if entry.value is None and not entry.why else entry
        state_word(findings, "plan.recompute", word, _RECOMPUTE_WORDS)
    if not any(source.find_calls(*_TAKES_OVERRIDES)):
        reading.own_names = ()
    if framework == NEMO:
        _state_nemo_recipe(settings, source, given, reading)
    return framework


def state_recipe(name: str, given: Mapping[str, Entry], reading: Reading, *, line: int, file: str = "") -> bool:
    """State what a recipe for pre-training sets and nothing else states; return whether opsk knows the recipe.

    Parameters
    ----------
    given
        The settings that override the recipe's, by their dotted names.
    """
    recipe, findings = RECIPES.get(name), reading.findings
    if recipe is None:
        return False
    if not any(_touches(key, "model") and not key.startswith("model.config.recompute_") for key in given):
        reading.model_name = recipe.model
    for field, value in {**EVERY, **recipe.values}.items():
        names = [*_OTHER_SETTINGS.get(field, ()), *(name for name, stated in NUMBERS_2.items() if stated == field)]
        key = next((key for key in given if any(_touches(key, name) for name in names)), None)
        if field in findings.values or field in findings.unknown:
            continue
        if key is None:
            findings.state(field, value, line, f"recipe {name} of NeMo 2", file=file)
        elif given[key].value is None:
            findings.mark_unknown(field, given[key].why or f"{key} is replaced", given[key].line, file=given[key].file)
    return True


def _touches(key: str, name: str) -> bool:
    """Return whether a setting is another one, a part of it, or the whole that it is a part of."""
    return key == name or key.startswith(f"{name}.") or name.startswith(f"{key}.")


def _collect(settings: ProgramSettings, source: PythonSource) -> dict[str, Entry]:
    """Return the values that a program sets inside of objects, by path; unknown where it sets, or may set, several."""
    given: dict[str, Entry] = {}
    for assignment in source.assignments:
        call = Call(function="", line=0, conditions=assignment.conditions)
        is_active = settings.is_active(call)
        if is_active is False:
            continue
        entry = replace(settings.resolve(assignment.value), text=source.get_line(assignment.value.line))
        entry = replace(entry, file=settings.file, line=assignment.value.line)
        earlier = given.get(assignment.path)
        if is_active is None or (earlier is not None and str(earlier.value) != str(entry.value)):
            why = f"the program may set another value ({settings.file}, line {entry.line})"
            entry = replace(entry, value=None, why=why)
        given[assignment.path] = entry
        for name, value in _find_arguments(source, entry.line).items():
            part = replace(settings.resolve(value), text=entry.text, file=settings.file, line=entry.line)
            given[f"{assignment.path}.{name}"] = replace(part, value=None, why=entry.why) if is_active is None else part
    return given


def _find_arguments(source: PythonSource, line: int) -> Mapping[str, Value]:
    """Return the arguments of the configuration that is assigned on a line: ``run.Config(Data, seq_length=8192)``."""
    calls = [call for call in source.calls if call.line == line and call.keywords]
    return calls[0].keywords if len(calls) == 1 else {}


def _state_nemo_recipe(
    settings: ProgramSettings, source: PythonSource, given: Mapping[str, Entry], reading: Reading
) -> None:
    """State what the one recipe of NeMo's that a program makes sets, and how the program can change it."""
    findings: Findings = reading.findings
    calls = [call for call in source.find_calls(_PRETRAIN, _FINETUNE) if settings.is_active(call) is not False]
    first = calls[0] if calls else None
    is_sure = first is not None and len(calls) == 1 and settings.is_active(first) is True
    if first is None or not is_sure or first.function != _PRETRAIN:
        if any(call.function == _FINETUNE for call in calls):
            what = "NeMo's fine-tuning recipes train adapters unless told otherwise"
            findings.options["trainable"] = f"unknown: {what} ({settings.file})"
        return
    if not state_recipe(first.owner, given, reading, line=first.line, file=settings.file):
        return
    fields = {**NAMES_2.numbers, "global_batch": "data.global_batch_size", "sequence_parallel": SEQUENCE_PARALLEL_2}
    root = source.get_line(first.line).partition("=")[0].strip()
    if root.isidentifier():
        reading.own_names = tuple(
            OwnName(field=f"plan.{axis}", name=f"{root}.{name}", file=settings.file) for axis, name in fields.items()
        )
