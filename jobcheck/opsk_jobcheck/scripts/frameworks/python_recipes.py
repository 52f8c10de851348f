"""Reads recipes of NeMo 2 and Megatron-Bridge that a Python program configures.

``recipe = llm.llama3_8b.pretrain_recipe(...)`` and ``recipe.trainer.strategy.tensor_model_parallel_size = 2``, or
``config.model.tensor_model_parallel_size = 2`` of a ``ConfigContainer``. What NeMo's recipes set is in
`opsk.frameworks.nemo_recipes`; those of Megatron-Bridge change from release to release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opsk.frameworks.megatron_flags import BOOLEAN_OVERRIDES, OVERRIDES
from opsk.frameworks.nemo import NAMES_2, NUMBERS_2, SEQUENCE_PARALLEL_2
from opsk.frameworks.nemo_recipes import EVERY, RECIPES
from opsk.workload.workload import OwnName
from opsk_jobcheck.scripts.frameworks.program_settings import ProgramSettings
from opsk_jobcheck.scripts.frameworks.python_source import Call, PythonSource
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.findings import Findings, state_number, state_truth, state_word
from opsk_jobcheck.scripts.settings.reader import Reading

NEMO, BRIDGE = "nemo", "megatron-bridge"
RECIPE_FRAMEWORKS = frozenset({NEMO, BRIDGE})
_PRETRAIN, _FINETUNE = "pretrain_recipe", "finetune_recipe"
_RECOMPUTE = "model.config.recompute_granularity"
_NEMO_SWITCHES: Mapping[str, str] = {SEQUENCE_PARALLEL_2: "plan.sequence_parallel"}
_RECOMPUTE_WORDS: Mapping[str, object] = {"full": "full", "selective": "selective", "none": "none"}
_UNSURE = {
    "plan.precision": ("trainer.plugins",),
    "plan.sharding": ("optim", "trainer.strategy.ddp", "trainer.strategy.fsdp"),
    "plan.recompute": ("model.config.recompute_",),
}
"""Settings after which what every recipe sets is not known."""


def find_recipe_framework(source: PythonSource | None) -> str:
    """Return the framework whose recipe a program configures, empty where it configures none."""
    if source is None:
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
    if not any(key.startswith("model.") for key in given if not key.startswith(_RECOMPUTE[:23])):
        reading.model_name = recipe.model
    for field, value in {**EVERY, **recipe.values}.items():
        is_unsure = any(key.startswith(prefix) for prefix in _UNSURE.get(field, ()) for key in given)
        if field not in findings.values and field not in findings.unknown and not is_unsure:
            findings.state(field, value, line, f"recipe {name} of NeMo 2", file=file)
    return True


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
    return given


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
