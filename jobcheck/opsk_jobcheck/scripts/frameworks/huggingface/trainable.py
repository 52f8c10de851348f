"""Reads whether a run trains the whole model or LoRA adapters, and whether other models share the memory.

In any other case the memory that training takes is unknown. Adapters, frozen parts, quantized bases, and
recipes with a second model (a reference, a reward model, a teacher) are recognised by the names that training programs
give to their settings, whichever program it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

from opsk.workload.worst_case import ADAPTER_RANK, ADAPTER_TARGETS
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.settings.arguments import Setting, is_off, iterate_command_settings, normalise_name
from opsk_jobcheck.scripts.settings.findings import Findings

FRAMEWORKS = frozenset(
    {
        *("llama-factory", "axolotl", "litgpt", "torchtune", "llama-cookbook"),
        *("trl", "trl + accelerate", "hf-trainer", "hf-trainer+deepspeed", "ms-swift"),
    }
)
"""Frameworks whose adapters are read: those that use PEFT, or have equivalent ones."""
ADAPTERS, RANK, TARGETS, DROPOUT, BASE_BITS = (
    *("adapters", "adapters.rank", "adapters.targets", "adapters.dropout"),
    "adapters.base_bits",
)
"""Options of a workload: the kind, rank, layers, whether inputs are dropped out, and bits of a base weight."""
LOADED_AS_CONFIGURED = frozenset({"trl", "trl + accelerate", "hf-trainer", "hf-trainer+deepspeed"})
"""Frameworks whose base is in fp32 unless they are given another format, or quantise it."""
_USER_PROGRAMS = frozenset({"hf-trainer", "hf-trainer+deepspeed"})
"""Programs of users: rank and layers that their Python code takes are not known."""
WEIGHTS = "weights.dtype"
"""Option of a workload: the 16-bit format in which weights are loaded."""
MAX_RANK = 4096
USUAL_RANK = 16
"""Rank of adapters where none is given: ``ModelConfig`` of TRL; PEFT's own is 8."""
_ADAPTER_KINDS = re.compile(
    r"finetuning_type|tuner_type|train_type|sft_type|peft_method|adapter|adapter_type|peft_type"
)
_ADAPTER_SWITCHES = re.compile(r"(use|with|enable|do|train|apply)_?(peft|q?lora|adapters?)|q?lora|peft")
_LORA, _QLORA = "lora", "qlora"
_RANKS = re.compile(r"q?lora_(r|rank|dim)|peft_lora_r")
_TARGETS = re.compile(r"q?lora_(target(_modules|_linear)?|modules|attn_modules)|target_modules")
_DROPOUTS = re.compile(r"q?lora_dropout")
_SWITCHED = MappingProxyType(
    {
        **dict.fromkeys(("apply_lora_to_mlp", "lora_mlp", "lora_target_linear"), ("mlp",)),
        **dict.fromkeys(("lora_key", "lora_projection"), ("k", "o")),
    }
)
"""Switches that put adapters on more layers, and words for those."""
_QUANTISED_BASE = re.compile(r"load_in_(4|8)_?bit|quantization(_bit)?|quant_bits|quantize|quantize_base|use_4bit")
_BITS = re.compile(r"(bnb\.|bitsandbytes\.)?(nf|fp|int)?(?P<bits>[48])([ _-]?bits?)?(-dq)?(-training)?", re.IGNORECASE)
_KNOWN_QUANTISERS = frozenset({"bnb", "bitsandbytes"})
_METHODS = frozenset({"quantization_method", "quant_method"})
_OTHER_KINDS = re.compile(
    r"use_(dora|unsloth|galore|badam)|peft_use_dora|lora_(modules_to_save|on_cpu|target_parameters|head)|modules_to_save"
    r"|additional_target|resize_vocab|apply_lora_to_output|relora.*|loftq_.+|peft_layers.*|lora_(fan_in_fan_out)"
)
"""Settings with which adapters keep more, or less, than is counted."""
_MLP = re.compile(r"all(-linear|_linear)?|mlp|.*(gate|up|down)_?proj|fc\d|w[123]|dense_\w+|linear\w*|experts?|wi|wo")
_OUTPUT = re.compile(r"k|o|k_?proj|o_?proj|out(put)?_?proj|dense|key|query_key_value|w?qkv(_proj)?|c_attn|c_proj")
OPTION = "trainable"
"""Name of the workload option for this."""
_UNKNOWN = "unknown: "
MAX_SHOWN = 60
MAX_PATH_CHARS = 512
"""Longest word that is looked at as the path of a program."""
_ADAPTERS, _QUANTISED = "only adapters are trained", "the weights are quantized"
_OF_ROLES = frozenset({"other models are in memory too", "only a reward model is trained"})
_SWITCHES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        (_ADAPTERS, r"(use|with|enable|do|train|apply)_?(peft|q?lora|adapters?)|q?lora|use_dora"),
        (_ADAPTERS, r"adapter|adapter_type|peft|peft_(method|scheme|type|config)"),
    )
)
"""Settings that decide alone: where one is off, the details below are ignored."""
_DETAILS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        (_ADAPTERS, r"q?lora_(r|rank|dim|alpha|target(_modules|_linear)?|modules(_to_save)?|layers)"),
        (_ADAPTERS, r"peft_.+|adapter_(dim|size|rank|name_or_path)"),
        ("part of the model is frozen", r"freeze_(trainable|extra)_.+"),
    )
)
_OTHERS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        (
            "part of the model is frozen",
            r"freeze|freeze_(?!gc|step|trainable_|extra_).+|frozen_.+|(?!gc_).+_freeze|unfreeze_.+|unfrozen_parameters|trainable_(parameters|params|modules)"
            r"|num_layers_unfrozen|tune_mm_mlp_adapter|.*(?<!un)frozen",
        ),
        (
            _QUANTISED,
            r"load_in_(4|8)_?bit|(bnb|quantize)_4bit_.+|quantize_base|use_4bit|use_8bit_base",
        ),
        (
            "a teacher is in memory too",
            r"(.+_)?teacher(_.+)?|knowledge_distillation|distill(ation)?|kd_(ratio|alpha|loss_scale|config|temperature)",
        ),
        (
            "other models are in memory too",
            r"(ref|reference|reward|critic)_(model|pretrain)(_.+)?|(ref|reward|critic)_num_(nodes|gpus_per_node)"
            r"|rlhf_type|actor_num_nodes",
        ),
    )
)
_VALUES: tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (what, re.compile(name), re.compile(value, re.IGNORECASE))
    for what, name, value in (
        (
            _ADAPTERS,
            r"(finetuning|fine_tuning|tuning|train|training|tuner|finetune)_(type|mode|scheme|method)",
            r"q?lora|dora|adapters?|ia3|oft|p_?tuning|prefix.*|prompt.*|longlora|adalora|peft",
        ),
        ("part of the model is frozen", r"(finetuning|tuning|train|tuner)_(type|mode)", r"freeze"),
        (
            _QUANTISED,
            r"quantization(_bit|_config)?|quantize",
            r"[248]|(int|nf|fp)?[48][ _-]?bits?|(nf|int)[48]",
        ),
        (
            "other models are in memory too",
            r"stage|rl|rl_algorithm|algorithm|adv_estimator",
            r"dpo|ppo|grpo|rloo|kto|gae|remax",
        ),
        ("only a reward model is trained", r"stage|rl", r"rm|reward_trainer"),
    )
)
_PROGRAMS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        (
            "other models are in memory too",
            r"(^|[/._-])(dpo|ppo|grpo|rloo|rlhf|online_dpo|kto|nash_md|xpo|gkd)([._-].*)?(\.py)?$"
            r"|(train|run|main|finetune)_(dpo|ppo|grpo|rloo|rlhf|kto)(_\w+)?(\.py)?$",
        ),
        (
            _ADAPTERS,
            r"(^|[/._-])q?lora([._-][\w.-]*)?(\.py)?$|(finetune|train|run)_q?lora\w*(\.py)?$",
        ),
        ("a teacher is in memory too", r"(^|[/._-])(distill(ation)?|knowledge_distillation)([._-][\w.-]*)?\.py$"),
    )
)
_KINDS = frozenset({"finetuning_type", "tuner_type", "train_type"})
"""Settings that may state that the whole model is trained."""
_PROGRAM_ENDINGS = (".py",)
_SUBCOMMANDS = frozenset({"dpo", "ppo", "grpo", "rloo", "kto", "gkd", "rlhf"})
_WITH_SUBCOMMANDS = frozenset({"trl", "swift", "tune", "ilab"})


