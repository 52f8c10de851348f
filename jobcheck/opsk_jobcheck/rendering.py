"""How does advice read on a terminal? Plain lines, harmless whatever the script contained."""

from __future__ import annotations

import textwrap

from opsk.cli.document import harmless
from opsk.costmodel.table import PredictionTable
from opsk.units import as_gib, format_duration, format_share
from opsk.workload.advice_record import Verdict
from opsk.workload.workload import Evidence
from opsk_jobcheck.advice import Advice
from opsk_jobcheck.suggestions import MIN_GAIN, Suggestion

LABEL_WIDTH = 9
MAX_WIDTH = 100
"""Lines are broken here: with sbatch's prefix they fit a terminal of 114 columns."""
MAX_TEXT = 60
MEMORY_TERMS_SHOWN = 4
MARKS = {Verdict.FITS: "✓", Verdict.TIGHT: "!", Verdict.OOM: "✗", Verdict.UNKNOWN: "?"}
NOTHING_SPECIAL = (0, 1, False, "none")
"""Assumed values that mean "the script does not use this": they are in the JSON, not on the terminal."""
BY_ARITHMETIC = ("model.head_dim",)
"""Assumed values that follow from others by the usual definition: they are in the JSON alone as well."""
ENDINGS = {
    Verdict.FITS: "fits",
    Verdict.TIGHT: "tight, may run out",
    Verdict.OOM: "will run out",
}


def lines(advice: Advice) -> tuple[str, ...]:
    """Return the whole advice, a line each, without prefix or colour."""
    if advice.verdict is Verdict.UNKNOWN:
        body = [_headline(advice), *_unknown(advice)]
    else:
        body = [_headline(advice), *_memory(advice), *_speed(advice), *_network(advice)]
    told = (*body, *_read(advice), *_assumed(advice), *_problems(advice))
    return tuple(piece for line in told if line for piece in _wrapped(harmless(line)))


def short_lines(advice: Advice) -> tuple[str, ...]:
    """Return the advice in two lines, for a submission whose user sees nothing else."""
    if advice.verdict is Verdict.UNKNOWN:
        return tuple(harmless(line) for line in [_headline(advice), *_unknown(advice)][:2])
    return tuple(harmless(line) for line in (_headline(advice), _memory(advice)[0]))


def _headline(advice: Advice) -> str:
    """Name the job: model, GPUs, plan."""
    model, plan = advice.workload.model, advice.workload.plan
    complete_plan = advice.completion.plan
    parts = [model.name or advice.workload.job_name or advice.workload.framework or "training job"]
    gpus = plan.gpus or (complete_plan.gpus if complete_plan else None)
    if gpus:
        kind = _gpu(advice)
        parts.append(f"{gpus} × {kind}" + (f" ({_count(plan.nodes, 'node')})" if plan.nodes else ""))
    if complete_plan:
        axes = {"TP": "tp", "PP": "pp", "VPP": "vpp", "CP": "cp", "EP": "ep", "DP": "dp"}
        sizes = {name: getattr(complete_plan, field) for name, field in axes.items()}
        parts.append(
            " ".join(f"{name}{size}" for name, size in sizes.items() if size > 1 or name in ("TP", "PP", "DP"))
        )
        parts.append(f"mbs {complete_plan.micro_batch}")
    if model.seq:
        parts.append(f"seq {model.seq}")
    if complete_plan:
        parts.append(complete_plan.precision.value)
    return " · ".join(parts)


def _gpu(advice: Advice) -> str:
    """Name the GPU as people do; as the job does where opsk does not know it."""
    if not advice.is_gpu_known or advice.cluster is None:
        return (advice.workload.gpu or "GPU")[:MAX_TEXT]
    return advice.cluster.node.gpu.name.split("-")[0].upper()


