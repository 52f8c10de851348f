"""Renders the lines of advice by subject: the job, its memory and speed, improvements, and the network."""

from __future__ import annotations

import math
from collections.abc import Iterator

from opsk.app.interference.document import LinkNames
from opsk.costmodel.table import PredictionTable
from opsk.diagnosis.accuracy.comparison import Quantity
from opsk.frameworks.checkpoints import describe_conversion
from opsk.hardware.mig import SEPARATOR
from opsk.planning.interference.contention import Neighbour
from opsk.planning.interference.load import LoadKind
from opsk.text import format_change, format_count, format_duration, format_share
from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk.workload.public_models.measured import Unit, find_measured
from opsk.workload.roles import ENGINE_GPUS
from opsk.workload.unstated.open_sizes import INPUT
from opsk.workload.workload import Evidence, Problem
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.layout import LABEL_WIDTH, MAX_WIDTH, MIN_LEFT, Line, Weight, continuation, cut, fit_parts
from opsk_jobcheck.advice.placement import CLEAR_GAIN, PlacementAdvice, Sharing
from opsk_jobcheck.advice.script_runs import ScriptRuns, describe_runs
from opsk_jobcheck.advice.search import Waste, WasteKind
from opsk_jobcheck.advice.suggestions import MIN_GAIN, Suggestion
from opsk_jobcheck.cluster_state.state_header import OLD_S
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import find_unknown_reason

MEMORY_TERMS_SHOWN = 4
IN_FILE = " in "
"""Separator between settings and the file that they belong in."""
SAME_SPEED = 0.005
MARKS = {Verdict.FITS: "✓", Verdict.TIGHT: "!", Verdict.OOM: "✗", Verdict.UNKNOWN: "?"}
ENDINGS = {
    Verdict.FITS: "fits",
    Verdict.TIGHT: "tight, may run out",
    Verdict.OOM: "will run out",
}
LIMITED = frozenset(
    {"trainable", "plan", "plan.micro_batch", "plan.precision", "plan.optimizer", "model.seq", "model.input"}
)
"""Assumptions that a limit stands on."""
MAX_REASONS = 4
MAX_TEXT = 60
MAX_PATH = 40
MAX_SUBJECT = 30
"""The names of one or two missing values stay before the reason."""
MAX_PROBLEM = 160
"""A problem may take a row and a half, so that its remedy is shown."""
NOTHING_SPECIAL = (0, 1, False, "none")
"""Assumed values that mean "the script does not use this": they are in the JSON, not on the terminal."""
BY_ARITHMETIC = ("model.head_dim",)
"""Assumed values that follow from others by the usual definition: they are in the JSON only as well."""
_FULL_BASE_BITS = 16
_MODEL_SHOWN = ("model.layers", "model.hidden", "model.seq")
EVIDENCE_SHOWN = (*_MODEL_SHOWN, "plan.tp", "plan.pp", "plan.micro_batch", "plan.global_batch")
NEGLIGIBLE = 0.005
"""Slow-downs below this are shown as none: the prediction is not that precise."""


def get_prediction(advice: Advice) -> PredictionTable:
    """Return the prediction of an advice that has one."""
    if advice.prediction is None:
        raise ValueError("advice without a prediction has no memory and no speed to show")
    return advice.prediction


def is_measured(advice: Advice) -> bool:
    """Return whether the model is one that was measured layer by layer, whose speed is not known well."""
    model = advice.completion.model
    return model is not None and model.measured is not None


def render_site_error(advice: Advice, quantity: Quantity) -> str:
    """Return how far this site's own jobs of the kind were off, in place of a range; empty where there are too few."""
    error = (advice.site_errors or {}).get(quantity)
    if error is None:
        return ""
    percent = max(1, math.ceil(100 * error.distance))
    return f"±{percent}% on {error.jobs} jobs of this kind here"