def find_adapters(settings: Iterable[Setting], framework: str, *, kind: str = "") -> Mapping[str, str] | None:
    """Return the options that describe the adapters; ``None`` where they are unknown, or are not plain LoRA.

    Parameters
    ----------
    settings
        Those of the command and of its files, in the order in which the later one holds.
    framework
        As the reader names it.
    kind
        The kind that the command states: ``lora``, or empty.
    """
    if framework not in FRAMEWORKS:
        return None
    rows = [(normalise_name(setting.name), setting.value) for setting in settings]
    if any(_OTHER_KINDS.fullmatch(name) and not is_off(value) for name, value in rows):
        return None
    kinds = [kind] * bool(kind) + [
        (value or "").strip().lower() for name, value in rows if _ADAPTER_KINDS.fullmatch(name)
    ]
    switches = [value for name, value in rows if _ADAPTER_SWITCHES.fullmatch(name)]
    is_adapter = bool(kinds) or any(not is_off(value) for value in switches)
    # a rank alone may be left over: TRL and axolotl then train the whole model
    if not is_adapter or None in switches or any(word not in (_LORA, _QLORA) for word in kinds):
        return None
    options = {
        RANK: _find_rank(rows),
        TARGETS: _find_targets(rows),
        DROPOUT: _find_dropout(rows),
        BASE_BITS: _find_base_bits(rows, is_quantised=_QLORA in kinds),
    }
    if None in options.values():
        return None
    known = {option: word for option, word in options.items() if word}
    if framework in _USER_PROGRAMS and not {RANK, TARGETS} <= known.keys():
        return None
    return {ADAPTERS: _LORA} | known