def _memory(advice: Advice) -> list[str]:
    """Say whether it fits, which terms decide, and what to do when it does not."""
    prediction = _prediction(advice)
    memory = prediction.memory
    total, low, high = (
        float(x[0]) for x in (memory.total_bytes.expected, memory.total_bytes.low, memory.total_bytes.high)
    )
    terms = sorted(((float(column[0]), name) for name, column in memory.components.items()), reverse=True)
    shown = ", ".join(f"{name} {as_gib(size):.1f}" for size, name in terms[:MEMORY_TERMS_SHOWN])
    other = as_gib(sum(size for size, _ in terms[MEMORY_TERMS_SHOWN:]))
    text = (
        f"{MARKS[advice.verdict]} {as_gib(total):.1f} GiB ({as_gib(low):.1f}–{as_gib(high):.1f}) of "
        f"{as_gib(float(memory.capacity_bytes)):.1f} GiB per GPU: {ENDINGS[advice.verdict]}"
        f"{_chance(advice)}"
        f" — {shown}, other {other:.1f}"
    )
    return [_labelled("memory", text), *(_way_out(entry) for entry in advice.suggestions), *_no_way_out(advice)]


def _chance(advice: Advice) -> str:
    """Say how likely it fits; where that is in doubt, also what of the total has to.

    The range may lie above the capacity beside a fair chance: it holds cached blocks, which are given back first.
    """
    memory = _prediction(advice).memory
    if advice.verdict is Verdict.OOM:
        return ""
    chance = f"chance {format_share(float(memory.fit_probability[0]))}"
    if advice.verdict is not Verdict.TIGHT:
        return f" ({chance})"
    needed = float(memory.needed_bytes.expected[0])
    return f" ({chance}, {as_gib(needed):.1f} GiB without cached blocks)"


def _way_out(suggestion: Suggestion) -> str:
    """Name one change, with what it leads to."""
    words = " ".join(suggestion.flags) or suggestion.what
    change = suggestion.step_ratio - 1
    pace = "same speed" if abs(change) < 0.005 else f"{abs(change):.0%} {'slower' if change > 0 else 'faster'}"
    return _labelled("", f"→ {words}: {as_gib(suggestion.memory_bytes):.1f} GiB, {pace}")


def _no_way_out(advice: Advice) -> list[str]:
    """Say so when no plan on these GPUs fits."""
    if advice.verdict is Verdict.OOM and advice.is_searched and not advice.suggestions:
        return [
            _labelled("", "→ no plan on these GPUs is predicted to fit: ask for more GPUs or a smaller micro batch")
        ]
    return []


def _speed(advice: Advice) -> list[str]:
    """Say how fast it will go, where the time goes, and what would be faster."""
    time = _prediction(advice).time
    tflops = time.tflops_per_gpu
    text = (
        f"{tflops.expected[0]:.0f} TFLOP/s/GPU ({tflops.low[0]:.0f}–{tflops.high[0]:.0f}), "
        f"MFU {time.mfu.expected[0]:.0%}, {format_duration(float(time.step_s.expected[0]))} a step"
    )
    shares = sorted(((float(column[0]), name) for name, column in time.components.items()), reverse=True)
    step_s = float(time.step_s.expected[0])
    shown = ", ".join(f"{name} {seconds / step_s:.0%}" for seconds, name in shares if seconds / step_s >= 0.01)
    return [_labelled("speed", f"{text} — {shown}"), *_best(advice)]


def _best(advice: Advice) -> list[str]:
    """Name the best plan on the same GPUs, when there is a clearly better one."""
    if advice.best is None:
        return []
    best = advice.best.suggestion
    considered = f"{advice.best.considered:,} plans"
    if best.step_ratio > 1 - MIN_GAIN:
        return (
            [_labelled("", f"none of {considered} on these GPUs is clearly faster")] if not advice.suggestions else []
        )
    if any(best.plan == suggestion.plan for suggestion in advice.suggestions):
        return []
    return [
        _labelled(
            "",
            f"best of {considered}: {best.what}: {best.tflops_per_gpu:.0f} TFLOP/s/GPU, "
            f"{as_gib(best.memory_bytes):.1f} GiB, {1 - best.step_ratio:.0%} less time",
        )
    ]


