"""Reads the settings of a launch script of verl: actor, critic, reference, reward model and rollout engine.

They are overrides of Hydra (``actor_rollout_ref.model.path=...``) after ``python -m verl.trainer.main_ppo`` or a recipe
built on it, whatever starts it (srun, ``ray job submit``). Names and defaults: `opsk.frameworks.settings.verl`. All
models share all GPUs (``ResourcePoolManager`` in verl/single_controller/ray/base.py). On Megatron instead of FSDP
(``strategy=megatron``) all of them are split in the same way, unless a role has sizes of its own: those are not known.
"""

from __future__ import annotations

import re

from opsk.frameworks.settings import verl
from opsk.workload import roles
from opsk.workload.public_models.lookup import public_model
from opsk.workload.settings import ENGINE, MEGATRON_ENGINE
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import name_model
from opsk_jobcheck.scripts.frameworks.huggingface.role_settings import RoleSettings, find_opaque
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import ADAPTERS, BASE_BITS, RANK, TARGETS
from opsk_jobcheck.scripts.launchers.programs import SURE, Program, find_program, is_open, parse_assignments
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    state_data_parallel_only,
    state_derived,
    state_number,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

FRAMEWORK = "verl"
_PROGRAMS = re.compile(
    r"(verl\.trainer\.main_ppo|recipe\.\w+\.main_\w+|verl\.recipe\.\w+\.main_\w+)|main_(ppo|dapo|spin|sppo)\.py"
)
_MIN_NAMES = 3
_SECTIONS = ("actor_rollout_ref.", "critic.", "algorithm.adv_estimator", "reward_model.")
_MAX_TARGETS = 512


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with verl."""
    program = find_program(invocation)
    if program is None:
        return None
    arguments = get_arguments(invocation)
    names = sum(name.startswith(_SECTIONS) for name in arguments.overrides)
    is_named = bool(_PROGRAMS.fullmatch(program.file))
    if names < (1 if is_named else _MIN_NAMES):
        return None
    weight = names + (SURE if is_named else 0)
    return Match(framework=FRAMEWORK, weight=weight, invocation=invocation, arguments=arguments)


def read_verl(match: Match, reading: Reading) -> None:
    """State the actor's settings, and what the other roles hold."""
    program, findings = find_program(match.invocation), reading.findings
    if program is None:
        return
    settings = RoleSettings(parse_assignments(program.words).get, findings, opaque=_find_opaque(program, match))
    findings.options[roles.METHOD] = settings.word(verl.ESTIMATOR, otherwise=verl.NEEDS_CRITIC) or "rl"
    findings.options[ENGINE] = MEGATRON_ENGINE if _is_on_megatron(settings, match.invocation) else "fsdp"
    _read_model(settings, match.invocation, reading)
    _read_sizes(settings, findings, match.invocation)
    _read_engine(settings, findings)
    _read_reference(settings, findings)
    _read_critic(settings, findings)
    _read_reward(settings, findings)
    settings.report_unknown()


VERL_READER = Reader(frameworks=(FRAMEWORK,), recognise=recognise, read=read_verl)


def _find_opaque(program: Program, match: Match) -> str:
    """Return why settings may come from elsewhere: words that are not known, or a configuration of the user's."""
    if why := find_opaque(program):
        return why
    named = match.arguments.flags.get("--config-name")
    if named is not None and named.value.known not in (*verl.DEFAULT_CONFIGS, *verl.MEGATRON_CONFIGS):
        return f"the settings are in {named.value.shown[:60]}, which opsk has not read"
    return ""


def _read_model(settings: RoleSettings, invocation: Invocation, reading: Reading) -> None:
    """State the actor's model, its adapters, and the formats of its weights."""
    findings = reading.findings
    path = settings.entry(f"{verl.MODEL}.{verl.MODEL_PATH}")
    if path is not None and not path.why and path.value:
        name_model(path, invocation, reading)
    elif path is not None and path.why:
        for name in ("model.layers", "model.hidden", "model.heads"):
            findings.mark_unknown(name, path.why, path.line)
    rank = settings.number(f"{verl.MODEL}.{verl.RANK}", otherwise=0)
    is_half = settings.word(f"{verl.ACTOR}.{verl.FORMAT}") in ("bf16", "bfloat16", "fp16", "float16")
    if rank:
        words = (settings.word(f"{verl.MODEL}.{verl.TARGETS}", otherwise="all-linear") or "")[:_MAX_TARGETS]
        has_mlp = any(name in words for name in ("all", "gate", "up", "down", "fc"))
        findings.options |= {ADAPTERS: "lora", RANK: str(rank), TARGETS: "all" if has_mlp else "attention"}
        findings.options[BASE_BITS] = "16" if is_half else "32"
    elif is_half:
        findings.options["weights.dtype"] = "bf16"
    if settings.is_on(f"{verl.ACTOR}.{verl.CPU_OFFLOAD}"):
        findings.options |= {"optimizer.offload": "cpu", "weights.offload": "cpu"}
    if any(settings.is_on(f"{verl.MODEL}.{name}") for name in verl.FUSED_LOSS):
        findings.options["loss.kernel"] = "fused"
    is_megatron = findings.options[ENGINE] == MEGATRON_ENGINE
    if not is_megatron and (recompute := settings.entry(f"{verl.MODEL}.{verl.RECOMPUTE}")) is not None:
        settings.state_switch("plan.recompute", recompute, on="full", off="none")