def memory(advice: Advice) -> Line:
    """Return the line on whether it fits, and on the terms that decide."""
    predicted = get_prediction(advice).memory
    total, low, high = (
        float(x) for x in (predicted.total_bytes.expected, predicted.total_bytes.low, predicted.total_bytes.high)
    )
    terms = sorted(((float(term), name) for name, term in predicted.components.items()), reverse=True)
    shown = [f"{name} {as_gib(size):.1f}" for size, name in terms[:MEMORY_TERMS_SHOWN]]
    other = as_gib(sum(size for size, _ in terms[MEMORY_TERMS_SHOWN:]))
    wide = ", a wide range" if is_measured(advice) else ""
    spread = render_site_error(advice, Quantity.MEMORY) or f"{as_gib(low):.1f}–{as_gib(high):.1f}{wide}"
    verdict = f"{MARKS[advice.verdict]} {as_gib(total):.1f} GiB ({spread}) of "
    verdict += f"{as_gib(float(predicted.capacity_bytes)):.1f} GiB per GPU: {ENDINGS[advice.verdict]}"
    return Line(
        label="memory",
        text=f"{verdict}{_chance_text(advice)} — {', '.join(shown)}, other {other:.1f}",
        brief=fit_parts([f"{verdict}{_brief_chance_text(advice)} — {shown[0]}", *shown[1:]], joint=", "),
        weight=Weight.MEMORY,
        topic="memory terms",
    )


def limit(advice: Advice) -> Iterator[Line]:
    """Yield the lines on the largest, or the smallest, memory that a job can take, and on what that stands."""
    predicted = get_prediction(advice).memory
    is_smallest, total = advice.verdict is Verdict.OOM, predicted.total_bytes
    bound, capacity = float(total.low if is_smallest else total.high), float(predicted.capacity_bytes)
    size = f"at {'least' if is_smallest else 'most'} {as_gib(bound):.1f} GiB"
    if advice.verdict is Verdict.TIGHT:
        size = f"{as_gib(float(total.expected)):.1f} GiB in its largest case (up to {as_gib(bound):.1f})"
    text = f"{MARKS[advice.verdict]} {size} of {as_gib(capacity):.1f} GiB per GPU: "
    text += ENDINGS[advice.verdict]
    yield Line(label="memory", text=text, brief=text, weight=Weight.MEMORY, topic="memory terms")
    reasons = [entry for entry in advice.assumed if entry.field in LIMITED]
    for entry in reasons[:MAX_REASONS]:
        words = f"{entry.field.partition('.')[2] or entry.field} {entry.value}: {entry.why}"
        brief = cut(words, MAX_WIDTH - LABEL_WIDTH)
        yield continuation(words, Weight.SECOND, brief=brief, topic="limits")


def room(advice: Advice) -> Line | None:
    """Return the line on up to which batch or length a job without a verdict fits; ``None`` where that is not known."""
    if advice.room is None or advice.cluster is None:
        return None
    size = advice.room
    capacity = float(advice.cluster.node.gpu.capacity_bytes)
    length = f"seq {size.seq}" if size.seq is not None else ""
    batch = f"micro batch {size.micro_batch}"
    first, second = (length, batch) if size.field == "model.seq" else (batch, length)
    if size.samples:
        first, second = size.samples, ""
    elif size.field == INPUT:
        measured = find_measured(advice.workload.model.name or "")
        is_sound = measured is not None and measured.unit is Unit.SECONDS
        first = f"sounds of {size.value} s" if is_sound else f"images of {size.value} × {size.value}"
        second = batch
    text = f"fits up to {first}{f' at {second}' if second else ''}: "
    text += f"at most {as_gib(size.memory_bytes):.1f} GiB of {as_gib(capacity):.1f} GiB per GPU"
    values = {entry.field: str(entry.value) for entry in size.assumed}
    details = [
        *(["even if all of it is trained"] if values.get("trainable") == "all" else []),
        *([f"in {values['plan.precision']}"] if "plan.precision" in values else []),
    ]
    whole = ", ".join([text, *details])
    brief = whole if len(whole) <= MAX_WIDTH - LABEL_WIDTH else text
    return Line(label="memory", text=whole, brief=brief, weight=Weight.MEMORY, topic="room")


