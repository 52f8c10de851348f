"""Renders a job's headline, and the values that were read, the assumptions and the problems in its script."""

from __future__ import annotations

from collections.abc import Iterator

from opsk.text import format_count
from opsk.workload.advice_record import Verdict
from opsk.workload.workload import Evidence, Problem
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.text.line import LABEL_WIDTH, MAX_WIDTH, MIN_LEFT, Line, Weight, continuation, cut
from opsk_jobcheck.advice.waste import WasteKind
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import find_unknown_reason

MAX_TEXT = 60
MAX_PATH = 40
MAX_PROBLEM = 160
"""A problem may take a row and a half, so that its remedy is shown."""
NOTHING_SPECIAL = (0, 1, False, "none")
"""Assumed values that mean "the script does not use this": they are in the JSON, not on the terminal."""
BY_ARITHMETIC = ("model.head_dim",)
"""Assumed values that follow from others by the usual definition: they are in the JSON only as well."""
_FULL_BASE_BITS = 16
_MODEL_SHOWN = ("model.layers", "model.hidden", "model.seq")
EVIDENCE_SHOWN = (*_MODEL_SHOWN, "plan.tp", "plan.pp", "plan.micro_batch", "plan.global_batch")


def headline(advice: Advice) -> Line:
    """Return the headline of the job: model, GPUs, plan."""
    model, plan = advice.workload.model, advice.workload.plan
    complete_plan = advice.completion.plan
    parts = [model.name or advice.workload.job_name or advice.workload.framework or "training job"]
    gpus = plan.gpus or (complete_plan.gpus if complete_plan else None)
    if gpus:
        parts.append(f"{gpus} × {_gpu_name(advice)}" + (f" ({format_count(plan.nodes, 'node')})" if plan.nodes else ""))
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
    if complete_plan and complete_plan.lora_rank:
        base = f", {complete_plan.base_bits}-bit base" if complete_plan.base_bits < _FULL_BASE_BITS else ""
        parts.append(f"LoRA rank {complete_plan.lora_rank}{base}")
    return Line(label="", text=" · ".join(parts), brief=" · ".join(parts), weight=Weight.HEADLINE)


def _gpu_name(advice: Advice) -> str:
    """Return the GPU's display name; the job's own name where opsk does not know the GPU."""
    if not advice.is_gpu_known or advice.cluster is None:
        return (advice.workload.gpu or "GPU")[:MAX_TEXT]
    return advice.cluster.node.gpu.name.split("-")[0].upper()


def unknown(advice: Advice) -> Iterator[Line]:
    """Yield the lines on what is unknown, why, and how to state it."""
    reasons = advice.why_unknown or ("the script does not say enough",)
    for index, reason in enumerate(reasons):
        start = "" if index else "? cannot tell: "
        yield Line(
            label="" if index else "verdict",
            text=start + reason,
            brief=_brief_reason(start, reason),
            weight=Weight.SPEED if index else Weight.MEMORY,
            topic="reason",
        )
    if advice.completion.missing and not find_unknown_reason(advice.workload.options):
        names = sorted(advice.completion.missing, key=lambda name: name.startswith("plan."))
        words = " ".join(f"{name.partition('.')[2]}=…" for name in names)
        text = f"→ say it in the script: #OPSK {words}"
        yield continuation(text, Weight.STATEMENT, brief=text)


def _brief_reason(start: str, reason: str) -> str:
    """Return a reason in one row: paths are shortened, and the reason comes before its subject."""
    room = MAX_WIDTH - LABEL_WIDTH - len(start)
    if len(reason) <= room:
        return ""
    short = " ".join(_shorten_path(word) for word in reason.split(" "))
    names, colon, why = short.partition(": ")
    if len(short) <= room or not colon:
        return start + cut(short, room)
    row = f"{why} ({names})"
    return start + (row if len(row) <= room else cut(why, room))


def _shorten_path(word: str) -> str:
    """Return a long path shortened to its last two parts."""
    parts = word.rsplit("/", 2)
    return f"…/{parts[-2]}/{parts[-1]}" if len(word) > MAX_PATH and len(parts) > 2 else word


def read(advice: Advice) -> Iterator[Line]:
    """Yield the evidence: the values that were read with their lines, and their file where there are several."""
    found: dict[str, Evidence] = {}
    for evidence in advice.workload.evidence:
        if evidence.field in EVIDENCE_SHOWN and evidence.line:
            found[evidence.field] = evidence
    groups: dict[str, list[str]] = {}
    for name in EVIDENCE_SHOWN:
        if name in found:
            evidence_item = found[name]
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


def assumed(advice: Advice) -> Iterator[Line]:
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
    """Yield the line of every rule that the script breaks."""
    reported_text = " ".join((*advice.why_unknown, *(entry.advice for entry in advice.waste)))
    repaired_rules = [entry.what.partition(": ")[0] for entry in advice.waste if entry.kind is WasteKind.BATCH]
    locations: set[tuple[str, int]] = set()
    for problem in advice.problems:
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
