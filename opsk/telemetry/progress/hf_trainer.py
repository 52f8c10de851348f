"""What do HuggingFace's Trainer, and what is built on it (TRL, axolotl, LLaMA-Factory), say?

Losses come as Python dicts, ``{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 4.9e-05, 'epoch': 0.12}``, without step
and speed; the bar drawn before them tells both. Numbers may be quoted. The last line sums the run up.
"""

from __future__ import annotations

import re
from dataclasses import replace

from opsk.telemetry.progress.bars import BarReader
from opsk.telemetry.progress.records import EventKind, Part, Seen
from opsk.telemetry.progress.values import NUMBER, known, number, positive, size_bytes, whole

_DICT = re.compile(r"\{\s*'[^{}]*\}")
_VALUE = re.compile(rf"'([^']{{1,80}})':\s*'?({NUMBER})", re.ASCII)
_TOTAL = re.compile(r"Total optimization steps\s*=\s*([\d,]+)", re.ASCII)
_TRL = ("rewards/", "num_tokens", "mean_token_accuracy", "logps/", "kl", "completion_length", "objective/")
_AXOLOTL = ("memory/max_", "memory/device_", "tokens/train_per_sec_per_gpu")
_SUMMARY = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "epoch")


class HfTrainerReader(BarReader):
    """Dicts and bars of HuggingFace's Trainer; without a dict it is just somebody's bar."""

    hints = (*BarReader.hints, "'loss'", "'train_runtime'", "'eval_loss'", "'eval_runtime'", "Total optimization steps")

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        found = _DICT.search(text) if "{" in text else None
        said = {each[1]: each[2] for each in _VALUE.finditer(found[0])} if found else {}
        if "loss" in said:
            self._is_hf(said)
            bar = super().read(text[: found.start()]) if found else None
            if bar is not None:
                return replace(bar, values={**bar.values, **_values(said)})
            return Seen(part=Part.MORE, values=_values(said), alone=True, iteration=whole(said.get("step", "")))
        if "train_runtime" in said:
            self._is_hf(said)
            run_s = positive(said["train_runtime"])
            values = known(**{name: number(said[name]) for name in _SUMMARY if name in said})
            return Seen(part=Part.EVENT, event=EventKind.SUMMARY, seconds=run_s, values=values)
        if "eval_loss" in said or "eval_runtime" in said:
            values = known(loss=number(said.get("eval_loss", "")))
            took = positive(said.get("eval_runtime", ""))
            return Seen(part=Part.EVENT, event=EventKind.VALIDATION, seconds=took, values=values)
        if (total := _TOTAL.search(text)) is not None:
            self._is_hf({})
            self.declared = whole(total[1])
            return None
        return super().read(text)

    def _is_hf(self, said: dict[str, str]) -> None:
        """Settle what was a bar only so far: the Trainer's bar spans the whole run."""
        self.spans_run = self.sure = True
        if self.rank != _RANK:
            self.name, self.rank = "hf-trainer", _RANK
        if any(name.startswith(_TRL) for name in said):
            self.name = "trl"
        elif any(name.startswith(_AXOLOTL) for name in said):
            self.name = "axolotl"
        elif "throughput" in said and "num_input_tokens_seen" in said:
            self.name = "llama-factory"


_RANK = 30


def _values(said: dict[str, str]) -> dict[str, float]:
    """Return what a dict of the Trainer says."""
    peak = next((value for name, value in said.items() if name.startswith("memory/max_")), "")
    each = said.get("tokens/train_per_sec_per_gpu", said.get("tokens_per_second_per_gpu", ""))
    return dict(
        known(
            loss=number(said["loss"]),
            grad_norm=number(said.get("grad_norm", "")),
            lr=number(said.get("learning_rate", "")),
            step_s=positive(said.get("step_time", "")),
            tokens_per_s_per_gpu=positive(each),
            tokens_per_s=positive(said.get("throughput", "")),
            memory_bytes=size_bytes(f"{peak}GiB") if peak else None,
        )
    )
