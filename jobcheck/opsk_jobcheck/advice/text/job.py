"""How is a job named in one line, and what was read, assumed and found wrong in its script?"""

from __future__ import annotations

from collections.abc import Iterator

from opsk.text import format_count
from opsk.workload.advice_record import Verdict
from opsk.workload.workload import Evidence, Problem
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.text.line import LABEL_WIDTH, LEAST_LEFT, MAX_WIDTH, Line, Weight, continued, cut
from opsk_jobcheck.advice.waste import WasteKind
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import why_unknown

MAX_TEXT = 60
MAX_PATH = 40
MAX_PROBLEM = 160
"""A problem may take a row and a half, for the sake of what to do about it."""
NOTHING_SPECIAL = (0, 1, False, "none")
"""Assumed values that mean "the script does not use this": they are in the JSON, not on the terminal."""
BY_ARITHMETIC = ("model.head_dim",)
"""Assumed values that follow from others by the usual definition: they are in the JSON alone as well."""
_FULL_BASE_BITS = 16
_MODEL_SHOWN = ("model.layers", "model.hidden", "model.seq")
EVIDENCE_SHOWN = (*_MODEL_SHOWN, "plan.tp", "plan.pp", "plan.micro_batch", "plan.global_batch")


def headline(advice: Advice) -> Line:
    """Name the job: model, GPUs, plan."""
    model, plan = advice.workload.model, advice.workload.plan
    complete_plan = advice.completion.plan
    parts = [model.name or advice.workload.job_name or advice.workload.framework or "training job"]
    gpus = plan.gpus or (complete_plan.gpus if complete_plan else None)
    if gpus:
        parts.append(f"{gpus} × {_gpu(advice)}" + (f" ({format_count(plan.nodes, 'node')})" if plan.nodes else ""))
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


def _gpu(advice: Advice) -> str:
    """Name the GPU as people do; as the job does where opsk does not know it."""
    if not advice.is_gpu_known or advice.cluster is None:
        return (advice.workload.gpu or "GPU")[:MAX_TEXT]
    return advice.cluster.node.gpu.name.split("-")[0].upper()


def unknown(advice: Advice) -> Iterator[Line]:
    """Say what cannot be told, why, and how to be told all the same."""
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
    if advice.completion.missing and not why_unknown(advice.workload.options):
        names = sorted(advice.completion.missing, key=lambda name: name.startswith("plan."))
        words = " ".join(f"{name.partition('.')[2]}=…" for name in names)
        text = f"→ say it in the script: #OPSK {words}"
        yield continued(text, Weight.STATEMENT, brief=text)


def _brief_reason(start: str, reason: str) -> str:
    """Return a reason in one row: paths by their ends, and why it is so before what it is about."""
    room = MAX_WIDTH - LABEL_WIDTH - len(start)
    if len(reason) <= room:
        return ""
    short = " ".join(_end_of(word) for word in reason.split(" "))
    names, colon, why = short.partition(": ")
    if len(short) <= room or not colon:
        return start + cut(short, room)
    row = f"{why} ({names})"
    return start + (row if len(row) <= room else cut(why, room))


def _end_of(word: str) -> str:
    """Return a long path by its last two parts."""
    parts = word.rsplit("/", 2)
    return f"…/{parts[-2]}/{parts[-1]}" if len(word) > MAX_PATH and len(parts) > 2 else word


def read(advice: Advice) -> Iterator[Line]:
    """Show the evidence: what was read on which line, and of which file where that is another one."""
    found: dict[str, Evidence] = {}
    for evidence in advice.workload.evidence:
        if evidence.field in EVIDENCE_SHOWN and evidence.line:
            found[evidence.field] = evidence
    groups: dict[str, list[str]] = {}
    for name in EVIDENCE_SHOWN:
        if name in found:
            one = found[name]
            groups.setdefault(one.file, []).append(f"{name.partition('.')[2]} {one.value} line {one.line}")
    if not groups:
        return
    is_one = len(_files(advice)) == 1
    words = [f"{'' if is_one else _name_of(file) + ': '}{', '.join(said)}" for file, said in groups.items()]
    yield Line(label="read", text="; ".join(words), weight=Weight.NEVER, topic="values read")


def _files(advice: Advice) -> set[str]:
    """Return the files that values were read in: of one alone the name need not be said."""
    return {entry.file for entry in advice.workload.evidence}


def _name_of(file: str) -> str:
    """Return a file's name without its folders."""
    return file.rpartition("/")[2] or "the script"


def assumed(advice: Advice) -> Iterator[Line]:
    """Show what was assumed and why, each reason once."""
    if advice.verdict is Verdict.UNKNOWN or not advice.assumed:
        return
    values: dict[str, list[str]] = {}
    for entry in advice.assumed:
        if entry.value not in NOTHING_SPECIAL and entry.field not in BY_ARITHMETIC:
            values.setdefault(entry.why, []).append(f"{entry.field.partition('.')[2] or entry.field} {entry.value}")
    words = [f"{', '.join(told)} ({why})" for why, told in values.items()]
    if words:
        yield Line(label="assumed", text="; ".join(words), weight=Weight.NEVER, topic="values assumed")


def problems(advice: Advice) -> Iterator[Line]:
    """Name every rule that the script breaks."""
    told = " ".join((*advice.why_unknown, *(entry.advice for entry in advice.waste)))
    mended = [entry.what.partition(": ")[0] for entry in advice.waste if entry.kind is WasteKind.BATCH]
    places: set[tuple[str, int]] = set()
    for problem in advice.problems:
        is_told = problem.what in told
        # the rule's own hint was not predicted, what the finding says was
        is_mended = is_told and any(problem.what.startswith(what) for what in mended)
        # two rules that one line breaks: what was told above need not be told again
        is_again = is_mended or (is_told and (problem.file, problem.line) in places)
        places.add((problem.file, problem.line))
        hint = f"; {problem.hint}" if problem.hint and not is_mended else ""
        yield Line(
            label="problem",
            text=f"{_place_of(problem)}{problem.what}{hint}",
            brief=_brief_problem(problem, is_told=is_told, is_named=len(_files(advice) | {problem.file}) > 1),
            weight=Weight.NEVER if is_again else Weight.PROBLEM,
            topic="problem",
        )


def _place_of(problem: Problem) -> str:
    """Return where a problem is, with what parts that from what it is; nothing where nobody knows."""
    if not problem.file:
        return f"line {problem.line}: " if problem.line else ""
    return f"{problem.file}:{problem.line}: " if problem.line else f"{problem.file}: "


def _brief_problem(problem: Problem, *, is_told: bool, is_named: bool) -> str:
    """Return a problem in one row: where, and what to do; what it is only where no other row says it."""
    line = f"line {problem.line}: " if problem.line else ""
    if line and is_named and problem.file:
        line = f"{_name_of(problem.file)[-MAX_PATH:]}:{problem.line}: "
    hint = f"; {problem.hint}" if problem.hint else ""
    room = MAX_PROBLEM - len(line) - len(hint)
    if problem.hint and (is_told or room < min(len(problem.what), LEAST_LEFT)):
        return f"{line}{cut(problem.hint, MAX_PROBLEM - len(line))}"
    return f"{line}{cut(problem.what, room)}{hint}"
