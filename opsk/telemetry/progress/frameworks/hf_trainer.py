"""Parses the output of HuggingFace's Trainer and what is built on it (TRL, axolotl, LLaMA-Factory).

Losses come as Python dicts, ``{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 4.9e-05, 'epoch': 0.12}``, without step
and speed; the progress bar before them has both. Numbers may be quoted. The last line is a summary of the run.
"""

from __future__ import annotations

import re
from dataclasses import replace

from opsk.telemetry.progress.lines import (
    NUMBER,
    drop_missing,
    parse_duration_s,
    parse_number,
    parse_positive,
    parse_size_bytes,
    parse_whole,
)
from opsk.telemetry.progress.records import EventKind, ParsedLine, Reader, StepPart

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
_POSTFIX = re.compile(r"\b(loss|train_loss|gpt_loss|lr|grad_norm|global_step|step)=\s*([^,\s]+)", re.ASCII)
_LOSS_BEFORE = re.compile(r"\b(?:Loss|loss):?\s*([\d.]+|nan|inf)", re.ASCII)
_DICT = re.compile(r"\{\s*'[^{}]*\}")
_VALUE = re.compile(rf"'([^']{{1,80}})':\s*'?({NUMBER})", re.ASCII)
_TOTAL = re.compile(r"Total optimization steps\s*=\s*([\d,]+)", re.ASCII)
_TRL = ("rewards/", "num_tokens", "mean_token_accuracy", "logps/", "kl", "completion_length", "objective/")
_AXOLOTL = ("memory/max_", "memory/device_", "tokens/train_per_sec_per_gpu")
_SWIFT = "global_step/max_steps"
_BARS = (
    ("torchtune", re.compile(r"^\d+\|\d+\|Loss: ")),
    ("openrlhf", re.compile(r"^(?:Train epoch|Episode) \[\d+/\d+\]")),
)
"""Titles of bars that only one program draws."""
_LIGHTNING = "v_num="
_SUMMARY = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "epoch")
_JSON_VALUE = re.compile(rf'"(\w+)":\s*("[^"]{{0,40}}"|{NUMBER})', re.ASCII)
_MAX_DIGITS = 15
_RANK = 30


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

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line; where several bars were drawn on it the last counts."""
        bars = list(_BAR.finditer(text))
        if not bars:
            return None
        match = bars[-1]
        head = _HEAD.match(text)
        title = (head[1] if head else text[: match.start()]).strip(" :|\t")
        position, total = int(match[1]), int(match[2])
        if total == 0 or position > total or not self._is_training_bar(title, position, total):
            return None
        speed = parse_positive(match[4])
        values = drop_missing(step_s=(speed if match[5].startswith("s/") else 1 / speed) if speed else None)
        postfix = {name[1]: name[2] for name in _POSTFIX.finditer(match[6] or "")}
        before = _LOSS_BEFORE.search(title)
        stated = next((postfix[name] for name in ("loss", "train_loss", "gpt_loss") if name in postfix), "")
        loss = parse_number(stated or (before[1] if before else ""))
        values = {
            **values,
            **drop_missing(
                loss=loss, lr=parse_number(postfix.get("lr", "")), grad_norm=parse_number(postfix.get("grad_norm", ""))
            ),
        }
        iteration = self._compute_iteration(title, position, total)
        if iteration == 0:
            return None
        if self.name == BarReader.name:
            self.name = _name_bar(title, match[6] or "")
        whole_run = total if self._epoch is None and not self._offset else None
        return ParsedLine(part=StepPart.OPEN, iteration=iteration, total_iterations=whole_run, values=values)

    def _is_training_bar(self, title: str, position: int, total: int) -> bool:
        """Return whether this is the training's bar."""
        if title and _OTHER.search(title) and not re.search(r"train", title, re.IGNORECASE):
            return False
        if self._total in (None, total) or total == self.declared:
            return True
        done = self._place >= (self._total or 0)
        return done if not title else _TRAINS.search(title) is not None

    def _compute_iteration(self, title: str, position: int, total: int) -> int:
        """Return the step since the beginning of the run: bars that restart each epoch are added up."""
        if total != self._total:
            self._total, self._place = total, 0
        match = _EPOCH.search(title)
        if match is not None:
            epoch = int(match[1])
            if self._epoch is None:
                self._first_epoch = epoch
            self._epoch = epoch
            self._offset = max(epoch - self._first_epoch, 0) * total
        elif position < self._place:
            done = self._place >= total and not self.spans_run
            self._offset = self._offset + total if done else 0
        self._place = position
        return self._offset + position


def _name_bar(title: str, postfix: str) -> str:
    """Return the program that draws a bar, where its title or what follows the bar is of one program alone."""
    if _LIGHTNING in postfix:
        return "lightning"
    return next((name for name, pattern in _BARS if pattern.match(title)), BarReader.name)