def _brief_chance_text(advice: Advice) -> str:
    """Return the probability to fit where the verdict is tight."""
    chance = float(get_prediction(advice).memory.fit_probability)
    return f" (chance to fit {format_share(chance)})" if advice.verdict is Verdict.TIGHT else ""


def _chance_text(advice: Advice) -> str:
    """Return the probability to fit; where the verdict is tight, also the memory that must fit.

    The range may exceed the capacity in spite of a fair probability: it includes cached blocks, which are freed first.
    """
    predicted = get_prediction(advice).memory
    if advice.verdict is Verdict.OOM:
        return ""
    chance = f"chance {format_share(float(predicted.fit_probability))}"
    if advice.verdict is not Verdict.TIGHT:
        return f" ({chance})"
    needed = float(predicted.needed_bytes.expected)
    return f" ({chance}, {as_gib(needed):.1f} GiB without cached blocks)"


def runs(script_runs: ScriptRuns) -> Line:
    """Return the line on which of several trainings of the script the advice is on."""
    text = describe_runs(script_runs)
    return Line(label="runs", text=text, brief=cut(text, MAX_WIDTH - LABEL_WIDTH), weight=Weight.VERDICT, topic="runs")


def speed(advice: Advice) -> Line:
    """Return the line on the predicted speed, and on the parts of the step."""
    time = get_prediction(advice).time
    tflops = time.tflops_per_gpu
    spread = render_site_error(advice, Quantity.TIME) or f"{tflops.low:.0f}–{tflops.high:.0f}"
    text = (
        f"{tflops.expected:.0f} TFLOP/s/GPU ({spread}), "
        f"MFU {time.mfu.expected:.0%}, {format_duration(float(time.step_s.expected))} a step"
    )
    step_s = float(time.step_s.expected)
    shares = sorted(((float(part), name) for name, part in time.components.items()), reverse=True)
    shown = [f"{name} {seconds / step_s:.0%}" for seconds, name in shares if seconds / step_s >= 0.01]
    return Line(
        label="speed",
        text=f"{text} — {', '.join(shown)}",
        brief=fit_parts([f"{text} — {shown[0]}", *shown[1:]], joint=", ") if shown else text,
        weight=Weight.SPEED,
        topic="speed",
    )


def effect(change: Suggestion) -> str:
    """Return the effect of a change: memory of a GPU, and time of a step."""
    pace = change.step_ratio - 1
    pace = 0.0 if abs(pace) < SAME_SPEED else pace
    speed_text = format_change(pace, more="slower", less="faster", same="same speed", digits=0)
    return f"{as_gib(change.memory_bytes):.1f} GiB, {speed_text}"


def settings_text(change: Suggestion) -> str:
    """Return the settings of a change, in the framework's syntax where opsk knows it."""
    inline = [flag for flag in change.flags if IN_FILE not in flag]
    in_files = [flag for flag in change.flags if IN_FILE in flag]
    return " and ".join(filter(None, (" ".join(inline), *in_files))) or change.what


def changes_that_fit(advice: Advice) -> Iterator[Line]:
    """Yield the lines of changes that make the job fit, fastest first."""
    searched = advice.is_searched
    is_larger = any(change.axis == "nodes" for entry in advice.suggestions for change in entry.changes)
    if searched and (is_larger or not advice.suggestions):
        fits = "is predicted to fit" if advice.verdict is Verdict.OOM else "fits for sure"
        analysis = "" if is_larger else ": ask for more GPUs"
        yield continuation(f"→ no plan on these GPUs {fits}{analysis}", Weight.WAY_OUT)
    for index, entry in enumerate(advice.suggestions):
        weight = Weight.WAY_OUT if index == 0 else Weight.SECOND
        text = f"→ {settings_text(entry)}: {effect(entry)}"
        yield continuation(text, weight, brief=text, topic="change")


