"""Parses the explicit settings of the user in ``#OPSK key=value`` lines of the script.

::

    #OPSK framework=megatron-lm layers=32 hidden=4096 heads=32
    #OPSK plan.tp=8 model.seq=8192   # anywhere in the script, at the start of a line
    #OPSK off                        # no advice

Keys are the fields of `StatedModel` and `StatedPlan`, with or without ``model.`` and ``plan.``, and the names in
`OTHER_KEYS` and `OPTION_NAMES`. These settings override the values that a reader finds elsewhere in the script.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from opsk.workload.model import StatedModel
from opsk.workload.plan import StatedPlan
from opsk.workload.workload import Evidence, Problem, Workload

_Stated = TypeVar("_Stated", StatedModel, StatedPlan)

OTHER_KEYS = ("framework", "launcher", "gpu")
OPTION_NAMES = (
    "attention.flash",
    "optimizer.main_grads",
    "optimizer.offload",
    "optimizer.precision_aware",
    "pipeline.partition",
    "position_embedding_type",
    "tokenizer.type",
    "transformer_impl",
)
"""Names of `Workload.options` that a user may state too."""
MAX_LINES, MAX_LINE, MAX_VALUE = 256, 4096, 200
MAX_COUNT = 10**9

_MAGIC = "#OPSK"
_LINE = re.compile(rf"^{_MAGIC}(?:[ \t]+([^\n]*))?$", re.MULTILINE)
_PAIR = re.compile(r"""([^\s=]+)=("[^"]*"|'[^']*'|\S*)|(\S+)""")
_SHORTER = {"mbs": "plan.micro_batch", "gbs": "plan.global_batch"}
_MAY_BE_ZERO = frozenset({"model.experts", "model.top_k", "model.shared_experts", "model.expert_ffn"})
_TRUTH = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def _build_types() -> dict[str, type]:
    """Return the type of the value of every key, by dotted name."""
    types: dict[str, type] = dict.fromkeys((*OTHER_KEYS, *OPTION_NAMES), str)
    for prefix, owner in (("model", StatedModel), ("plan", StatedPlan)):
        for name, hint in get_type_hints(owner).items():
            types[f"{prefix}.{name}"] = next(kind for kind in get_args(hint) if kind is not NoneType)
    return types


