"""Reads the training settings of a DeepSpeed configuration, from a file or written by the script itself.

Source: ``docs/_pages/config-json.md`` and ``deepspeed/runtime/config.py`` of DeepSpeed 0.3 to 0.18. HuggingFace's
Trainer fills values ``"auto"`` from its own flags; they state nothing here.
"""

from __future__ import annotations

from opsk.frameworks.settings.deepspeed_config import MICRO_BATCH, NUMBERS, STAGE, STAGE_WORDS, STEPS
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import MAX_NUMBER, Findings, parse_integer
from opsk_jobcheck.scripts.settings.uncounted_settings import UNCOUNTED_DEEPSPEED, is_on, report_uncounted_settings

STEPS_OPTION = "deepspeed.accumulation_steps"
DEEPSPEED_OPTION = "deepspeed"
"""``true`` where DeepSpeed's engine trains, whichever framework starts it."""
PARTLY, ELSEWHERE = "offload.partly", "offload.to"
"""Options for partial offload, and for offload to elsewhere than host memory."""
OPTIMIZER_OFFLOAD, WEIGHTS_OFFLOAD = "optimizer.offload", "weights.offload"
FRACTION = "optimizer.offload_fraction"
_OFFLOADS = {"offload_optimizer": OPTIMIZER_OFFLOAD, "offload_param": WEIGHTS_OFFLOAD}


def read_deepspeed(config: ConfigFile, findings: Findings) -> None:
    """State the values of the configuration that no flag has stated; none where it could not be read."""
    if config.why:
        return
    state_stage(config.entry(STAGE), findings)
    for name, precision in (("fp16", "fp16"), ("bf16", "bf16"), ("bfloat16", "bf16")):
        entry = config.entry(name, "enabled")
        if entry is not None and entry.value is True and is_open("plan.precision", findings):
            findings.state("plan.precision", precision, entry.line, f'"{name}": {{"enabled": true}}', file=entry.file)
    for key, field in NUMBERS.items():
        _state_number(config.entry(key), field, findings)
    for key, option in _OFFLOADS.items():
        entry = config.entry("zero_optimization", key, "device")
        if entry is not None and entry.value in ("cpu", "nvme"):
            findings.options[option] = "cpu"
            ratio = config.entry("zero_optimization", key, "ratio")
            if entry.value == "nvme":
                findings.options[ELSEWHERE] = "nvme"
            if ratio is not None and ratio.value != 1:
                is_share = option == OPTIMIZER_OFFLOAD and isinstance(ratio.value, float) and 0 <= ratio.value < 1
                findings.options[FRACTION if is_share else PARTLY] = str(ratio.value) if is_share else "true"
    _state_formats(config, findings)
    if is_on(config.entry("activation_checkpointing.cpu_checkpointing")):
        findings.options["activations.offload"] = "cpu"
    report_uncounted_settings(config, UNCOUNTED_DEEPSPEED, findings)
    steps = config.entry(STEPS)
    if steps is not None and STEPS_OPTION not in findings.options and (count := _parse_count(steps)):
        findings.options[STEPS_OPTION] = str(count)


def _state_formats(config: ConfigFile, findings: Findings) -> None:
    """Set the options of state formats: those of ZeRO's 16-bit states, and that of accumulated gradients."""
    dtype = config.entry("data_types.grad_accum_dtype")
    if dtype is not None and dtype.value in ("fp32", "bf16", "fp16"):
        findings.options["optimizer.grad_accum"] = str(dtype.value)
    if is_on(config.entry("bf16.bf16_master_weights_and_grads")):
        findings.options |= {"optimizer.main_params": "bf16", "optimizer.grad_accum": "bf16"}
    if is_on(config.entry("bf16.bf16_optimizer_states")):
        findings.options["optimizer.exp_avg"] = "bf16"


def mark_conflicts_unknown(config: ConfigFile, findings: Findings) -> None:
    """Mark values as unknown where the configuration and flags differ: transformers refuses that, accelerate warns.

    Source: ``HfTrainerDeepSpeedConfig.trainer_config_finalize`` of transformers, ``_prepare_deepspeed`` of accelerate.
    """
    if config.why:
        return
    micro, steps = config.entry(MICRO_BATCH), config.entry(STEPS)
    why = "flags and the DeepSpeed configuration do not agree"
    if micro is not None and (count := _parse_count(micro)) and findings.get("plan.micro_batch") not in (None, count):
        for field in ("plan.micro_batch", "plan.global_batch"):
            findings.mark_unknown(field, f"{why} ({micro.text[:60]})", micro.line, file=micro.file)
    stated_steps = findings.options.get(STEPS_OPTION)
    if steps is not None and (count := _parse_count(steps)) and stated_steps not in (None, str(count)):
        del findings.options[STEPS_OPTION]
        findings.mark_unknown("plan.global_batch", f"{why} ({steps.text[:60]})", steps.line, file=steps.file)
    for name, precision in (("fp16", "fp16"), ("bf16", "bf16")):
        entry = config.entry(name, "enabled")
        stated = findings.get("plan.precision")
        if entry is not None and entry.value is True and stated in ("fp16", "bf16") and stated != precision:
            findings.mark_unknown("plan.precision", f"{why} ({name} is enabled there)", entry.line, file=entry.file)


def state_stage(entry: Entry | None, findings: Findings) -> None:
    """State the ZeRO stage, unless sharding is known."""
    if entry is None or not is_open("plan.sharding", findings):
        return
    stage = parse_integer(entry.value)
    if entry.why:
        findings.mark_unknown("plan.sharding", entry.why, entry.line, file=entry.file)
    elif stage is not None and str(stage) in STAGE_WORDS:
        findings.state("plan.sharding", STAGE_WORDS[str(stage)], entry.line, entry.text, file=entry.file)


def derive_global_batch(findings: Findings, dp: int) -> None:
    """State the global batch as micro-batch × accumulation × DP where only those are given."""
    steps, micro = findings.options.get(STEPS_OPTION), findings.get("plan.micro_batch")
    if steps and micro and is_open("plan.global_batch", findings):
        batch = micro * int(steps) * dp
        file, line = findings.find_source("plan.micro_batch")
        if batch <= MAX_NUMBER:
            findings.state("plan.global_batch", batch, line, f"{micro} × {steps} × dp {dp}", file=file)


def is_open(field: str, findings: Findings) -> bool:
    """Return whether nothing has been stated about a field."""
    return field not in findings.values and field not in findings.unknown


def _state_number(entry: Entry | None, field: str, findings: Findings) -> None:
    """State a number unless a flag has stated it."""
    if entry is None or not is_open(field, findings):
        return
    if entry.why:
        findings.mark_unknown(field, entry.why, entry.line, file=entry.file)
    elif count := _parse_count(entry):
        findings.state(field, count, entry.line, entry.text, file=entry.file)


def _parse_count(entry: Entry) -> int | None:
    """Return a positive whole number of valid size."""
    value = entry.value
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and 0 < value <= MAX_NUMBER else None