def _network(advice: Advice) -> list[str]:
    """Say where the ranks should go and what that does to the traffic."""
    placed = advice.placement
    if placed.placement is None:
        return [_labelled("network", placed.why_not)] if placed.why_not else []
    nodes = len(placed.placement.nodes)
    traffic, default = placed.placement.traffic, placed.placement.default_traffic
    if nodes == 1 or traffic.inter_node_bytes == 0:
        return [_labelled("network", "all traffic stays inside one node")]
    cabled = f", as cabled in {placed.fabric_from.rpartition('/')[2]}" if placed.fabric_from else ""
    where = f"{nodes} nodes need {placed.leaf_groups} leaf groups"
    if placed.leaf_groups == 1:
        asking = f": ask for {' '.join(placed.slurm_flags)}" if placed.slurm_flags else ""
        where = f"{nodes} nodes fit under one leaf group{asking}"
    text = (
        f"{where}; {format_share(traffic.rail_local_fraction)} of the traffic between nodes stays on its rail "
        f"({format_share(default.rail_local_fraction)} in Slurm's default order), "
        f"{format_share(traffic.leaf_local_fraction)} on its leaf ({_count(placed.rails, 'rail')}{cabled})"
    )
    return [_labelled("network", text)]


def _unknown(advice: Advice) -> list[str]:
    """Say what cannot be told, and why."""
    reasons = advice.why_unknown or ("the script does not say enough",)
    told = [_labelled("verdict", f"? cannot tell: {reasons[0]}"), *(_labelled("", reason) for reason in reasons[1:])]
    if advice.completion.missing:
        words = " ".join(f"{name.partition('.')[2]}=…" for name in _ordered(advice.completion.missing))
        told.append(_labelled("", f"→ to be told all the same, say it in a line of the script: #OPSK {words}"))
    return told


def _ordered(names: tuple[str, ...]) -> list[str]:
    """Return field names, the model's before the plan's."""
    return sorted(names, key=lambda name: name.startswith("plan."))


def _read(advice: Advice) -> list[str]:
    """Show the evidence: what was read on which line."""
    wanted = (
        "model.layers",
        "model.hidden",
        "model.seq",
        "plan.tp",
        "plan.pp",
        "plan.micro_batch",
        "plan.global_batch",
    )
    found: dict[str, Evidence] = {}
    for evidence in advice.workload.evidence:
        if evidence.field in wanted and evidence.line:
            found[evidence.field] = evidence
    words = [
        f"{name.partition('.')[2]} {found[name].value} line {found[name].line}" for name in wanted if name in found
    ]
    return [_labelled("read", ", ".join(words))] if words else []


def _assumed(advice: Advice) -> list[str]:
    """Show what was assumed and why, short."""
    if advice.verdict is Verdict.UNKNOWN or not advice.assumed:
        return []
    words = [
        f"{entry.field.partition('.')[2] or entry.field} {entry.value} ({entry.why})"
        for entry in advice.assumed
        if entry.value not in NOTHING_SPECIAL and entry.field not in BY_ARITHMETIC
    ]
    return [_labelled("assumed", "; ".join(words))] if words else []


def _problems(advice: Advice) -> list[str]:
    """Name every rule that the script breaks."""
    out = []
    for problem in advice.problems:
        place = ":".join(str(part) for part in (problem.file, problem.line) if part)
        where = f"{place}: " if place else ""
        hint = f"; {problem.hint}" if problem.hint else ""
        out.append(_labelled("problem", f"{where}{problem.what}{hint}"))
    return out


def _wrapped(line: str) -> list[str]:
    """Break a long line at blanks, its continuation under its text; a word that is longer stays whole to be pasted."""
    if len(line) <= MAX_WIDTH:
        return [line]
    indent = " " * LABEL_WIDTH
    pieces = textwrap.wrap(
        line[LABEL_WIDTH:],
        MAX_WIDTH - LABEL_WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
    hang = "  " if pieces and pieces[0].startswith("→") else ""
    return [line[:LABEL_WIDTH] + pieces[0], *(indent + hang + piece for piece in pieces[1:])]


def _labelled(label: str, text: str) -> str:
    """Put a label of fixed width before a text."""
    return f"{label:<{LABEL_WIDTH}}{text}"


def _count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _prediction(advice: Advice) -> PredictionTable:
    """Return the prediction of an advice that has one."""
    if advice.prediction is None:
        raise ValueError("advice without a prediction has no memory and no speed to show")
    return advice.prediction
