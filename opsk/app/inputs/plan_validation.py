"""Fills in defaults in the tables of a plan file and collects all violations.

Every value is checked where possible. A wrong value is replaced by a neutral one, and violations that depend on it are
left out, so that one mistake is reported once and hides no other.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError, create_model

from opsk.app.inputs.named_inputs import load_model
from opsk.costmodel.estimates.checkpoint import CheckpointOptions
from opsk.errors import InputError, OpskError, PlanInfeasibleError
from opsk.text import escape
from opsk.workload.defaults import GPT2_VOCAB, LLAMA3_VOCAB, Assumption, average_layers
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute, Sharding, Software, States

MAX_SIZE = 10**9
"""No size comes near this; a larger one is a slip of the pen: models have 10^5 wide layers and 10^6 token sequences."""
MAX_NUMBER = 1e18
"""No rate, time or number of tokens comes near this."""
_MAX_SHOWN_CHARS = 60
_MAX_SHOWN_DIGITS = 30
"""Integers with more digits are shown by their number of digits."""
_WHOLE = re.compile(r"\s*[+-]?[0-9](_?[0-9])*\s*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a whole run: ``tokens`` or ``steps`` in total, in a building with a ``pue``."""

    tokens: float | None = None
    steps: int | None = None
    pue: float = 1.0


LIKE = "like"
"""Key of ``[model]`` that names a public model or a ``config.json``, whose shape the other keys change."""
VALUES: Mapping[str, type[Any]] = {
    "model": ModelShape,
    "plan": Plan,
    "checkpoint": CheckpointOptions,
    "run": RunOptions,
}
"""Table of a plan file to the class whose fields are its keys."""


_MEASURED = "measured"
"""The field of a model that only the catalogue has."""


def _list_kinds(table: str) -> dict[str, Any]:
    """Return the type of every key of a table, without its ``None``."""
    hints = get_type_hints(VALUES[table])
    names = [item.name for item in fields(VALUES[table]) if item.name != _MEASURED]
    kinds = {name: _without_none(hints[name]) for name in names}
    return {LIKE: str, **kinds} if table == "model" else kinds


def _without_none(hint: Any) -> Any:
    """Return ``X`` of ``X | None``."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


KINDS: Mapping[str, Mapping[str, Any]] = {
    "": {"cluster": str, "gpus": int, "nodes": int, "gpus_per_node": int},
    **{table: _list_kinds(table) for table in VALUES},
}
"""Type of every key by table; the keys outside of tables are under ``""``."""
_BOUNDED: dict[Any, Any] = {
    int: Annotated[int, Field(strict=True, ge=-MAX_SIZE, le=MAX_SIZE)],
    float: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-MAX_NUMBER, le=MAX_NUMBER)],
    bool: StrictBool,
    str: StrictStr,
}


def _build_table_model(table: str) -> type[BaseModel]:
    """Return the pydantic model of a table; every key is optional."""
    columns: dict[str, Any] = {name: (_BOUNDED.get(kind, kind) | None, None) for name, kind in KINDS[table].items()}
    return create_model(f"table_{table}", __config__=ConfigDict(extra="forbid"), **columns)


_TABLE_MODELS = {table: _build_table_model(table) for table in KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedFields:
    """The valid values by table and key; all violations; and the keys that are doubtful because of them."""

    tables: Mapping[str, dict[str, Any]]
    wrong: tuple[str, ...]
    doubtful: frozenset[str]


def validate_fields(given: Mapping[str, Any]) -> ValidatedFields:
    """Return the valid values of the tables of a plan file; nothing is filled in and nothing raised."""
    tables: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    doubtful: set[str] = set()
    top = {key: value for key, value in given.items() if key not in VALUES}
    for table in KINDS:
        content = given.get(table, {}) if table else top
        if not isinstance(content, Mapping):
            wrong.append(f"[{table}] is {format_value(content)}, not a table")
            doubtful |= KINDS[table].keys()
            content = {}
        tables[table], errors = _validate_table(table, content)
        wrong += errors.values()
        doubtful |= errors.keys()
    return ValidatedFields(tables=tables, wrong=tuple(wrong), doubtful=frozenset(doubtful))


def _validate_table(table: str, content: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the valid keys of one table, and the violation of each other key."""
    errors: dict[str, str] = {}
    try:
        validated = _TABLE_MODELS[table].model_validate(dict(content))
    except ValidationError as error:
        for item in error.errors(include_url=False):
            name = str(item["loc"][0])
            errors.setdefault(
                name,
                _format_violation(f"{table}.{name}" if table else name, KINDS[table].get(name), item)
                + _suggest_key(name, KINDS[table], item["type"]),
            )
        validated = _TABLE_MODELS[table].model_validate(
            {key: value for key, value in content.items() if key not in errors}
        )
    return validated.model_dump(exclude_none=True), errors


