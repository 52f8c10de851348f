"""Reads the settings of a launch script of OpenRLHF: its trainers on preferences, and PPO with Ray and vLLM.

``python -m openrlhf.cli.train_ppo_ray`` and its relatives, behind ``ray job submit``, DeepSpeed's launcher or torchrun.
Names and defaults: `opsk.frameworks.settings.openrlhf`. Models share GPUs where a flag says so, and have their own
otherwise (``openrlhf/cli/train_ppo_ray.py``, ``train``).
"""

from __future__ import annotations

import re

from opsk.frameworks.settings import openrlhf as names
from opsk.workload import roles
from opsk.workload.public_models.lookup import public_model
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import name_model
from opsk_jobcheck.scripts.frameworks.huggingface.role_settings import RoleSettings, find_opaque
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import ADAPTERS, BASE_BITS, DROPOUT, RANK, TARGETS
from opsk_jobcheck.scripts.launchers.programs import SURE, find_program, is_open, parse_program_flags
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.findings import Findings, state_data_parallel_only, state_number
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

FRAMEWORK = "openrlhf"
_PROGRAM = re.compile(r"(?:openrlhf\.cli\.|.*openrlhf/cli/)train_(?P<kind>sft|dpo|rm|kto|ppo_ray|kd|prm)(?:\.py)?")
_REINFORCED = "ppo_ray"
_STAGES = ("none", "zero1", "zero2", "zero3")
_SFT, _USUAL_LENGTHS = "sft", {"sft": 2048}
_USUAL_LENGTH = 512


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with OpenRLHF."""
    kind = _find_kind(invocation)
    if not kind:
        return None
    weight = 4 * SURE + len(get_arguments(invocation).flags)
    return Match(framework=FRAMEWORK, weight=weight, invocation=invocation, arguments=get_arguments(invocation))


def read_openrlhf(match: Match, reading: Reading) -> None:
    """State the trained model's settings, and what the other roles hold."""
    program, findings, kind = find_program(match.invocation), reading.findings, _find_kind(match.invocation)
    if program is None:
        return
    settings = RoleSettings(parse_program_flags(program).get, findings, opaque=find_opaque(program))
    _read_trained(settings, match.invocation, reading)
    if kind == _REINFORCED:
        _read_reinforced(settings, findings, match.invocation)
    elif kind in ("kd", "prm"):
        settings.doubts.append((f"train_{kind}", match.invocation.line))
    else:
        _read_preferences(settings, findings, kind, match.invocation.line)
    settings.report_unknown()


OPENRLHF_READER = Reader(frameworks=(FRAMEWORK,), recognise=recognise, read=read_openrlhf)


def _find_kind(invocation: Invocation) -> str:
    """Return which of its programs a command starts, empty for none."""
    program = find_program(invocation)
    match = _PROGRAM.fullmatch(program.name) if program is not None and len(program.name) < 512 else None
    return match["kind"] if match else ""


def _read_trained(settings: RoleSettings, invocation: Invocation, reading: Reading) -> None:
    """State model, batch, sharding, formats and adapters of the trained model."""
    findings, line = reading.findings, invocation.line
    model = settings.entry(*names.MODEL)
    if model is not None and not model.why and model.value:
        name_model(model, invocation, reading)
    elif model is not None:
        for field in ("model.layers", "model.hidden", "model.heads"):
            findings.mark_unknown(field, model.why or "the command names no model", model.line)
    stage = settings.number(*names.STAGE, otherwise=names.USUAL_STAGE)
    if stage is not None and stage < len(_STAGES):
        place = settings.entry(*names.STAGE)
        text = place.text if place else f"OpenRLHF takes stage {stage} unless told otherwise"
        findings.state("plan.sharding", _STAGES[stage], place.line if place else line, text)
    state_number(findings, "plan.micro_batch", settings.entry(*names.MICRO))
    is_recomputed = settings.is_on(*names.RECOMPUTE)
    place = settings.entry(*names.RECOMPUTE)
    findings.state(
        "plan.recompute",
        "full" if is_recomputed else "none",
        place.line if place else line,
        place.text if place else "nothing is recomputed without --gradient_checkpointing",
    )
    _read_format(settings, findings)
    state_number(findings, "plan.tp", settings.entry(*names.TENSOR))
    state_number(findings, "plan.cp", settings.entry(*names.RING))
    state_data_parallel_only(findings, "OpenRLHF shards by ZeRO", line)
    if settings.is_on(*names.ADAM_OFFLOAD):
        findings.options["optimizer.offload"] = "cpu"
    if settings.is_on(*names.LIGER):
        findings.options["loss.kernel"] = "fused"
    findings.options["deepspeed"] = "true"
    if rank := settings.number(*names.RANK, otherwise=0):
        words = settings.word(*names.TARGETS, otherwise="all-linear") or ""
        is_all = any(word in words for word in ("all", "gate", "up", "down"))
        findings.options |= {ADAPTERS: "lora", RANK: str(rank), TARGETS: "all" if is_all else "attention"}
        findings.options[DROPOUT] = "false" if settings.word(*names.DROPOUT, otherwise="0") in ("0", "0.0") else "true"
        if settings.is_on(*names.FOUR_BITS):
            findings.options[BASE_BITS] = "4"