def improvements(advice: Advice) -> Iterator[Line]:
    """Yield the lines on waste and on faster plans, greatest effect first, every change once."""
    rows = [(_compute_effect(entry), "waste", _waste_text(entry), "finding") for entry in select_waste(advice)]
    if advice.verdict is Verdict.FITS:
        shown_plans = {entry.change.plan for entry in advice.waste if entry.change}
        rows += [
            (1 - entry.step_ratio, "faster", f"→ {settings_text(entry)}: {effect(entry)}", "change")
            for entry in advice.suggestions
            if entry.plan not in shown_plans
        ]
    for index, (_, label, text, topic) in enumerate(sorted(rows, key=lambda row: -row[0])):
        weight = Weight.WASTE if index == 0 else Weight.SECOND
        yield Line(label=label, text=text, brief=text, weight=weight, topic=topic)


def _compute_effect(entry: Waste) -> float:
    """Return the share of GPU time that a finding costs."""
    return entry.cost_share or (1 - entry.change.step_ratio if entry.change else 0.0)


def _waste_text(entry: Waste) -> str:
    """Return a finding with its remedy and the effect of that."""
    if entry.change:
        return f"{entry.what} → {settings_text(entry.change)}: {effect(entry.change)}"
    return f"{entry.what} → {entry.advice}" if entry.advice else entry.what


def mending(advice: Advice) -> Iterator[Line]:
    """Yield the lines of repairs for a job that cannot start as submitted."""
    for entry in advice.waste:
        text = f"→ {entry.advice}" if entry.kind is WasteKind.BATCH else f"{entry.what} → {entry.advice}"
        yield continuation(text, Weight.WAY_OUT, brief=text, topic="finding")


def select_waste(advice: Advice) -> tuple[Waste, ...]:
    """Return the findings to show: where memory is short, without those whose change is suggested already."""
    suggested_plans = {entry.plan for entry in advice.suggestions} if advice.verdict is not Verdict.FITS else set()
    return tuple(entry for entry in advice.waste if entry.change is None or entry.change.plan not in suggested_plans)


def best(advice: Advice) -> Iterator[Line]:
    """Yield the line of the best plan on the same GPUs, when it is clearly better than all other suggestions."""
    if advice.best is None:
        return
    suggestion = advice.best.suggestion
    considered = f"{advice.best.considered:,} plans"
    named = [*advice.suggestions, *(entry.change for entry in advice.waste if entry.change)]
    if suggestion.step_ratio > 1 - MIN_GAIN:
        if not named:
            yield continuation(f"none of {considered} on these GPUs is clearly faster", Weight.BEST)
        return
    if any(entry.step_ratio <= suggestion.step_ratio * (1 + MIN_GAIN) for entry in named):
        return
    text = f"→ {suggestion.what}: {suggestion.tflops_per_gpu:.0f} TFLOP/s/GPU, {effect(suggestion)}"
    flags = f" ({' '.join(suggestion.flags)})" if suggestion.flags else ""
    whole = f"{text}, best of {considered}{flags}"
    yield Line(label="best", text=whole, brief=f"{text}, best of {considered}", weight=Weight.SECOND, topic="change")


def conversion(advice: Advice) -> Iterator[Line]:
    """Yield the line on the checkpoint that the job loads, where a shown change gives it another TP or PP."""
    plan = advice.completion.plan
    changes = [*advice.suggestions, *(entry.change for entry in select_waste(advice) if entry.change)]
    changes += [advice.best.suggestion] if advice.best is not None else []
    if plan is None or not changes:
        return
    if text := describe_conversion(advice.workload, plan, [change.plan for change in changes]):
        yield Line(label="load", text=text, weight=Weight.WASTE, topic="checkpoint")