class HfTrainerReader(BarReader):
    """Dicts and bars of HuggingFace's Trainer; without a dict it is a bar of any program."""

    hints = (*BarReader.hints, "'loss'", "'train_runtime'", "'eval_loss'", "'eval_runtime'", "Total optimization steps")

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        match = _DICT.search(text) if "{" in text else None
        metrics = {pair[1]: pair[2] for pair in _VALUE.finditer(match[0])} if match else {}
        if "loss" in metrics:
            self._is_hf(metrics)
            bar = super().read(text[: match.start()]) if match else None
            if bar is not None:
                return replace(bar, values={**bar.values, **_parse_values(metrics)})
            return ParsedLine(
                part=StepPart.MORE,
                values=_parse_values(metrics),
                alone=True,
                iteration=parse_whole(metrics.get("step", metrics.get(_SWIFT, ""))),
            )
        if "train_runtime" in metrics:
            self._is_hf(metrics)
            run_s = parse_positive(metrics["train_runtime"])
            values = drop_missing(**{name: parse_number(metrics[name]) for name in _SUMMARY if name in metrics})
            return ParsedLine(part=StepPart.EVENT, event=EventKind.SUMMARY, seconds=run_s, values=values)
        if "eval_loss" in metrics or "eval_runtime" in metrics:
            values = drop_missing(loss=parse_number(metrics.get("eval_loss", "")))
            took = parse_positive(metrics.get("eval_runtime", ""))
            return ParsedLine(part=StepPart.EVENT, event=EventKind.VALIDATION, seconds=took, values=values)
        if (total := _TOTAL.search(text)) is not None:
            self._is_hf({})
            self.declared = parse_whole(total[1])
            return None
        return super().read(text)

    def _is_hf(self, metrics: dict[str, str]) -> None:
        """Switch from a plain bar to the Trainer, whose bar spans the whole run."""
        self.spans_run = self.sure = True
        if self.rank != _RANK:
            self.name, self.rank = "hf-trainer", _RANK
        if _SWIFT in metrics:
            self.name = "ms-swift"
        elif any(name.startswith(_TRL) for name in metrics):
            self.name = "trl"
        elif any(name.startswith(_AXOLOTL) for name in metrics):
            self.name = "axolotl"
        elif "throughput" in metrics and "num_input_tokens_seen" in metrics:
            self.name = "llama-factory"


def _parse_values(metrics: dict[str, str]) -> dict[str, float]:
    """Convert a dict of the Trainer to values of a record."""
    peak = next((value for name, value in metrics.items() if name.startswith(("memory/max_", "memory(GiB)"))), "")
    rate = parse_positive(metrics.get("train_speed(iter/s)", ""))
    step_s = metrics.get("step_time", metrics.get("train_speed(s/it)", ""))
    per_gpu = metrics.get("tokens/train_per_sec_per_gpu", metrics.get("tokens_per_second_per_gpu", ""))
    return dict(
        drop_missing(
            loss=parse_number(metrics["loss"]),
            grad_norm=parse_number(metrics.get("grad_norm", "")),
            lr=parse_number(metrics.get("learning_rate", "")),
            step_s=parse_positive(step_s) if step_s else 1 / rate if rate else None,
            tokens_per_s_per_gpu=parse_positive(per_gpu),
            tokens_per_s=parse_positive(metrics.get("throughput", "")),
            memory_bytes=parse_size_bytes(f"{peak}GiB") if peak else None,
        )
    )


class LlamaFactoryReader(Reader):
    """Lines of LLaMA-Factory's ``trainer_log.jsonl``."""

    name = "llama-factory"
    rank = 20
    hints = ('"current_steps"',)

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line; a step takes the time since the line before."""
        fields = {pair[1]: pair[2].strip('"') for pair in _JSON_VALUE.finditer(text)}
        step = fields.get("current_steps", "")
        if not step.isdecimal() or len(step) > _MAX_DIGITS:
            return None
        if "loss" not in fields:
            values = drop_missing(loss=parse_number(fields.get("eval_loss", "")))
            return ParsedLine(part=StepPart.EVENT, event=EventKind.VALIDATION, iteration=int(step), values=values)
        elapsed_s = parse_duration_s(fields.get("elapsed_time", ""))
        step_s = None
        if self._last is not None and elapsed_s is not None and int(step) > self._last[0]:
            step_s = (elapsed_s - self._last[1]) / (int(step) - self._last[0])
        if elapsed_s is not None:
            self._last = (int(step), elapsed_s)
        values = drop_missing(
            loss=parse_number(fields["loss"]),
            lr=parse_number(fields.get("lr", fields.get("learning_rate", ""))),
            tokens_per_s=parse_positive(fields.get("throughput", "")),
            step_s=step_s if step_s and step_s > 0 else None,
        )
        total = fields.get("total_steps", "")
        return ParsedLine(
            part=StepPart.STEP,
            iteration=int(step),
            total_iterations=parse_whole(total),
            values=values,
        )