def _find_rank(rows: list[tuple[str, str | None]]) -> str | None:
    """Return the rank, empty where none is given; ``None`` where it is unknown."""
    given = [value for name, value in rows if _RANKS.fullmatch(name)]
    if not given:
        return ""
    text = (given[-1] or "").strip()
    return text if text.isascii() and text.isdigit() and 0 < int(text[:9]) <= MAX_RANK else None


def _find_targets(rows: list[tuple[str, str | None]]) -> str | None:
    """Return which layers have adapters, empty where nothing is given; ``None`` where it is unknown."""
    words: list[str] = []
    for name, value in rows:
        if name in _SWITCHED:
            if not is_off(value):
                words += _SWITCHED[name]
        elif _TARGETS.fullmatch(name):
            if value is None:
                return None
            words += [] if is_off(value) else re.findall(r"[A-Za-z_][\w-]*", value.lower())[:64]
    if not words:
        return ""
    if any(_MLP.fullmatch(word) for word in words):
        return "all"
    return "attention" if any(_OUTPUT.fullmatch(word) for word in words) else "query-value"


def _find_dropout(rows: list[tuple[str, str | None]]) -> str | None:
    """Return ``true`` or ``false``, empty where nothing is given; ``None`` where it is unknown."""
    given = [value for name, value in rows if _DROPOUTS.fullmatch(name)]
    if not given:
        return ""
    return None if given[-1] is None else "false" if is_off(given[-1]) else "true"