def _suggest_key(name: str, known: Iterable[str], what: str) -> str:
    """Return the known key that is the most like an unknown one."""
    close = difflib.get_close_matches(name, list(known), n=1) if what == "extra_forbidden" else []
    return f"; did you mean {close[0]}?" if close else ""


def _format_violation(where: str, kind: Any, item: Any) -> str:
    """Return one line for one validation error."""
    where, given, what = escape(where), format_value(item["input"]), item["type"]
    if what == "extra_forbidden":
        return f"{where}: no such key"
    if what in ("less_than_equal", "greater_than_equal", "int_parsing_size"):
        return f"{where} is {given}: out of range"
    if what == "finite_number":
        return f"{where} is {given}: must be finite"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"{where}: {given} is none of {', '.join(str(member.value) for member in kind)}"
    words = {int: "not an integer", float: "not a number", bool: "neither true nor false", str: "not text"}
    return f"{where}: {given} is {words.get(kind, 'not allowed')}"


def format_value(value: object) -> str:
    """Return any value as a short printable text."""
    if type(value) is int and value.bit_length() > _MAX_SHOWN_DIGITS * 3.33:
        return f"{'-' if value < 0 else ''}a number of {int(value.bit_length() * 0.30103) + 1} digits"
    text = escape(repr(value) if isinstance(value, int | float | str | bool) else type(value).__name__)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"


def parse_flag(table: str, key: str, text: str) -> Any:
    """Return the value of a flag; invalid text is returned unchanged, for validation to report."""
    kind = KINDS[table][key]
    if kind is int and _WHOLE.fullmatch(text):
        return int(text) if len(text) <= _MAX_SHOWN_DIGITS * 10 else 10 ** (len(text.strip("+- _\t\n")) - 1)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            return text
    return text


USUAL_SEQ = 4096
USUAL_MICRO_BATCH = 1
_STATES = {
    Software.DEEPSPEED: (States.MIXED_16BIT_GRADIENTS, "DeepSpeed keeps gradients in 16 bits"),
    Software.PYTORCH: (States.AUTOCAST, "PyTorch keeps states in fp32 and computes in 16 bits"),
}


class Defaults:
    """The tables of a plan file while defaults are filled in; ``assumed`` lists these and the reasons."""

    def __init__(self, model: dict[str, Any], plan: dict[str, Any]) -> None:
        self.model, self.plan = dict(model), dict(plan)
        self.assumed: list[Assumption] = []
        self.wrong: list[str] = []

    def assume(self, table: str, key: str, value: Any, why: str) -> None:
        """Set a default where no value is given."""
        values = self.model if table == "model" else self.plan
        if key not in values:
            values[key] = value
            self.assumed.append(Assumption(field=f"{table}.{key}", value=value, why=why))