def _read_format(settings: RoleSettings, findings: Findings) -> None:
    """State the number format: bf16 by flag or by name."""
    entry = settings.entry(*names.FORMAT, *names.BF16)
    if entry is None:
        return
    word = str(entry.value).lower()
    if entry.why:
        findings.mark_unknown("plan.precision", entry.why, entry.line)
    elif word in ("bf16", "fp16", "true", "1"):
        findings.state("plan.precision", "fp16" if word == "fp16" else "bf16", entry.line, entry.text)


def _read_preferences(settings: RoleSettings, findings: Findings, kind: str, line: int) -> None:
    """State lengths, and the reference of a loss on preferences."""
    place = settings.entry(*names.LENGTH)
    usual = _USUAL_LENGTHS.get(kind, _USUAL_LENGTH)
    if place is not None:
        state_number(findings, "model.seq", place)
    elif not settings.opaque:
        findings.state("model.seq", usual, line, f"train_{kind} cuts at {usual} tokens unless told otherwise")
    if kind == _SFT:
        return
    findings.options[roles.METHOD] = kind
    if kind in ("dpo", "rm"):
        findings.options[roles.SEQUENCES] = "2"
    if settings.is_on(*names.PACKING):
        findings.options[roles.PADDING_FREE] = "true"
    if kind == "rm":
        findings.options[roles.SCORES] = "true"
    else:
        _state_frozen(settings, findings, roles.REFERENCE, names.REFERENCE_OFFLOAD)


def _read_reinforced(settings: RoleSettings, findings: Findings, invocation: Invocation) -> None:
    """State what PPO and its relatives hold beside the actor."""
    estimator = settings.word(*names.ESTIMATOR, otherwise=names.NEEDS_CRITIC) or names.NEEDS_CRITIC
    findings.options[roles.METHOD] = "ppo" if estimator == names.NEEDS_CRITIC else estimator[:20]
    _read_length(settings, findings, invocation.line)
    shares_all = settings.is_on(*names.COLOCATE_ALL)
    gpus = _count_gpus(settings, "actor")
    if gpus and gpus != findings.get("plan.gpus"):
        findings.options[roles.ACTOR_GPUS] = str(gpus)
    if gpus and is_open(findings, "plan.gpus"):
        findings.state("plan.gpus", gpus, invocation.line, f"{gpus} GPUs for the actor")
    if settings.is_on(*names.ACTOR_SLEEPS):
        findings.options[roles.ACTOR_RESTS] = findings.options[roles.CRITIC_RESTS] = roles.OPTIMIZER_REST
    if settings.is_on(*names.PACKING):
        findings.options[roles.PADDING_FREE] = "true"
    _read_engine(settings, findings, shares_all=shares_all)
    if settings.word(*names.KL, otherwise="0.01") not in ("0", "0.0"):
        is_near = shares_all or settings.is_on(*names.COLOCATE_REFERENCE)
        _state_frozen(settings, findings, roles.REFERENCE, names.REFERENCE_OFFLOAD, is_near=is_near)
    is_remote = settings.entry(*names.REMOTE_REWARD) is not None
    if not is_remote and _name(settings, findings, names.REWARD_MODEL, roles.REWARD_MODEL):
        _state_frozen(settings, findings, roles.REWARD, names.REWARD_OFFLOAD, is_near=shares_all)
    if estimator == names.NEEDS_CRITIC:
        findings.options[roles.CRITIC] = (roles.WeightPlace.GPU if shares_all else roles.WeightPlace.OTHER_GPUS).value
        if not _name(settings, findings, names.CRITIC_MODEL, roles.CRITIC_MODEL):
            _name(settings, findings, (*names.REWARD_MODEL, *names.MODEL), roles.CRITIC_MODEL)
        findings.options[roles.CRITIC_BATCH] = str(findings.get("plan.micro_batch") or 1)