def _find_base_bits(rows: list[tuple[str, str | None]], *, is_quantised: bool) -> str | None:
    """Return the bits of a base weight, empty where it is not quantised; ``None`` where they are unknown."""
    methods = {(value or "?").strip().lower() for name, value in rows if name in _METHODS and not is_off(value)}
    if not methods <= _KNOWN_QUANTISERS:
        return None
    bits = "4" if is_quantised else ""
    for name, value in rows:
        match = _QUANTISED_BASE.fullmatch(name)
        if match is None or is_off(value):
            continue
        if match[1]:
            bits = match[1]
        elif name in ("quantize_base", "use_4bit"):
            bits = "4"
        elif known := _BITS.fullmatch((value or "").strip()):
            bits = known["bits"]
        else:
            return None
    return bits


def read_trainable(
    invocation: Invocation,
    findings: Findings,
    *,
    settings: Iterable[Setting] = (),
    framework: str = "",
    adapters: str = "",
    knows_roles: bool = False,
    knows_adapters: bool = False,
    known: frozenset[str] = frozenset(),
) -> None:
    """State in ``findings.options`` which adapters are trained, or that the trainable part is unknown.

    Parameters
    ----------
    invocation
        The training command.
    settings
        Settings of the command's configuration files, dotted names included.
    framework
        Whose adapters they would be; those of others are not read.
    adapters
        The kind that the program trains by itself, such as ``lora``; empty where it trains the whole model.
    knows_roles
        Whether the reader states the other models in memory itself.
    knows_adapters
        Whether it has stated the adapters, and the bits of their base.
    known
        Settings that the reader has understood, by their normalised names.
    """
    of_files = [row for row in settings if not known or normalise_name(row.name) not in known]
    of_command = iterate_command_settings(invocation, is_relevant=_is_relevant)
    given = [*(row for row in of_command if normalise_name(row.name) not in known), *of_files]
    of_program = list(_find_in_programs(invocation, findings))
    reasons = [*_find_in_settings(given, findings), *of_program]
    if knows_roles:
        reasons = [(what, place) for what, place in reasons if what not in _OF_ROLES]
    if knows_adapters:
        reasons = [(what, place) for what, place in reasons if what not in (_ADAPTERS, _QUANTISED)]
    adapters = adapters or ("lora" if any(what == _ADAPTERS for what, _ in of_program) else "")
    kinds = {what for what, _ in reasons} | {_ADAPTERS for _ in range(bool(adapters))}
    if _ADAPTERS in kinds and kinds <= {_ADAPTERS, _QUANTISED}:
        read = find_adapters([*of_files, *iterate_command_settings(invocation)], framework, kind=adapters)
        if read and (BASE_BITS in read or WEIGHTS in findings.options or framework not in LOADED_AS_CONFIGURED):
            findings.options |= read
            return
        if read:  # the base is in 16 or in 32 bits
            rank, targets = read.get(RANK, str(USUAL_RANK)), read.get(TARGETS, "all")
            findings.options |= {ADAPTER_RANK: rank, ADAPTER_TARGETS: targets}
    if reasons:
        what, place = reasons[0]
        findings.options[OPTION] = f"{_UNKNOWN}{what} ({place})"


def is_only_about_adapters(options: Mapping[str, str]) -> bool:
    """Return whether the trainable part is unknown because of adapters, or of the base that they are on."""
    return options.get(OPTION, "").startswith((f"{_UNKNOWN}{_ADAPTERS}", f"{_UNKNOWN}{_QUANTISED}"))


def find_unknown_reason(options: Iterable[tuple[str, str]]) -> str | None:
    """Return why the trainable part of a workload is unknown, ``None`` where it is not marked unknown."""
    value = dict(options).get(OPTION, "")
    return value.removeprefix(_UNKNOWN) if value.startswith(_UNKNOWN) else None