def fill_model(defaults: Defaults) -> None:
    """Fill in the shape of a model of which layers, hidden and heads are known."""
    model = defaults.model
    hidden, heads = model.get("hidden", 0), model.get("heads", 0)
    if model.get("ffn") == 4 * hidden:
        defaults.assume("model", "gated_mlp", False, "the MLP is four times as wide as the model, as plain ones are")
    defaults.assume("model", "gated_mlp", True, "most models of today have a gated MLP")
    gated = model["gated_mlp"]
    if model.get("experts") and "expert_ffn" in model:
        # no layer has a dense MLP: its width is never used
        model.setdefault("ffn", model["expert_ffn"])
    if gated:
        width = -(-8 * hidden // 3 // 256) * 256 or 256
        defaults.assume("model", "ffn", width, f"8/3 x hidden {hidden}, up to a multiple of 256, as Llama's")
        defaults.assume("model", "vocab", LLAMA3_VOCAB, "the tokenizer is not known; Llama 3's has so many tokens")
        defaults.assume("model", "tied_embeddings", False, "a head of its own needs more memory")
    else:
        defaults.assume("model", "ffn", 4 * hidden or 4, f"4 x hidden {hidden}")
        defaults.assume("model", "vocab", GPT2_VOCAB, "the tokenizer is not known; GPT-2's has so many tokens")
        defaults.assume("model", "tied_embeddings", True, "GPT-2 and GPT-3 reuse the embedding")
    defaults.assume("model", "seq", USUAL_SEQ, "a usual length of training sequences")
    defaults.assume("model", "flash_attention", True, "the software of today fuses attention")
    model.setdefault("kv_heads", heads)
    _fill_head_dim(defaults, hidden, heads)


def _fill_head_dim(defaults: Defaults, hidden: int, heads: int) -> None:
    """Fill in the width of a head where it is left out, or report why it cannot be."""
    if "head_dim" in defaults.model:
        return
    if heads > 0 and hidden % heads:
        defaults.wrong.append(f"model.head_dim is left out and hidden {hidden} is not a multiple of heads {heads}")
    defaults.model["head_dim"] = max(hidden // heads, 1) if heads > 0 else 1


def fill_plan(defaults: Defaults, gpus: int | None) -> None:
    """Fill in the plan; ``gpus`` are those of the job where they are known, and fix ``dp``."""
    plan = defaults.plan
    _fill_dp(defaults, gpus)
    defaults.assume("plan", "software", Software.MEGATRON_CORE, "the framework is not known; it is the usual one")
    defaults.assume("plan", "precision", Precision.BF16, "what large models are trained in")
    defaults.assume("plan", "micro_batch", USUAL_MICRO_BATCH, "the least memory that a plan can do with")
    micro_batch, dp = max(plan["micro_batch"], 1), max(plan["dp"], 1)  # values below 1 are reported separately
    defaults.assume("plan", "global_batch", micro_batch * dp, f"no accumulation: micro batch {micro_batch} x dp {dp}")
    defaults.assume("plan", "recompute", Recompute.NONE, "nothing is recomputed unless asked for")
    if not plan["precision"].is_wide:
        states, why = _STATES.get(
            plan["software"], (States.MIXED, "Megatron keeps gradients and master weights in fp32")
        )
        defaults.assume("plan", "states", states, why)
    if dp * plan.get("cp", 1) > 1:
        _assume_sharding(defaults)
    if plan.get("tp", 1) > 1:
        defaults.assume("plan", "sequence_parallel", False, "it needs a flag of its own")


def _assume_sharding(defaults: Defaults) -> None:
    """Assume the sharding that the software uses by default."""
    if defaults.plan["software"] is Software.PYTORCH:
        defaults.assume("plan", "sharding", Sharding.ZERO3, "FSDP shards weights, gradients and optimizer states")
    else:
        defaults.assume(
            "plan", "sharding", Sharding.NONE, "every replica keeps all states unless sharding is asked for"
        )


def _fill_dp(defaults: Defaults, gpus: int | None) -> None:
    """Fill in ``dp`` from the GPU count where it is left out, or report why it cannot be."""
    plan = defaults.plan
    if "dp" in plan:
        return
    per_replica = plan.get("tp", 1) * plan.get("pp", 1) * plan.get("cp", 1)
    if gpus is None or per_replica < 1:
        plan["dp"] = 1
    elif gpus % per_replica:
        defaults.wrong.append(f"plan.dp is left out and {gpus} GPUs are not a multiple of tp x pp x cp = {per_replica}")
        plan["dp"] = 1
    else:
        plan["dp"] = gpus // per_replica


_REQUIRED = ("layers", "hidden", "heads")
"""Keys without a default."""
_ROUNDS = 12
"""Maximum attempts to build a value; each replaces the fields that the last error named."""
_WORDS = re.compile(r"[a-z_]+")
_ALIASES = {
    "global batch": "global_batch",
    "micro batch": "micro_batch",
    "micro-batches": "global_batch",
    "mixture of experts": "experts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedPlan:
    """An examined plan file; ``None`` is "not stated", for ``model`` and ``plan`` "invalid".

    ``wrong`` lists every violation; the values concerned are stand-ins, and their keys are ``doubtful``.
    """

    model: ModelShape | None
    plan: Plan | None
    cluster: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    checkpoint: CheckpointOptions | None = None
    run: RunOptions | None = None
    assumed: tuple[Assumption, ...] = ()
    wrong: tuple[str, ...] = ()
    doubtful: frozenset[str] = frozenset()

    def without_doubt(self, violations: list[str]) -> list[str]:
        """Return the violations that concern no doubtful key."""
        return [violation for violation in violations if self.doubtful.isdisjoint(find_keys(violation))]


def find_keys(violation: str) -> list[str]:
    """Return the keys of a plan file that a violation mentions, the violated one first."""
    for words, key in _ALIASES.items():
        violation = violation.replace(words, key)
    return [word for word in _WORDS.findall(violation) if word in _KEYS]


_KEYS = {key for kinds in KINDS.values() for key in kinds}


def examine_plan(given: Mapping[str, Any]) -> ExaminedPlan:
    """Return the values of the tables of a plan file and all violations; nothing is raised."""
    return _Examination(given).result()


class _Examination:
    """The state of one examination."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        stated = validate_fields(given)
        self.tables = stated.tables
        self.wrong = list(stated.wrong)
        self.doubtful = set(stated.doubtful)
        self.assumed: list[Assumption] = []

    def result(self) -> ExaminedPlan:
        """Examine all tables."""
        top = self.tables[""]
        gpus = self._resolve_gpus(top)
        defaults = Defaults(self._resolve_model(), self.tables["plan"])
        fill_model(defaults)
        fill_plan(defaults, gpus)
        self._report(defaults.wrong)
        self.assumed += defaults.assumed
        model = self._build(ModelShape, "model", defaults.model)
        plan = self._build(Plan, "plan", defaults.plan)
        if plan is not None:
            self._compare_gpus(plan, gpus, top)
        return ExaminedPlan(
            model=model,
            plan=plan,
            **{key: value for key, value in top.items() if key != "gpus"},  # those are in the plan
            checkpoint=self._build(CheckpointOptions, "checkpoint", self.tables["checkpoint"] or None),
            run=self._build_run(),
            assumed=(*self.assumed, *average_layers(model, plan)),
            wrong=tuple(dict.fromkeys(self.wrong)),
            doubtful=frozenset(self.doubtful),
        )

    def _report(self, violations: list[str]) -> None:
        """Add the violations that concern no doubtful key, and mark their keys as doubtful."""
        for violation in violations:
            names = find_keys(violation)
            if self.doubtful.isdisjoint(names):
                self.wrong.append(violation)
            self.doubtful |= set(names[:1])

    def _resolve_gpus(self, top: dict[str, Any]) -> int | None:
        """Return the GPUs of the job where they, or nodes and GPUs per node, are given."""
        wrong = [key for key in ("gpus", "nodes", "gpus_per_node") if top.get(key, 1) < 1]
        self._report([f"{key} is {top[key]}, must be at least 1" for key in wrong])
        for key in wrong:
            del top[key]
        gpus: int | None = top.get("gpus")
        if "nodes" not in top or "gpus_per_node" not in top:
            return gpus
        of_nodes: int = top["nodes"] * top["gpus_per_node"]
        if gpus is not None and gpus != of_nodes:
            self._report([f"gpus is {gpus}, {_format_nodes(top)} is {of_nodes}"])
        return gpus if gpus is not None else of_nodes

    def _resolve_model(self) -> dict[str, Any]:
        """Return the keys of the model over those of the named one; neutral numbers where some are missing."""
        values = dict(self.tables["model"])
        named = values.pop(LIKE, None)
        if named is not None:
            values = self._resolve_like(named, values)
        missing = [key for key in _REQUIRED if key not in values]
        self._report([f"model.{key}: missing" for key in missing if key not in self.doubtful])
        self.doubtful |= set(missing)
        for key in missing:
            values[key] = values.get("heads", 1) if key == "hidden" else 1
        return values

    def _resolve_like(self, named: str, values: dict[str, Any]) -> dict[str, Any]:
        """Return the keys of the named model, overridden by the given ones."""
        try:
            shape, assumed = load_model(named, seq=values.get("seq"))
        except InputError as error:
            self.wrong.append(f"model.like: {error.message}")
            self.doubtful |= KINDS["model"].keys()
            return values
        self.assumed += [entry for entry in assumed if entry.field.removeprefix("model.") not in values]
        return {**asdict(shape), **values}

    def _build(self, value_class: type[Any], table: str, values: dict[str, Any] | None) -> Any:
        """Return the value of a table with stand-ins for wrong fields; ``None`` where it cannot be built."""
        if values is None:
            return None
        values, neutral = dict(values), set[str]()
        for _ in range(_ROUNDS):
            try:
                return value_class(**values)
            except PlanInfeasibleError as error:
                violations = [f"{table}: {violation}" for violation in error.violations]
            except OpskError as error:
                violations = [f"{table}: {violation}" for violation in _split_message(error.message, values)]
            self._report(violations)
            for names in map(find_keys, violations):
                # the first key may be neutral already: then the next one is replaced
                name = next((name for name in names if name not in neutral), None)
                if name is not None:
                    neutral.add(name)
                    _neutralise(value_class, values, name)
        return None

    def _compare_gpus(self, plan: Plan, gpus: int | None, top: dict[str, Any]) -> None:
        """Report axes that do not multiply to the GPUs of the job."""
        if gpus is None or plan.gpus == gpus or not self.doubtful.isdisjoint(("tp", "pp", "cp", "dp")):
            return
        stated = f"gpus is {gpus}" if "gpus" in top else f"{_format_nodes(top)} is {gpus}"
        self.wrong.append(
            f"plan: tp {plan.tp} x pp {plan.pp} x cp {plan.cp} x dp {plan.dp} is {plan.gpus} GPUs, {stated}"
        )

    def _build_run(self) -> RunOptions | None:
        """Return the options of the whole run."""
        values = self.tables["run"]
        wrong = [
            f"run: {key} is {values[key]}, must be {words}"
            for key, words, minimum in (
                ("tokens", "above 0", 1e-9),
                ("steps", "at least 1", 1),
                ("pue", "1 or more", 1),
            )
            if key in values and values[key] < minimum
        ]
        if "tokens" in values and "steps" in values:
            wrong.append(f"run: tokens {values['tokens']:g} and steps {values['steps']}: give one of them")
        self._report(wrong)
        return RunOptions(**values) if values and not wrong else None


def _format_nodes(top: Mapping[str, Any]) -> str:
    """Return the nodes and GPUs per node of a job as a product."""
    return f"nodes {top['nodes']} x gpus_per_node {top['gpus_per_node']}"


def _split_message(message: str, values: Mapping[str, Any]) -> list[str]:
    """Split the message of an error into its violations."""
    return message.removeprefix(f"model {values.get('name', 'model')}: ").split("; ")


def _neutralise(value_class: type[Any], values: dict[str, Any], name: str) -> None:
    """Replace a field by a valid number: its default, or 1; a batch that all axes divide."""
    defaults = {item.name: item.default for item in fields(value_class)}
    if name == "global_batch" and value_class is Plan:
        sizes = [max(values.get(axis, 1), 1) for axis in ("micro_batch", "dp", "pp", "vpp")]
        values[name] = 2 * sizes[0] * sizes[1] * sizes[2] * sizes[3]
    elif name in defaults:
        values[name] = 1 if defaults[name] is MISSING else defaults[name]
