"""What do HuggingFace's Trainer, and what is built on it (TRL, axolotl, LLaMA-Factory), say?

Losses come as Python dicts, ``{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 4.9e-05, 'epoch': 0.12}``, without step
and speed; the bar drawn before them tells both. Numbers may be quoted. The last line sums the run up.
"""

from __future__ import annotations

import re
from dataclasses import replace

from opsk.telemetry.progress.records import EventKind, Part, Reader, Seen
from opsk.telemetry.progress.values import NUMBER, known, number, positive, size_bytes, whole

_BAR = re.compile(
    r"(\d{1,12})/(\d{1,12}) \[([\d:]+|\d+ days?, [\d:]+)<[^,\]]{0,40},\s*([\d.?]+)\s?"
    r"(s/it|it/s|s/batch|batch/s|s/step|steps?/s)"
    r"(?:, ([^\]]{0,2000}))?\]",
    re.ASCII,
)
_HEAD = re.compile(r"([^%|]{0,200}?):?\s*\d{1,3}%\|", re.ASCII)
_EPOCH = re.compile(r"epoch\D{0,3}(\d{1,9})", re.ASCII | re.IGNORECASE)
_TRAINS = re.compile(r"train|step|iter|epoch|finetun|progress|pretrain|loss", re.IGNORECASE)
_OTHER = re.compile(
    r"eval|valid|test|predict|sanity|load|download|fetch|map\b|token|filter|pack|generat|sav|shard|sampl|resolv|compil"
    r"|captur|quant|merg|upload|prepar|process|build|batches|worker|initial",
    re.IGNORECASE,
)
_POSTFIX = re.compile(r"\b(loss|train_loss|lr|grad_norm|global_step|step)=\s*([^,\s]+)", re.ASCII)
_LOSS_BEFORE = re.compile(r"\b(?:Loss|loss):?\s*([\d.]+|nan|inf)", re.ASCII)


class BarReader(Reader):
    """Bars of any program that trains."""

    name = "progress-bar"
    rank = 60
    hints: tuple[str, ...] = ("it/s", "s/it", "s/batch", "batch/s", "s/step", "step/s", "steps/s")

    def __init__(self) -> None:
        self.spans_run = False
        self.declared: int | None = None
        self._total: int | None = None
        self._place = 0
        self._offset = 0
        self._epoch: int | None = None
        self._first_epoch = 0

    def read(self, text: str) -> Seen | None:
        """Return what one line says; where several bars were drawn on it the last counts."""
        bars = list(_BAR.finditer(text))
        if not bars:
            return None
        found = bars[-1]
        head = _HEAD.match(text)
        title = (head[1] if head else text[: found.start()]).strip(" :|\t")
        place, total = int(found[1]), int(found[2])
        if total == 0 or place > total or not self._counts(title, place, total):
            return None
        speed = positive(found[4])
        values = known(step_s=(speed if found[5].startswith("s/") else 1 / speed) if speed else None)
        said = {name[1]: name[2] for name in _POSTFIX.finditer(found[6] or "")}
        before = _LOSS_BEFORE.search(title)
        loss = number(said.get("loss", said.get("train_loss", before[1] if before else "")))
        values = {
            **values,
            **known(loss=loss, lr=number(said.get("lr", "")), grad_norm=number(said.get("grad_norm", ""))),
        }
        iteration = self._iteration(title, place, total)
        if iteration == 0:
            return None
        whole_run = total if self._epoch is None and not self._offset else None
        return Seen(part=Part.OPEN, iteration=iteration, total_iterations=whole_run, values=values)

    def _counts(self, title: str, place: int, total: int) -> bool:
        """Tell whether this is the training's bar."""
        if title and _OTHER.search(title) and not re.search(r"train", title, re.IGNORECASE):
            return False
        if self._total in (None, total) or total == self.declared:
            return True
        done = self._place >= (self._total or 0)
        return done if not title else _TRAINS.search(title) is not None

    def _iteration(self, title: str, place: int, total: int) -> int:
        """Return the step since the beginning of the run: bars that begin anew each epoch are added up."""
        if total != self._total:
            self._total, self._place = total, 0
        found = _EPOCH.search(title)
        if found is not None:
            epoch = int(found[1])
            if self._epoch is None:
                self._first_epoch = epoch
            self._epoch = epoch
            self._offset = max(epoch - self._first_epoch, 0) * total
        elif place < self._place:
            done = self._place >= total and not self.spans_run
            self._offset = self._offset + total if done else 0
        self._place = place
        return self._offset + place


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
