"""Lists the progress lines of frameworks whose fields are only named and converted, as one table.

A row of the table states which line it is, where its fields are, and which value each field gives. Code is here only
for values that are computed from several lines or fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial

from opsk.telemetry.jobs.step_report import MARK
from opsk.telemetry.progress.lines import (
    NUMBER,
    drop_missing,
    parse_number,
    parse_positive,
    parse_size_bytes,
    parse_whole,
    split_piped_fields,
)
from opsk.telemetry.progress.records import EventKind, ParsedLine, Part, Reader
from opsk.units import GIB

Pairs = Callable[[str], Iterable[tuple[str, str]]]
ParseField = Callable[[str], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """One kind of line.

    Parameters
    ----------
    head
        Finds the line; its groups ``step`` and ``total`` number the step, others are fields. Without a head any line
        with a field counts.
    pairs
        Splits what follows the head into names and texts of fields.
    fields
        By name in lower case, with ``*`` for any text: the value that a field gives, and how it is parsed. Of several
        fields of one value the first counts.
    part, event
        How the line belongs to a step. Lines of `Part.MORE` count once a step has begun.
    required
        A value without which it is another program's line.
    """

    head: re.Pattern[str] | None = None
    pairs: Pairs | None = None
    fields: Mapping[str, tuple[str, ParseField]] = field(default_factory=dict)
    part: Part = Part.STEP
    event: EventKind | None = None
    required: str | None = None

    def parse(self, text: str) -> ParsedLine | None:
        """Parse one line; ``None`` when it is another one."""
        head = self.head.search(text) if self.head else None
        if self.head and head is None:
            return None
        groups = head.groupdict() if head else {}
        step, total = parse_whole(groups.get("step") or ""), parse_whole(groups.get("total") or "")
        if step is None and groups.get("step"):
            return None
        values = self._parse_values(groups, text[head.end() :] if head else text)
        if (self.required and self.required not in values) or (self.part is Part.MORE and not values):
            return None
        return ParsedLine(part=self.part, event=self.event, iteration=step, total_iterations=total, values=values)

    def _parse_values(self, texts: dict[str, str | None], rest: str) -> dict[str, float]:
        """Parse the fields in the head, whose texts are given, and those after it."""
        if self.pairs is not None:
            texts.update((name.strip().lower(), value) for name, value in self.pairs(rest))
        values: dict[str, float] = {}
        for name, (value, parse) in self.fields.items():
            text = texts.get(name) if "*" not in name else _find_matching(texts, name)
            parsed = parse(text) if text and value not in values else None
            if parsed is not None:
                values[value] = parsed
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFramework:
    """A framework whose lines are all in the table.

    Parameters
    ----------
    name, rank, hints
        As those of `Reader`.
    formats
        Its lines, in the order in which they are tried.
    example
        A line of a step, as it is printed.
    """

    name: str
    rank: int = 20
    hints: tuple[str, ...]
    formats: tuple[LineFormat, ...]
    example: str


class FormatReader(Reader):
    """Lines of a framework of the table."""

    def __init__(self, framework: LineFramework) -> None:
        self.name, self.rank, self.hints = framework.name, framework.rank, framework.hints
        self._formats = framework.formats
        self._is_open = False

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        for line_format in self._formats:
            parsed = line_format.parse(text) if self._is_open or line_format.part is not Part.MORE else None
            if parsed is not None:
                self._is_open = self._is_open or parsed.part is Part.OPEN
                return parsed
        return None


def _find_matching(texts: Mapping[str, str | None], pattern: str) -> str | None:
    return next((text for name, text in texts.items() if fnmatchcase(name, pattern)), None)


def _parse_ms(text: str) -> float | None:
    elapsed_ms = parse_positive(text)
    return elapsed_ms / 1e3 if elapsed_ms else None


def _invert(text: str) -> float | None:
    rate = parse_positive(text)
    return 1 / rate if rate else None


def _parse_mb(text: str) -> float | None:
    size = parse_positive(text)
    return size * 1e6 if size else None


def _parse_gb(text: str) -> float | None:
    size = parse_positive(text)
    return size * 1e9 if size else None


def _parse_gib(text: str) -> float | None:
    size = parse_positive(text)
    return size * GIB if size else None


def _parse_flop(text: str) -> float | None:
    rate = parse_positive(text)
    return rate / 1e12 if rate else None


_LOSS = ("loss", parse_number)
_LR = ("lr", parse_number)
_GRAD_NORM = ("grad_norm", parse_number)
_STEP_S = ("step_s", parse_positive)
_STEP_MS = ("step_s", _parse_ms)
_SAMPLES = ("samples_per_s", parse_positive)
_TOKENS = ("tokens_per_s", parse_positive)
_GPU_TOKENS = ("tokens_per_s_per_gpu", parse_positive)
_TFLOPS = ("tflops_per_gpu", parse_positive)
_BYTES = ("memory_bytes", parse_positive)
_GIBIBYTES = ("memory_bytes", _parse_gib)

_TORCHTITAN_PAIRS = re.compile(
    rf"\b(loss|grad_norm|memory|tps|tflops|lr):\s*((?:{NUMBER})(?:\s*GiB)?)", re.ASCII
).findall

FRAMEWORKS = (
    LineFramework(
        name="torchtitan",
        hints=("tps:",),
        formats=(
            LineFormat(
                head=re.compile(r"validate step:\s*(?P<step>[\d,]+)\s", re.ASCII),
                pairs=_TORCHTITAN_PAIRS,
                fields={"loss": _LOSS},
                part=Part.EVENT,
                event=EventKind.VALIDATION,
            ),
            LineFormat(
                head=re.compile(r"\bstep:\s*(?P<step>[\d,]+)\s", re.ASCII),
                pairs=_TORCHTITAN_PAIRS,
                fields={
                    "loss": _LOSS,
                    "grad_norm": _GRAD_NORM,
                    "lr": _LR,
                    "memory": ("memory_bytes", lambda text: parse_size_bytes(f"{text.removesuffix('GiB')}GiB")),
                    "tps": _GPU_TOKENS,
                    "tflops": _TFLOPS,
                },
            ),
        ),
        example="step: 10  loss:  7.12  grad_norm: 1.2  memory: 45.12GiB(56.99%)  tps: 7,512  tflops: 401.23  mfu: 40%",
    ),
    LineFramework(
        name="nanotron",
        hints=("tokens_per_sec_per_gpu: ",),
        formats=(
            LineFormat(
                head=re.compile(r"\biteration: (?P<step>\d+) / (?P<total>\d+)", re.ASCII),
                pairs=split_piped_fields,
                fields={
                    "time_per_iteration_ms": _STEP_MS,
                    "elapsed_time_per_iteration_ms": _STEP_MS,
                    "tokens_per_sec": _TOKENS,
                    "tokens_per_sec_per_gpu": _GPU_TOKENS,
                    "model_tflops_per_gpu": _TFLOPS,
                    "global_batch_size": ("batch_tokens", parse_positive),
                    "lm_loss": _LOSS,
                    "grad_norm": _GRAD_NORM,
                    "lr": _LR,
                },
                required="step_s",
            ),
        ),
        example="iteration: 10 / 1000 | time_per_iteration_ms: 1.25K | tokens_per_sec_per_gpu: 4K | lm_loss: 9.5",
    ),
    LineFramework(
        name="picotron",
        hints=("Tokens/s/GPU: ",),
        formats=(
            LineFormat(
                head=re.compile(r"\bStep: (?P<step>\d+)\s*[|,]", re.ASCII),
                pairs=re.compile(
                    rf"\b([A-Z][\w/ ]{{0,40}}?):\s*((?:{NUMBER})(?:\s*[KMBT](?:GB|ms)?|GB|ms)?)", re.ASCII
                ).findall,
                fields={
                    "loss": _LOSS,
                    "global batch size": ("batch_tokens", parse_positive),
                    "tokens/s": _TOKENS,
                    "tokens/s/gpu": _GPU_TOKENS,
                    "memory usage": ("memory_bytes", partial(parse_size_bytes, binary=False)),
                },
            ),
        ),
        example="[rank 0] Step: 1 | Loss: 10.9 | Global batch size: 1.05M | Tokens/s: 12.3K | Tokens/s/GPU: 1.5K",
    ),
    LineFramework(
        name="maxtext",
        hints=("completed step: ",),
        formats=(
            LineFormat(
                head=re.compile(r"completed step: (?P<step>\d+), seconds: (?P<seconds>[\d.]+)", re.ASCII),
                pairs=re.compile(r"(TFLOP/s/device|Tokens/s/device|loss): ([^,\s]+)", re.ASCII).findall,
                fields={
                    "seconds": _STEP_S,
                    "loss": _LOSS,
                    "tflop/s/device": _TFLOPS,
                    "tokens/s/device": _GPU_TOKENS,
                },
            ),
        ),
        example="completed step: 10, seconds: 1.2, TFLOP/s/device: 412.3, Tokens/s/device: 12345.5, loss: 9.125",
    ),
    LineFramework(
        name="torchtune",
        hints=("Step ",),
        formats=(
            LineFormat(
                head=re.compile(r"^\s*Step (?P<step>\d+)\s*\|", re.ASCII),
                pairs=re.compile(rf"(\w+):({NUMBER})(?=\s|$)", re.ASCII).findall,
                fields={
                    "loss": _LOSS,
                    "lr": _LR,
                    "grad_norm": _GRAD_NORM,
                    "time_per_step_s": _STEP_S,
                    "tokens_per_second_per_gpu": _GPU_TOKENS,
                    "peak_memory*": _GIBIBYTES,
                },
                required="loss",
            ),
        ),
        example="Step 33 | loss:1.54 lr:9.9e-05 tokens_per_second_per_gpu:101 peak_memory_alloc:4.5",
    ),
    LineFramework(
        # Its steps are those of reinforcement learning, generation included.
        name="verl",
        hints=("timing_s/step:",),
        formats=(
            LineFormat(
                head=re.compile(r"\bstep:(?P<step>\d+) - ", re.ASCII),
                pairs=lambda text: split_piped_fields(text.replace(" - ", "|")),
                fields={
                    "timing_s/step": _STEP_S,
                    "perf/throughput": _GPU_TOKENS,
                    "actor/pg_loss": _LOSS,
                    "actor/grad_norm": _GRAD_NORM,
                    "actor/lr": _LR,
                    "perf/max_memory_allocated_gb": _GIBIBYTES,
                },
            ),
        ),
        example="step:1 - actor/pg_loss:1 - timing_s/step:93 - perf/throughput:1234.5",
    ),
    LineFramework(
        # AWS's FSDP examples; samples are those of the whole job.
        name="pytorch-fsdp",
        hints=(" samples/sec",),
        formats=(
            LineFormat(
                head=re.compile(
                    r"\bBatch (?P<step>\d+) Loss: (?P<loss>[^,\s]+), Speed: (?P<speed>[\d.]+) samples/sec, "
                    r"lr: (?P<lr>[\d.e+-]+)",
                    re.ASCII,
                ),
                fields={"loss": _LOSS, "speed": _SAMPLES, "lr": _LR},
            ),
        ),
        example="Batch 3 Loss: 15.01, Speed: 10.61 samples/sec, lr: 0.0001",
    ),
    LineFramework(
        # Composer and LLM Foundry.
        name="composer",
        hints=("batch=", "Train "),
        formats=(
            LineFormat(
                head=re.compile(r"\[Eval batch=(\d+)/\1\]", re.ASCII), part=Part.EVENT, event=EventKind.VALIDATION
            ),
            *(
                LineFormat(
                    head=head,
                    pairs=re.compile(rf"\bTrain ([\w./-]+):\s*({NUMBER})", re.ASCII).findall,
                    fields={
                        "throughput/batches_per_sec": ("step_s", _invert),
                        "throughput/tokens_per_sec": _TOKENS,
                        "throughput/device/tokens_per_sec": _GPU_TOKENS,
                        "throughput/samples_per_sec": _SAMPLES,
                        "throughput/device/flops_per_sec": ("tflops_per_gpu", _parse_flop),
                        "memory/peak_allocated_mem": ("memory_bytes", _parse_gb),
                        "memory/peak_reserved_mem": ("memory_bytes", _parse_gb),
                        "loss/train/total": _LOSS,
                        "l2_norm/grad/global": _GRAD_NORM,
                        "lr-*": _LR,
                    },
                    part=part,
                )
                for head, part in (
                    (re.compile(r"\[batch=(?P<step>\d+)/(?P<total>\d+)\]", re.ASCII), Part.OPEN),
                    (None, Part.MORE),
                )
            ),
        ),
        example="[batch=100/4800]:\n\t Train loss/train/total: 7.25\n\t Train throughput/batches_per_sec: 0.5",
    ),
    LineFramework(
        # OLMo and OLMo-core.
        name="olmo",
        hints=("[step=", "train/", "throughput/", "optim/", "System/", "gpu_memory/"),
        formats=(
            LineFormat(
                head=re.compile(r"\[step=(?P<step>[\d,]+)(?:/(?P<total>[\d,]+))?[,\]]", re.ASCII), part=Part.OPEN
            ),
            LineFormat(
                pairs=re.compile(
                    rf"^\s*((?:train|throughput|optim|system|gpu_memory)/?[^=]{{0,80}})=({NUMBER})",
                    re.ASCII | re.IGNORECASE,
                ).findall,
                fields={
                    "throughput/device/tokens_per_second": _GPU_TOKENS,
                    "throughput/device/tps": _GPU_TOKENS,
                    "throughput/device/batches_per_second": ("step_s", _invert),
                    "throughput/device/bps": ("step_s", _invert),
                    "train/crossentropyloss": _LOSS,
                    "train/ce loss": _LOSS,
                    "optim/total_grad_norm": _GRAD_NORM,
                    "optim/total grad norm": _GRAD_NORM,
                    "optim/learning_rate_group0*": _LR,
                    "optim/lr*": _LR,
                    "system/peak gpu memory (mb)": ("memory_bytes", _parse_mb),
                    "gpu_memory/*peak*(gib)*": _GIBIBYTES,
                },
                part=Part.MORE,
            ),
        ),
        example="[step=10/1000,epoch=1]\n    train/CrossEntropyLoss=10.75\n    throughput/device/tps=45,538",
    ),
    LineFramework(
        name="fms-fsdp",
        rank=25,
        hints=("step: ", "loss: ", "LR: ", "norm: ", "memory: ", "step time: ", "per sec: "),
        formats=(
            LineFormat(head=re.compile(r"^\s*step: (?P<step>\d+)\s*$", re.ASCII), part=Part.OPEN),
            LineFormat(
                pairs=re.compile(r"^\s*([A-Za-z][a-zA-Z ]{1,40}): (\S+)\s*$", re.ASCII).findall,
                fields={
                    "loss": _LOSS,
                    "lr": _LR,
                    "gradient norm": _GRAD_NORM,
                    "allocated memory": _BYTES,
                    "current step time": _STEP_S,
                    "current token per gpu per sec": _GPU_TOKENS,
                },
                part=Part.MORE,
            ),
        ),
        example="step: 100\nloss: 5.25\nLR: 0.0003\ncurrent step time: 1.5\ncurrent token per gpu per sec: 10922.5",
    ),
    LineFramework(
        # DeepSpeed's engine: pipeline steps, timers, learning rates. Rates are of the whole job: the current one, else
        # the mean over the run. Memory is of the rank that prints it; its GB are GIB bytes.
        name="deepspeed",
        rank=40,
        hints=("RunningAvgSamplesPerSec=", " iter time (s): ", "] step="),
        formats=(
            LineFormat(
                head=re.compile(
                    r"\bsteps: (?P<step>\d+) loss: (?P<loss>\S+) iter time \(s\): (?P<seconds>\S+) "
                    r"samples/sec: (?P<speed>\S+)",
                    re.ASCII,
                ),
                fields={"loss": _LOSS, "seconds": _STEP_S, "speed": _SAMPLES},
            ),
            LineFormat(
                head=re.compile(
                    r"global_step=(?P<step>\d+), RunningAvgSamplesPerSec=(?P<average>[^,\s]+)"
                    r"(?:, CurrSamplesPerSec=(?P<current>[^,\s]+))?(?:, MemAllocated=(?P<allocated>[^,\s]+))?"
                    r"(?:, MaxMemAllocated=(?P<peak>[^,\s]+))?",
                    re.ASCII,
                ),
                fields={
                    "current": _SAMPLES,
                    "average": _SAMPLES,
                    "peak": ("memory_bytes", parse_size_bytes),
                    "allocated": ("memory_bytes", parse_size_bytes),
                },
                part=Part.OPEN,
            ),
            LineFormat(
                head=re.compile(r"\[Rank 0\] step=(?P<step>(?!0,)\d+), skipped=\d+, lr=\[(?P<lr>[^,\]]+)", re.ASCII),
                fields={"lr": _LR},
                part=Part.OPEN,
            ),
        ),
        example="steps: 10 loss: 2.1250 iter time (s): 1.250 samples/sec: 204.800",
    ),
)

_OWN_LOOP = LineFramework(
    name="opsk-report",
    rank=1,
    hints=(f"{MARK} ",),
    formats=(
        LineFormat(
            head=re.compile(rf"{MARK} (?P<step>\d{{1,15}})(?:/(?P<total>\d{{1,15}}))? at=", re.ASCII),
            pairs=re.compile(r"(?<=\s)([a-z_]{1,32})=(\S{1,40})", re.ASCII).findall,
            fields={
                "step_s": _STEP_S,
                "samples": ("batch", parse_positive),
                "tokens": ("batch_tokens", parse_positive),
                "gpus": ("gpus", parse_positive),
                "tflops_per_gpu": _TFLOPS,
                "memory_bytes": _BYTES,
                "loss": _LOSS,
                "grad_norm": _GRAD_NORM,
                "lr": _LR,
            },
        ),
    ),
    example=f"{MARK} 12/1000 at=2026-01-01T00:00:00Z step_s=2.5 tokens=1048576 gpus=8 loss=2.1",
)


class OwnLoopReader(FormatReader):
    """Lines of a training loop that calls `opsk.telemetry.report`: they take precedence over all others."""

    def __init__(self) -> None:
        super().__init__(_OWN_LOOP)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line, and compute its rates."""
        parsed = super().read(text)
        if parsed is None:
            return None
        values = dict(parsed.values)
        gpus, tokens, step_s = values.pop("gpus", None), values.get("batch_tokens"), values.get("step_s")
        if tokens and step_s:
            values["tokens_per_s"] = tokens / step_s
            if gpus:
                values["tokens_per_s_per_gpu"] = tokens / step_s / gpus
        return replace(parsed, values=values)