_TYPES = _build_types()
_SHORT = {name.partition(".")[2]: name for name in _TYPES if name.startswith(("model.", "plan."))} | _SHORTER
KEYS = tuple(sorted({*_TYPES, *_SHORT}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The settings of the ``#OPSK`` lines of one script; ``None`` is "not stated"."""

    opted_out: bool = False
    framework: str | None = None
    launcher: str | None = None
    gpu: str | None = None
    model: StatedModel = field(default_factory=StatedModel)
    plan: StatedPlan = field(default_factory=StatedPlan)
    options: tuple[tuple[str, str], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    problems: tuple[Problem, ...] = ()


_NO_STATEMENTS = Statements()


def read_opsk_lines(text: str, *, file: str) -> Statements:
    """Return the settings of the ``#OPSK`` lines of a script; the last value of a key counts.

    Raises nothing: an unknown key or a bad value is a problem with its line and what to write instead.
    """
    if _MAGIC not in text:
        return _NO_STATEMENTS  # most scripts
    values: dict[str, object] = {}
    evidence: dict[str, Evidence] = {}
    problems: list[Problem] = []
    opted_out = False
    offset, line = 0, 1
    for index, match in enumerate(_LINE.finditer(text)):
        line += text.count("\n", offset, match.start())
        offset = match.start()
        if index >= MAX_LINES:
            problems.append(
                Problem(what=f"more than {MAX_LINES} #OPSK lines; the rest is not read", file=file, line=line)
            )
            break
        words = (match[1] or "").strip()[:MAX_LINE]
        if words == "off":
            opted_out = True
            continue
        for key, value, problem in _parse_pairs(words):
            if problem:
                problems.append(Problem(what=problem, file=file, line=line, hint="write #OPSK key=value, or #OPSK off"))
                continue
            shown = match[0].rstrip()[:MAX_VALUE]
            values[key] = value
            evidence.pop(key, None)
            evidence[key] = Evidence(field=key, value=value, file=file, line=line, text=shown)
    return Statements(
        opted_out=opted_out,
        model=StatedModel(**_select_prefix("model.", values)),
        plan=StatedPlan(**_select_prefix("plan.", values)),
        options=tuple((name, str(values[name])) for name in OPTION_NAMES if name in values),
        evidence=tuple(evidence.values()),
        problems=tuple(problems),
        **{name: values[name] for name in OTHER_KEYS if name in values},  # type: ignore[arg-type]
    )


def apply_statements(workload: Workload, statements: Statements) -> Workload:
    """Return the workload with the user's settings in place of those that a reader found.

    Values that a reader computed from replaced ones are computed again: ``plan.gpus`` and ``plan.dp``.
    """
    if not statements.evidence and not statements.problems and not statements.opted_out:
        return workload
    stated = {entry.field for entry in statements.evidence}
    changed = {
        name
        for name in stated
        if name.startswith("plan.") and _get_plan_value(workload, name) != _get_plan_value(statements, name)
    }
    result = replace(
        workload,
        framework=statements.framework or workload.framework,
        launcher=statements.launcher or workload.launcher,
        gpu=statements.gpu or workload.gpu,
        is_training=workload.is_training or bool(stated),
        opted_out=workload.opted_out or statements.opted_out,
        model=_override(workload.model, statements.model),
        plan=_override(workload.plan, statements.plan),
        options=tuple(dict((*workload.options, *statements.options)).items()),
        evidence=(*(entry for entry in workload.evidence if entry.field not in stated), *statements.evidence),
        unknown=tuple(entry for entry in workload.unknown if entry.field not in stated),
        problems=(*workload.problems, *statements.problems),
    )
    return _recompute_derived(result, stated, changed)


def _recompute_derived(workload: Workload, stated: set[str], changed: set[str]) -> Workload:
    """Return the workload with GPU count and data-parallel size that fit the user's settings."""
    plan, last = workload.plan, None
    formulas: dict[str, tuple[int | None, str]] = {}
    if changed & {"plan.nodes", "plan.gpus_per_node"} and "plan.gpus" not in stated:
        gpus = plan.nodes * plan.gpus_per_node if plan.nodes and plan.gpus_per_node else None
        formulas["plan.gpus"] = (gpus, f"nodes {plan.nodes} x gpus_per_node {plan.gpus_per_node}")
        plan = replace(plan, gpus=gpus)
    inputs = {"plan.tp", "plan.pp", "plan.cp", "plan.gpus"}
    if (changed & inputs or formulas) and "plan.dp" not in stated and (plan.dp is not None or formulas):
        ranks = (plan.tp or 0) * (plan.pp or 0) * (plan.cp or 1)
        dp = plan.gpus // ranks if plan.gpus and ranks and plan.gpus % ranks == 0 else None
        formulas["plan.dp"] = (dp, f"gpus {plan.gpus} / (tp {plan.tp} x pp {plan.pp} x cp {plan.cp or 1})")
        plan = replace(plan, dp=dp)
    if not formulas:
        return workload
    last = next(entry for entry in reversed(workload.evidence) if entry.field in changed)
    remaining = tuple(entry for entry in workload.evidence if entry.field not in formulas)
    added = tuple(
        Evidence(field=name, value=value, file=last.file, line=last.line, text=text)
        for name, (value, text) in formulas.items()
        if value is not None
    )
    restated = {entry.field for entry in added}
    unknown = tuple(entry for entry in workload.unknown if entry.field not in restated)
    return replace(workload, plan=plan, evidence=(*remaining, *added), unknown=unknown)


def _parse_pairs(words: str) -> list[tuple[str, object, str]]:
    """Return key, value and problem of every word of a line; the problem is empty where there is none."""
    result: list[tuple[str, object, str]] = []
    for match in _PAIR.finditer(words):
        if match[0].startswith("#"):
            break
        if match[3] is not None:
            shown = match[3][:MAX_VALUE]
            more = ": stands alone on its line" if shown == "off" else " is not key=value"
            result.append(("", None, f"#OPSK: {shown!r}{more}"))
            continue
        result.append(_parse_pair(match[1], match[2]))
    return result


def _parse_pair(written: str, text: str) -> tuple[str, object, str]:
    """Return the dotted key, the typed value and the problem of one pair."""
    short = written.lower().replace("-", "_")[:MAX_VALUE]
    key = short if short in _TYPES else _SHORT.get(short, "")
    if not key:
        near = difflib.get_close_matches(short[:64], KEYS, n=1, cutoff=0.5)
        more = f"; did you mean {near[0]}?" if near else ""
        return "", None, f"#OPSK: no key {written[:MAX_VALUE]!r}{more}"
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    value, expected = _parse_value(key, text)
    if value is None:
        return "", None, f"#OPSK: {key} is {text[:MAX_VALUE]!r}, must be {expected}"
    return key, value, ""


def _parse_value(key: str, text: str) -> tuple[object, str]:
    """Return the value that a text is for a key, or ``None`` and what it should be."""
    kind = _TYPES[key]
    if kind is bool:
        return _TRUTH.get(text.lower()), "true or false"
    if kind is int:
        minimum = 0 if key in _MAY_BE_ZERO else 1
        digits = text.replace("_", "").replace(",", "")
        count = int(digits) if re.fullmatch(r"[0-9]{1,13}", digits) else -1
        return (count if minimum <= count < MAX_COUNT else None), f"a whole number from {minimum} on"
    if issubclass(kind, StrEnum):
        names = [str(member) for member in kind]
        return (kind(text.lower()) if text.lower() in names else None), "one of " + ", ".join(names)
    text = text.lower() if key in ("framework", "gpu") else text
    is_plain = 0 < len(text) <= MAX_VALUE and "$" not in text and "`" not in text
    return (text if is_plain else None), f"a text of 1 to {MAX_VALUE} characters; nothing is expanded in it"


def _select_prefix(prefix: str, values: dict[str, object]) -> dict[str, Any]:
    """Return the values whose key starts with a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


def _get_plan_value(owner: Workload | Statements, name: str) -> object:
    """Return the value of a dotted plan field."""
    return getattr(owner.plan, name.removeprefix("plan."))


def _override(read: _Stated, statements: _Stated) -> _Stated:
    """Return the read values, overridden by the stated ones."""
    stated = {item.name: value for item in fields(statements) if (value := getattr(statements, item.name)) is not None}
    return replace(read, **stated)
