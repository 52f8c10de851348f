"""Reads what a trainer on preferences, or GRPO, of TRL, LLaMA-Factory or ms-swift holds beside the model it trains."""

from __future__ import annotations

from opsk.frameworks.settings import preferences as names
from opsk.workload import roles
from opsk_jobcheck.scripts.frameworks.huggingface.role_settings import RoleSettings
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import ADAPTERS, BASE_BITS
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import Findings

_WHOLE_BITS = "32"
_SIXTEEN = ("bf16", "bfloat16", "fp16", "float16", "half", "auto")
PREFERENCE_KINDS = frozenset({*names.LOSSES, *names.GENERATING})
"""Trainers whose roles are read."""


def read_preferences(
    kind: str,
    config: ConfigFile,
    findings: Findings,
    *,
    usual_bits: int,
    opaque: str = "",
    usual_share: str = names.USUAL_SHARE,
) -> bool:
    """State the roles of a trainer; return whether this kind is known.

    Parameters
    ----------
    kind
        ``dpo``, ``kto``, ``orpo``, ``reward``, ``grpo``, ...
    config
        The settings of the program.
    usual_bits
        Bits of a weight of the reference where no format is given.
    opaque
        Why settings may come from elsewhere.
    usual_share
        Share of a GPU that an engine takes where none is given.
    """
    settings = RoleSettings(lambda name: _find(config, name), findings, opaque=opaque or config.why)
    if kind in names.GENERATING:
        findings.options[roles.METHOD] = kind
        _read_generating(settings, findings, usual_share=usual_share)
        _read_reference(settings, findings, usual_bits=usual_bits, is_certain=settings.entry(*names.BETA) is not None)
    elif (loss := names.LOSSES.get(kind)) is not None:
        findings.options[roles.METHOD] = kind
        if loss.sequences > 1:
            findings.options[roles.SEQUENCES] = str(loss.sequences)
        if loss.has_scores:
            findings.options[roles.SCORES] = "true"
        if loss.has_reference and not settings.is_on(*names.PRECOMPUTED):
            _read_reference(settings, findings, usual_bits=usual_bits, is_certain=True)
    else:
        return False
    settings.report_unknown()
    return True


def _find(config: ConfigFile, name: str) -> Entry | None:
    """Return a setting of the command or of a file that was read."""
    return config.entry(name) if config.has(name) else None


def _read_reference(settings: RoleSettings, findings: Findings, *, usual_bits: int, is_certain: bool) -> None:
    """State the frozen copy; under adapters the trained model with its adapters off is the reference."""
    is_kl_off = findings.options[roles.METHOD] in names.GENERATING and settings.word(*names.BETA) in ("0", "0.0")
    if is_kl_off or ADAPTERS in findings.options or BASE_BITS in findings.options:
        return
    entry = settings.entry("torch_dtype", "dtype")
    findings.options[roles.REFERENCE] = (roles.WeightPlace.GPU if is_certain else roles.WeightPlace.PERHAPS).value
    if entry is not None and entry.why:
        bits = _WHOLE_BITS  # a format that is not known is the widest, and may be half of that
    else:
        word = str(entry.value).rpartition(".")[2].lower() if entry is not None else ""
        bits = "16" if word in _SIXTEEN else str(usual_bits)
    findings.options[roles.REFERENCE_BITS] = bits


def _read_generating(settings: RoleSettings, findings: Findings, *, usual_share: str) -> None:
    """State lengths, and what generates."""
    prompt = settings.number(*names.PROMPT, otherwise=names.USUAL_PROMPT)
    answer = settings.number(*names.ANSWER, otherwise=names.USUAL_ANSWER)
    if prompt and answer:
        place = settings.entry(*names.ANSWER, *names.PROMPT)
        text = f"prompt {prompt} + answer {answer} tokens"
        file, line = (place.file, place.line) if place else ("", 0)
        findings.state("model.seq", prompt + answer, line, text, file=file or findings.file)
    if not settings.is_on(*names.USE_VLLM):
        findings.options[roles.ENGINE] = roles.OWN_GENERATION
        return
    mode = settings.word(*names.MODE)
    if mode == names.SERVER:  # another command starts it, with settings of its own
        return
    findings.options[roles.ENGINE] = "vllm"
    # which of the two is the default has changed with TRL 1.0
    is_here = mode is not None
    findings.options[roles.ENGINE_PLACE] = (roles.WeightPlace.GPU if is_here else roles.WeightPlace.PERHAPS).value
    share = settings.word(*names.SHARE, otherwise=usual_share)
    tp = settings.number(*names.TENSOR, otherwise=1)
    if share is None or roles.parse_share(share) is None or tp is None:
        settings.doubt(names.SHARE[0], "the engine's share of memory or its tensor parallelism is not known")
        return
    findings.options |= {roles.ENGINE_SHARE: share, roles.ENGINE_TP: str(tp)}
    settings.state_text(roles.ENGINE_SHARE, *names.SHARE)
    settings.state_text(roles.ENGINE_TP, *names.TENSOR)
    if length := settings.number(*names.LENGTH, otherwise=0):
        findings.options[roles.ENGINE_LENGTH] = str(length)
    findings.options[roles.ENGINE_SLEEPS] = (
        "true" if settings.word(*names.SLEEPS, otherwise="0") in ("1", "2", "true", "True") else "false"
    )
    settings.state_option(roles.ENGINE_EAGER, *names.EAGER)
    rows = ((names.REST_WEIGHTS, roles.WEIGHTS_REST), (names.REST_OPTIMIZER, roles.OPTIMIZER_REST))
    if rests := " ".join(word for keys, word in rows if settings.is_on(*keys)):
        findings.options[roles.ACTOR_RESTS] = rests