def headline(advice: Advice) -> Line:
    """Return the headline of the job: model, GPUs, plan."""
    model, plan = advice.workload.model, advice.workload.plan
    complete_plan = None if advice.is_limit else advice.completion.plan
    parts = [model.name or advice.workload.job_name or advice.workload.framework or "training job"]
    gpus = plan.gpus or (advice.completion.plan.gpus if advice.completion.plan else None)
    if gpus:
        nodes = f" ({format_count(plan.nodes, 'node')})" if plan.nodes else ""
        serving = dict(advice.workload.options).get(ENGINE_GPUS, "")
        parts.append(f"{gpus} × {_gpu_name(advice)}{nodes}" + (f" + {serving} for the engine" if serving else ""))
    is_answered = advice.verdict is not Verdict.UNKNOWN
    if complete_plan:
        axes = {"TP": "tp", "PP": "pp", "VPP": "vpp", "CP": "cp", "EP": "ep", "DP": "dp"}
        sizes = {name: getattr(complete_plan, field) for name, field in axes.items()}
        parts.append(
            " ".join(f"{name}{size}" for name, size in sizes.items() if size > 1 or name in ("TP", "PP", "DP"))
        )
        if plan.micro_batch or is_answered:
            parts.append(f"mbs {complete_plan.micro_batch}")
    if model.seq:
        parts.append(f"seq {model.seq}")
    if complete_plan and plan.precision:
        parts.append(complete_plan.precision.value)
    if complete_plan and complete_plan.lora_rank:
        base = f", {complete_plan.base_bits}-bit base" if complete_plan.base_bits < _FULL_BASE_BITS else ""
        parts.append(f"LoRA rank {complete_plan.lora_rank}{base}")
    return Line(label="", text=" · ".join(parts), brief=" · ".join(parts), weight=Weight.HEADLINE)


_FAMILIES = ("RTX", "GTX", "QUADRO", "TITAN")
"""First words of names that many different GPUs have."""


def _gpu_name(advice: Advice) -> str:
    """Return the GPU's display name; the job's own name where opsk does not know the GPU."""
    if not advice.is_gpu_known or advice.cluster is None:
        return (advice.workload.gpu or "GPU")[:MAX_TEXT]
    whole, _, part = advice.cluster.node.gpu.name.partition(SEPARATOR)
    name = whole.upper()
    shown = name.replace("-", " ") if name.startswith(_FAMILIES) else name.partition("-")[0]
    return f"{shown} {part}" if part else shown


def unknown(advice: Advice) -> Iterator[Line]:
    """Yield the lines on what is unknown and why; reasons that nobody can change are in the long form only."""
    reasons = advice.why_unknown or ("the script does not say enough",)
    is_useful = is_explained(advice)
    for index, reason in enumerate(reasons):
        start = "" if index else "? cannot tell: "
        weight = Weight.SPEED if index else Weight.MEMORY
        yield Line(
            label="" if index else "verdict",
            text=start + reason,
            brief=_brief_reason(start, reason),
            weight=weight if is_useful else Weight.NEVER,
            topic="reason",
        )
    if advice.requested:
        statements = " ".join(value.statement for value in advice.requested)
        its = "its value" if len(advice.requested) == 1 else "their values"
        text = f"→ state {its} in the script, as in: #OPSK {statements}"
        yield continuation(text, Weight.STATEMENT, brief=text)


def is_explained(advice: Advice) -> bool:
    """Return whether there is a verdict, or whether one thing prevents it that the user or the site can change."""
    is_complete = not advice.completion.missing and not find_unknown_reason(advice.workload.options)
    is_complete = is_complete and all(entry.check != "precision" for entry in advice.preflight)
    return advice.prediction is not None or bool(advice.requested) or is_complete