def _read_length(settings: RoleSettings, findings: Findings, line: int) -> None:
    """State the longest sequence, and the tokens of a micro-batch."""
    place = settings.entry(*names.LENGTH)
    if place is not None:
        state_number(findings, "model.seq", place)
    else:
        prompt = settings.number(*names.PROMPT, otherwise=names.USUAL_LENGTH)
        answer = settings.number(*names.ANSWER, otherwise=names.USUAL_LENGTH)
        if prompt and answer:
            place = settings.entry(*names.ANSWER, *names.PROMPT)
            text = f"prompt {prompt} + answer {answer} tokens"
            findings.state("model.seq", prompt + answer, place.line if place else line, text)
    if settings.is_on(*names.DYNAMIC):
        tokens = settings.number(*names.MAX_TOKENS, otherwise=names.USUAL_TOKENS)
        if tokens:
            findings.options[roles.TOKENS] = str(tokens)
            of_forward = settings.number(*names.ROLLOUT_TOKENS, otherwise=tokens) or tokens
            findings.options[roles.LOG_PROBS] = str(of_forward)
            findings.state("plan.micro_batch", 1, line, f"as many sequences as {tokens} tokens hold")
    elif sequences := settings.number(*names.ROLLOUT_MICRO, otherwise=0):
        findings.options[roles.LOG_PROBS] = str(sequences)


def _read_engine(settings: RoleSettings, findings: Findings, *, shares_all: bool) -> None:
    """State the engines of vLLM, which sleep only where they share the actor's GPUs."""
    if not settings.number(*names.ENGINES, otherwise=0):
        findings.options[roles.ENGINE] = roles.OWN_GENERATION
        return
    findings.options[roles.ENGINE] = "vllm"
    findings.options[roles.ENGINE_PLACE] = (roles.WeightPlace.GPU if shares_all else roles.WeightPlace.OTHER_GPUS).value
    share = settings.word(*names.MEMORY_SHARE, otherwise=names.USUAL_SHARE)
    tp = settings.number(*names.ENGINE_TP, otherwise=1)
    if share is None or roles.parse_share(share) is None or tp is None:
        settings.doubt(names.MEMORY_SHARE[0], "the engine's share of memory or its tensor parallelism is not known")
        return
    findings.options |= {roles.ENGINE_SHARE: share, roles.ENGINE_TP: str(tp)}
    settings.state_text(roles.ENGINE_SHARE, *names.MEMORY_SHARE)
    settings.state_text(roles.ENGINE_TP, *names.ENGINE_TP)
    settings.state_option(roles.ENGINE_EAGER, *names.EAGER)
    findings.options[roles.ENGINE_SLEEPS] = "true" if shares_all and settings.is_on(*names.ENGINE_SLEEPS) else "false"


def _state_frozen(
    settings: RoleSettings, findings: Findings, option: str, offload: tuple[str, ...], *, is_near: bool = True
) -> None:
    """State where a frozen model is."""
    place = roles.WeightPlace.GPU if is_near else roles.WeightPlace.OTHER_GPUS
    findings.options[option] = (roles.WeightPlace.HOST if settings.is_on(*offload) else place).value


def _count_gpus(settings: RoleSettings, role: str) -> int:
    """Return the GPUs of a role, as its flags state them."""
    nodes, per_node = (
        settings.number(f"{role}.{name}", f"{role}_{name}", otherwise=usual)
        for name, usual in ((names.NODES, 1), (names.GPUS, 8))
    )
    return (nodes or 0) * (per_node or 0)


def _name(settings: RoleSettings, findings: Findings, keys: tuple[str, ...], option: str) -> bool:
    """State the first model that one of these flags names; return whether there is one."""
    entry = settings.entry(*keys)
    value = str(entry.value or "").split(",")[0].strip().rstrip("/") if entry is not None and not entry.why else ""
    if value:
        findings.options[option] = (value if public_model(value) is not None else value.rpartition("/")[2])[:120]
    return entry is not None