def _read_sizes(settings: RoleSettings, findings: Findings, invocation: Invocation) -> None:
    """State lengths, micro-batch, GPUs, and how the states are sharded."""
    for name, field in ((verl.NODES, "plan.nodes"), (verl.GPUS_PER_NODE, "plan.gpus_per_node")):
        if is_open(findings, field):
            state_number(findings, field, settings.entry(name))
    nodes, per_node = findings.get("plan.nodes"), findings.get("plan.gpus_per_node")
    if nodes and per_node and is_open(findings, "plan.gpus"):
        state_derived(findings, "plan.gpus", nodes * per_node, f"nodes {nodes} × {per_node} GPUs", "plan.gpus_per_node")
    if _is_on_megatron(settings, invocation):
        _read_megatron(settings, findings, invocation)
    else:
        state_data_parallel_only(findings, "verl shards by FSDP, and splits nothing", invocation.line)
    prompt = settings.number(verl.PROMPT[0], otherwise=verl.PROMPT[1])
    answer = settings.number(verl.ANSWER[0], otherwise=verl.ANSWER[1])
    length = prompt + answer if prompt and answer else 0
    place = settings.place(verl.ANSWER[0], verl.PROMPT[0])
    if length:
        text = f"prompt {prompt} + answer {answer} tokens"
        findings.state("model.seq", length, place.line if place else invocation.line, text)
        findings.options[roles.ENGINE_LENGTH] = str(length)
    split = settings.number(f"{verl.ACTOR}.{verl.SEQUENCE_SPLIT}", otherwise=1) or 1
    if split > 1:
        state_number(findings, "plan.cp", settings.entry(f"{verl.ACTOR}.{verl.SEQUENCE_SPLIT}"))
    shard = settings.number(f"{verl.ACTOR}.{verl.SHARD_GPUS}", otherwise=0)
    gpus = findings.get("plan.gpus")
    if shard and gpus and shard < gpus and gpus % shard == 0:
        findings.options["optimizer.instances"] = str(gpus // shard)
    _read_batch(settings, findings, gpus=gpus, split=split, line=invocation.line)
    rests = _list_rests(settings, verl.ACTOR)
    if rests:
        findings.options[roles.ACTOR_RESTS] = rests
    settings.state_option(roles.PADDING_FREE, f"{verl.MODEL}.{verl.PADDING_FREE}", otherwise=True)
    has_entropy = settings.word(f"{verl.ACTOR}.{verl.ENTROPY}", otherwise="0") not in ("0", "0.0")
    findings.options[roles.LOSS_BYTES] = "medium" if has_entropy else "low"


def _is_on_megatron(settings: RoleSettings, invocation: Invocation) -> bool:
    """Return whether Megatron trains the actor; another engine than that or FSDP is doubted."""
    strategy = settings.word(f"{verl.ACTOR}.{verl.STRATEGY}", otherwise="")
    if strategy and strategy not in (*verl.SHARDED_BY_FSDP, verl.MEGATRON):
        settings.doubt(f"{verl.ACTOR}.{verl.STRATEGY}", f"verl on {strategy[:40]}")
    return strategy == verl.MEGATRON or settings.config_name(invocation) in verl.MEGATRON_CONFIGS


def _read_megatron(settings: RoleSettings, findings: Findings, invocation: Invocation) -> None:
    """State how Megatron splits the models, which is the same for all roles, and what it recomputes."""
    section, line = f"{verl.ACTOR}.{verl.MEGATRON}", invocation.line
    for name, field in verl.MEGATRON_AXES.items():
        entry = settings.entry(f"{section}.{name}")
        if entry is not None and (entry.why or str(entry.value).lower() not in ("null", "none")):
            state_number(findings, field, entry)
        elif field != "plan.vpp":
            findings.state(field, 1, line, f"{verl.MEGATRON}.{name} is 1 by default")
    on_off = settings.is_on(f"{section}.{verl.MEGATRON_SEQUENCE}", otherwise=True)
    findings.state("plan.sequence_parallel", on_off and (findings.get("plan.tp") or 1) > 1, line, "verl's default")
    is_sharded = settings.is_on(f"{verl.ACTOR}.{verl.MEGATRON_OPTIMIZER}", otherwise=True)
    findings.state("plan.sharding", "zero1" if is_sharded else "none", line, "verl's distributed optimizer")
    recompute = settings.word(f"{verl.ACTOR}.{verl.MEGATRON_RECOMPUTE}", otherwise="none")
    if recompute in ("full", "selective", "none"):
        place = settings.place(f"{verl.ACTOR}.{verl.MEGATRON_RECOMPUTE}")
        text = place.text if place is not None else "verl recomputes nothing on Megatron by default"
        findings.state("plan.recompute", recompute, place.line if place is not None else line, text)
    if (tp := settings.entry(f"{section}.{verl.EXPERT_TP}")) is not None and tp.value and not tp.why:
        findings.options["expert.tensor"] = str(tp.value)[:20]
    if settings.number(verl.MEGATRON_LORA, otherwise=0):
        settings.doubt(verl.MEGATRON_LORA, "adapters on Megatron")
    others = (verl.REFERENCE, *((verl.CRITIC,) if _has_critic(settings) else ()))
    for role, name in ((role, name) for role in others for name in verl.MEGATRON_AXES):
        given, own = settings.entry(f"{role}.{verl.MEGATRON}.{name}"), settings.entry(f"{section}.{name}")
        if given is not None and str(given.value) != str(own.value if own is not None else 1):
            settings.doubt(f"{role}.{verl.MEGATRON}.{name}", "it differs from the actor's")


def _read_batch(settings: RoleSettings, findings: Findings, *, gpus: int | None, split: int, line: int) -> None:
    """State the actor's micro-batch, in sequences or in tokens."""
    tokens = settings.number(f"{verl.ACTOR}.{verl.MAX_TOKENS[0]}", otherwise=verl.MAX_TOKENS[1])
    if settings.is_on(f"{verl.ACTOR}.{verl.DYNAMIC}"):
        place = settings.place(f"{verl.ACTOR}.{verl.MAX_TOKENS[0]}", f"{verl.ACTOR}.{verl.DYNAMIC}")
        at = place.line if place is not None else line
        if tokens:
            findings.options[roles.TOKENS] = str(tokens)
            findings.state("plan.micro_batch", 1, at, f"as many sequences as {tokens} tokens hold")
            of_forward = settings.number(f"{verl.ROLLOUT}.{verl.LOG_PROB_TOKENS}", otherwise=tokens) or tokens
            findings.options[roles.LOG_PROBS] = str(of_forward)
            if roles.CRITIC_BATCH not in findings.options:
                findings.options[roles.CRITIC_BATCH] = "1"
        return
    entry = settings.entry(f"{verl.ACTOR}.{verl.MICRO}")
    if entry is not None and str(entry.value).lower() not in ("null", "none"):
        state_number(findings, "plan.micro_batch", entry)
    elif (whole := settings.number(f"{verl.ACTOR}.{verl.MICRO_OF_ALL}", otherwise=0)) and gpus:
        micro = max(whole // max(gpus // split, 1), 1)
        place = settings.place(f"{verl.ACTOR}.{verl.MICRO_OF_ALL}")
        findings.state("plan.micro_batch", micro, place.line if place else line, f"{whole} over {gpus // split} ranks")
    usual = int(findings.get("plan.micro_batch") or 0)
    if sequences := settings.number(f"{verl.ROLLOUT}.{verl.LOG_PROBS}", otherwise=usual):
        findings.options[roles.LOG_PROBS] = str(sequences)


def _list_rests(settings: RoleSettings, section: str) -> str:
    """Return what a trained model moves to host memory between its updates."""
    weights = (verl.WEIGHTS_REST, verl.MEGATRON_WEIGHTS_REST)
    optimizer = (verl.OPTIMIZER_REST, verl.MEGATRON_OPTIMIZER_REST)
    is_megatron = settings.findings.options.get(ENGINE) == MEGATRON_ENGINE
    rows = ((weights[is_megatron], roles.WEIGHTS_REST), (optimizer[is_megatron], roles.OPTIMIZER_REST))
    return " ".join(word for name, word in rows if settings.is_on(f"{section}.{name}"))


def _read_engine(settings: RoleSettings, findings: Findings) -> None:
    """State the rollout engine."""
    section = verl.ROLLOUT
    name = settings.word(f"{section}.{verl.ENGINE}", otherwise="vllm") or "vllm"
    is_own = name == "hf"
    findings.options[roles.ENGINE] = roles.OWN_GENERATION if is_own else name[:20]
    if is_own:
        return
    share = settings.word(f"{section}.{verl.MEMORY_SHARE[0]}", otherwise=verl.MEMORY_SHARE[1])
    if share is None or roles.parse_share(share) is None:
        settings.doubt(f"{section}.{verl.MEMORY_SHARE[0]}", "the engine's share of memory is not known")
        return
    findings.options[roles.ENGINE_SHARE] = share
    tp = settings.number(f"{section}.{verl.ENGINE_TP[0]}", otherwise=verl.ENGINE_TP[1])
    if tp is None:
        settings.doubt(f"{section}.{verl.ENGINE_TP[0]}", "the engine's tensor parallelism is not known")
        return
    findings.options[roles.ENGINE_TP] = str(tp)
    settings.state_text(roles.ENGINE_SHARE, f"{section}.{verl.MEMORY_SHARE[0]}")
    settings.state_text(roles.ENGINE_TP, f"{section}.{verl.ENGINE_TP[0]}")
    findings.options[roles.ENGINE_SLEEPS] = (
        "true" if settings.is_on(f"{section}.{verl.SLEEPS}", otherwise=True) else "false"
    )
    findings.options[roles.ENGINE_EAGER] = "true" if settings.is_on(f"{section}.{verl.EAGER}") else "false"


def _read_reference(settings: RoleSettings, findings: Findings) -> None:
    """State the reference, where a term of the loss or of the reward needs one; with adapters it is the actor.

    Where its weights are depends on the release: FSDP's own offload holds them in host memory whatever the setting
    says, unless verl's newer engine runs (fsdp_workers.py, ``_build_model_optimizer``).
    """
    if not any(settings.is_on(name) for name in verl.KL) or ADAPTERS in findings.options:
        return
    if findings.options.get(ENGINE) == MEGATRON_ENGINE:
        is_host = settings.is_on(f"{verl.REFERENCE}.{verl.MEGATRON_WEIGHTS_REST}")
        findings.options[roles.REFERENCE] = (roles.WeightPlace.HOST if is_host else roles.WeightPlace.GPU).value
        findings.options[roles.REFERENCE_BITS] = "16"
        return
    is_host = settings.is_on(f"{verl.REFERENCE}.{verl.WEIGHTS_REST}")
    findings.options[roles.REFERENCE] = (roles.WeightPlace.HOST if is_host else roles.WeightPlace.PERHAPS).value
    findings.options[roles.REFERENCE_BITS] = "32"


def _read_critic(settings: RoleSettings, findings: Findings) -> None:
    """State the value function, where the estimator of advantages has one."""
    section = verl.CRITIC
    if not _has_critic(settings):
        return
    findings.options[roles.CRITIC] = roles.WeightPlace.GPU.value
    _name(settings, f"{section}.model.path", roles.CRITIC_MODEL, findings)
    micro = settings.number(f"{section}.{verl.MICRO}", otherwise=findings.get("plan.micro_batch") or 1)
    if micro:
        findings.options[roles.CRITIC_BATCH] = str(micro)
    is_megatron = findings.options.get(ENGINE) == MEGATRON_ENGINE
    if rests := _list_rests(settings, section if is_megatron else f"{section}.model"):
        findings.options[roles.CRITIC_RESTS] = rests


def _has_critic(settings: RoleSettings) -> bool:
    """Return whether there is a value function."""
    usual = settings.word(verl.ESTIMATOR, otherwise=verl.NEEDS_CRITIC) == verl.NEEDS_CRITIC
    return settings.is_on(f"{verl.CRITIC}.enable", otherwise=usual)


def _read_reward(settings: RoleSettings, findings: Findings) -> None:
    """State the reward model, where it is a model and not a function."""
    section = verl.REWARD
    if not settings.is_on(f"{section}.enable"):
        return
    if settings.entry(f"{section}.rollout.{verl.MEMORY_SHARE[0]}") is not None:
        settings.doubts.append(("a reward model with an engine of its own", 0))
        return
    is_host = settings.is_on(f"{section}.model.{verl.WEIGHTS_REST}")
    findings.options[roles.REWARD] = (roles.WeightPlace.HOST if is_host else roles.WeightPlace.PERHAPS).value
    _name(settings, f"{section}.model.path", roles.REWARD_MODEL, findings)


def _name(settings: RoleSettings, key: str, option: str, findings: Findings) -> None:
    """State the public model that a path names; of others the size stays unknown."""
    entry = settings.entry(key)
    name = str(entry.value or "").rstrip("/") if entry is not None and not entry.why else ""
    if name:
        last = name if public_model(name) is not None else name.rpartition("/")[2]
        findings.options[option] = last[:120]