def _brief_reason(start: str, reason: str) -> str:
    """Return a reason in one row: paths are shortened, and the reason comes before a long subject."""
    room = MAX_WIDTH - LABEL_WIDTH - len(start)
    if len(reason) <= room:
        return ""
    short = " ".join(_shorten_path(word) for word in reason.split(" "))
    names, colon, why = short.partition(": ")
    if len(short) <= room or not colon or len(names) <= MAX_SUBJECT:
        return start + cut(short, room)
    row = f"{why} ({names})"
    return start + (row if len(row) <= room else cut(why, room))


def _shorten_path(word: str) -> str:
    """Return a long path shortened to its last two parts."""
    parts = word.rsplit("/", 2)
    return f"…/{parts[-2]}/{parts[-1]}" if len(word) > MAX_PATH and len(parts) > 2 else word


def read(advice: Advice) -> Iterator[Line]:
    """Yield the evidence: the values that were read with their lines, and their file where there are several."""
    by_field: dict[str, Evidence] = {}
    for evidence in advice.workload.evidence:
        if evidence.field in EVIDENCE_SHOWN and evidence.line:
            by_field[evidence.field] = evidence
    groups: dict[str, list[str]] = {}
    for name in EVIDENCE_SHOWN:
        if name in by_field:
            evidence_item = by_field[name]
            groups.setdefault(evidence_item.file, []).append(
                f"{name.partition('.')[2]} {evidence_item.value} line {evidence_item.line}"
            )
    if not groups:
        return
    is_single_file = len(_collect_files(advice)) == 1
    words = [
        f"{'' if is_single_file else _base_name(file) + ': '}{', '.join(values)}" for file, values in groups.items()
    ]
    yield Line(label="read", text="; ".join(words), weight=Weight.NEVER, topic="values read")


def _collect_files(advice: Advice) -> set[str]:
    """Return the files that values were read from: a single one is not named."""
    return {entry.file for entry in advice.workload.evidence}


def _base_name(file: str) -> str:
    """Return a file's name without its folders."""
    return file.rpartition("/")[2] or "the script"


def list_assumptions(advice: Advice) -> Iterator[Line]:
    """Yield the assumptions with their reasons, each reason once."""
    if advice.verdict is Verdict.UNKNOWN or not advice.assumed:
        return
    values: dict[str, list[str]] = {}
    for entry in advice.assumed:
        if entry.value not in NOTHING_SPECIAL and entry.field not in BY_ARITHMETIC:
            values.setdefault(entry.why, []).append(f"{entry.field.partition('.')[2] or entry.field} {entry.value}")
    words = [f"{', '.join(names)} ({why})" for why, names in values.items()]
    if words:
        yield Line(label="assumed", text="; ".join(words), weight=Weight.NEVER, topic="values assumed")


def problems(advice: Advice) -> Iterator[Line]:
    """Yield the line of every mistake that the checks found, and of every rule that the script breaks."""
    reported_text = " ".join((*advice.why_unknown, *(entry.advice for entry in advice.waste)))
    repaired_rules = [entry.what.partition(": ")[0] for entry in advice.waste if entry.kind is WasteKind.BATCH]
    locations: set[tuple[str, int]] = set()
    for problem in (*(entry.problem for entry in advice.preflight), *advice.problems):
        is_reported = problem.what in reported_text
        # the rule's own hint was not predicted, the repair of the finding was
        is_repaired = is_reported and any(problem.what.startswith(what) for what in repaired_rules)
        # two rules that one line breaks: a problem that was reported above is not repeated
        is_again = is_repaired or (is_reported and (problem.file, problem.line) in locations)
        locations.add((problem.file, problem.line))
        hint = f"; {problem.hint}" if problem.hint and not is_repaired else ""
        yield Line(
            label="problem",
            text=f"{_location(problem)}{problem.what}{hint}",
            brief=_brief_problem(
                problem, is_reported=is_reported, is_named=len(_collect_files(advice) | {problem.file}) > 1
            ),
            weight=Weight.NEVER if is_again else Weight.PROBLEM,
            topic="problem",
        )