def _find_in_settings(settings: list[Setting], findings: Findings) -> Iterator[tuple[str, str]]:
    """Yield the untrained parts and the other models in memory that settings state, and where."""
    rows = [(normalise_name(setting.name), setting) for setting in settings]
    rows = [(name, setting) for name, setting in rows if len(name) <= MAX_SHOWN]
    is_denied = any(is_off(setting.value) and _find_rules(name)[0] for name, setting in rows) or any(
        _trains_all(name, setting.value) for name, setting in rows
    )
    for name, setting in rows:
        switch, detail, other = _find_rules(name)
        what = switch or (None if is_denied else detail) or other or _find_in_value(name, setting.value)
        if what and not is_off(setting.value):
            yield what, _format_setting(setting, findings)


@lru_cache(maxsize=4096)
def _is_relevant(written: str) -> bool:
    """Return whether a setting of this name is relevant."""
    name = normalise_name(written)
    return any(_find_rules(name)) or bool(_find_value_rules(name)) or name in _KINDS


@lru_cache(maxsize=4096)
def _find_rules(name: str) -> tuple[str | None, str | None, str | None]:
    """Return the rules for this name as a switch, as a detail and other; cached, as scripts repeat names."""
    switch, detail, other = (
        next((what for what, pattern in rules if pattern.fullmatch(name)), None)
        for rules in (_SWITCHES, _DETAILS, _OTHERS)
    )
    return switch, detail, other


def _find_in_value(name: str, value: str | None) -> str | None:
    """Return the rule that the value of a setting matches."""
    return next(
        (what for what, pattern in _find_value_rules(name) if pattern.fullmatch((value or "").strip())),
        None,
    )


@lru_cache(maxsize=4096)
def _find_value_rules(name: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the values that count of a setting of this name."""
    return tuple((what, value_pattern) for what, pattern, value_pattern in _VALUES if pattern.fullmatch(name))


def _trains_all(name: str, value: str | None) -> bool:
    """Return whether a setting states that the whole model is trained."""
    return name in _KINDS and (value or "").strip().lower() == "full"


def _find_in_programs(invocation: Invocation, findings: Findings) -> Iterator[tuple[str, str]]:
    """Yield the rules that the name of the program matches, and where."""
    texts = invocation.known_words
    if "-m" in texts or not _SUBCOMMANDS.isdisjoint(texts) or any(text.endswith("tune") for text in texts):
        candidates = list(range(len(texts)))
    else:  # most commands: their program alone
        candidates = [index for index, text in enumerate(texts) if text.endswith(_PROGRAM_ENDINGS)]
    before: set[str] = set()
    for index in candidates:
        word, text, previous = invocation.words[index], texts[index], texts[index - 1] if index else ""
        is_program = text.endswith(_PROGRAM_ENDINGS) or previous == "-m"
        is_subcommand = text in _SUBCOMMANDS and previous.rpartition("/")[2] in _WITH_SUBCOMMANDS
        if len(text) <= MAX_PATH_CHARS and (is_program or is_subcommand or _is_recipe(before, text)):
            what = next((what for what, pattern in _PROGRAMS if pattern.search(text)), None)
            if what:
                yield what, _format_place(text.rpartition("/")[2][:MAX_SHOWN], *findings.locate(word.line))
        before.add(text.rpartition("/")[2])


def _is_recipe(before: set[str], text: str) -> bool:
    """Return whether a word is the recipe of ``tune run``: ``lora_finetune_distributed``."""
    return "tune" in before and "run" in before and re.fullmatch(r"\w+", text) is not None


def _format_setting(setting: Setting, findings: Findings) -> str:
    """Return a setting as it is cited."""
    value = "" if setting.value in (None, "true") else f" {setting.value}"
    place = (setting.file, setting.line) if setting.file else findings.locate(setting.line)
    return _format_place(f"{setting.name}{value}"[:MAX_SHOWN], *place)


def _format_place(what: str, file: str, line: int) -> str:
    """Return words with their place."""
    return f"{what}, {file}:{line}" if line else f"{what}, {file}"
