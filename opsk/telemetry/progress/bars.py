"""What do progress bars say? ``12/100 [00:31<03:44, 2.55s/it, loss=3.1]``, as tqdm and Lightning draw them.

A bar tells a smoothed step time. Which bar is the training's, and which one loads, evaluates or downloads, is told by
what stands before it; of bars without a word the first that is not done counts, and what runs inside is its evaluation.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import known, number, positive

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