def _location(problem: Problem) -> str:
    """Return the location of a problem with a separator; empty where it is unknown."""
    if not problem.file:
        return f"line {problem.line}: " if problem.line else ""
    return f"{problem.file}:{problem.line}: " if problem.line else f"{problem.file}: "


def _brief_problem(problem: Problem, *, is_reported: bool, is_named: bool) -> str:
    """Return a problem in one row: location and remedy; the problem itself only where no other row names it."""
    line = f"line {problem.line}: " if problem.line else ""
    if line and is_named and problem.file:
        line = f"{_base_name(problem.file)[-MAX_PATH:]}:{problem.line}: "
    hint = f"; {problem.hint}" if problem.hint else ""
    room = MAX_PROBLEM - len(line) - len(hint)
    if problem.hint and (is_reported or room < min(len(problem.what), MIN_LEFT)):
        return f"{line}{cut(problem.hint, MAX_PROBLEM - len(line))}"
    return f"{line}{cut(problem.what, room)}{hint}"


def render_network(advice: Advice) -> str | None:
    """Return the placement of the job and its effect on traffic; ``None`` where there is nothing to report."""
    placed = advice.placement
    if placed.placement is None:
        return placed.why_not or None
    nodes = len(placed.placement.nodes)
    traffic, default = placed.placement.traffic, placed.placement.default_traffic
    if nodes == 1 or traffic.inter_node_bytes == 0:
        return "; ".join(filter(None, ("all traffic stays inside one node", _free_text(placed))))
    cabled = f", as cabled in {placed.fabric_from.rpartition('/')[2]}" if placed.fabric_from else ""
    rails = f"{placed.rails} rail{'' if placed.rails == 1 else 's'}"
    words = (
        _nodes_text(placed, nodes),
        "" if placed.is_free else _free_text(placed),
        f"{format_share(traffic.rail_local_fraction)} of the traffic between nodes stays on its rail "
        f"({format_share(default.rail_local_fraction)} in Slurm's default order), "
        f"{format_share(traffic.leaf_local_fraction)} on its leaf ({rails}{cabled})",
    )
    return "; ".join(filter(None, words))


def _nodes_text(placed: PlacementAdvice, nodes: int) -> str:
    """Return how compact the nodes are, whether they are free now, and the Slurm options that request them."""
    flags_text = f": ask for {' '.join(placed.slurm_flags)}" if placed.slurm_flags else ""
    whose = f"{nodes} of {placed.free_nodes} free nodes" if placed.is_free else f"{nodes} nodes"
    groups = "one leaf group" if placed.leaf_groups == 1 else f"{placed.leaf_groups} leaf groups"
    fit = f"fit under {groups}" if placed.leaf_groups == 1 else f"need {groups}"
    if placed.is_free and placed.leaf_groups > 1:
        fit = f"lie in {groups}{_slower_text(placed)}"
    return f"{whose} {fit}{_age_text(placed)}{flags_text}"


def _slower_text(placed: PlacementAdvice) -> str:
    """Return how much longer a step takes than on the most compact nodes of the whole fabric."""
    sharing = placed.sharing
    if sharing is None or not sharing.compact_step_s:
        return ""
    longer = sharing.interference.alone_s / sharing.compact_step_s - 1.0
    if longer < NEGLIGIBLE:
        return ", no slower than the most compact ones"
    waiting = " (--switches=1 waits for those)" if placed.live and placed.live.topology in (None, "tree") else ""
    return f", {longer:.0%} slower than the most compact ones{waiting}"