class LitgptReader(Reader):
    """Lines of LitGPT: ``Epoch 1 | iter 64 step 1 | loss train: 10.1, val: n/a | iter time: 1234.56 ms (step)``.

    An iteration is a micro-batch; ``step`` counts those of the optimizer: it takes as many iterations as lie between.
    """

    name = "litgpt"
    rank = 20
    hints = ("iter time: ",)
    _LINE = re.compile(
        r"\biter\s+(\d+)[:,]?\s*\|?\s*step\s+(\d+)\s*[|:,]\s*loss(?: train)?:?\s*([^,\s|]+)"
        r"[^:]{0,80}(?:val:[^:]{0,80})?iter time:\s*([\d.]+)\s*ms",
        re.ASCII,
    )

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._per_step: float | None = None

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        match = self._LINE.search(text)
        if match is None:
            return None
        iteration, step = parse_whole(match[1]), parse_whole(match[2])
        if iteration is None or step is None:
            return None
        last, self._last = self._last, (iteration, step)
        if last is not None and step > last[1] and iteration > last[0]:
            self._per_step = (iteration - last[0]) / (step - last[1])
        elapsed_s = _parse_ms(match[4])
        step_s = elapsed_s * self._per_step if elapsed_s and self._per_step else None
        return ParsedLine(
            part=Part.OPEN, iteration=step, values=drop_missing(loss=parse_number(match[3]), step_s=step_s)
        )