def _free_text(placed: PlacementAdvice) -> str:
    """Return how many of the nodes that the job needs are free, or why that is unknown."""
    if placed.live is None:
        return ""
    if placed.free_nodes is None:
        return f"free nodes not known: {placed.live_why_not}"
    if placed.is_free:
        return ""
    if placed.live_why_not:
        return placed.live_why_not
    age = _age_text(placed)
    if placed.free_nodes >= placed.asked_nodes:
        return f"free now{age}" if placed.asked_nodes == 1 else f"{placed.free_nodes} nodes are free now{age}"
    are = "node is" if placed.asked_nodes == 1 else "nodes are"
    return f"{placed.free_nodes} of {placed.asked_nodes} {are} free now{age}"


def _age_text(placed: PlacementAdvice) -> str:
    """Return how old the state is, where it is not recent."""
    live = placed.live
    return f" (as of {live.age_s / 60:.0f} min ago)" if live is not None and live.age_s >= OLD_S else ""


def render_sharing(advice: Advice, *, even_if_harmless: bool = False) -> str | None:
    """Return who shares the job's links and what that costs both; ``None`` where it costs neither anything.

    Parameters
    ----------
    even_if_harmless
        Also name the jobs that share links without any cost.
    """
    sharing = advice.placement.sharing
    if sharing is None:
        return None
    low, high = sharing.slowdowns
    met = sharing.interference.neighbours
    theirs = max((neighbour.slowdown_of_job for neighbour in met if neighbour.load.has_steps), default=0.0)
    if max(high, theirs) < NEGLIGIBLE and not (met and even_if_harmless):
        return None
    if not met:
        better = _better_nodes_text(advice, sharing)
        return f"no link with anybody on these nodes; on others up to {high:.0%} slower{better}"
    more = f" and {len(met) - 1} more" if len(met) > 1 else ""
    them = f", {'they' if more else 'it'} up to {theirs:.0%}" if theirs >= NEGLIGIBLE else ""
    return (
        f"{_traffic_name(met[0])}{more} on {_link_name(met[0], sharing)}: "
        f"{_effect_text(low, high)}{them}{_better_nodes_text(advice, sharing)}"
    )


def _effect_text(low: float, high: float) -> str:
    """Return how much slower the job will be, on these nodes and on the worst that Slurm may allocate."""
    if high < NEGLIGIBLE:
        return "no slower"
    if f"{low:.0%}" == f"{high:.0%}":
        return f"{high:.0%} slower"
    return f"up to {high:.0%} slower" if low < NEGLIGIBLE else f"{low:.0%} to {high:.0%} slower"


def _better_nodes_text(advice: Advice, sharing: Sharing) -> str:
    """Return the nodes to request, where others are clearly slower."""
    asked = [flag for flag in advice.placement.slurm_flags if flag.startswith("--nodelist=")]
    worst = sharing.choice.worst
    if not asked or not worst or worst[0].step_s <= CLEAR_GAIN * sharing.choice.best[0].step_s:
        return ""
    return f" → {asked[0]}"


def _traffic_name(neighbour: Neighbour) -> str:
    """Return the name of a neighbour's traffic."""
    name = neighbour.load.name
    match neighbour.load.kind:
        case LoadKind.STORAGE:
            return "storage traffic" if name == "storage" else f"storage traffic of job {name}"
        case LoadKind.BACKGROUND:
            return "traffic that no job explains"
        case _:
            return f"traffic of job {name}"


def _link_name(one: Neighbour, sharing: Sharing) -> str:
    """Return the name of the link with the highest common load: a leaf's uplinks, a node's HCA, or two switches."""
    fabric_links = sharing.fabric_links
    ends = fabric_links.ends(one.busiest)
    names = LinkNames(sharing.fabric, fabric_links).link(one.busiest)["names"]
    if fabric_links.is_hca(one.busiest):
        return f"the HCA {names[1] if ends[0] in fabric_links.rails.leaves else names[0]}"
    for guid, name in zip(ends, names, strict=True):
        if guid in fabric_links.rails.leaves:
            return f"{name}'s uplinks"
    return f"the cables between {names[0]} and {names[1]}"
