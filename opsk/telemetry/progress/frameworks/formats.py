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
from opsk.telemetry.progress.records import EventKind, ParsedLine, Reader, StepPart
from opsk.units import GIB, MIB

Pairs = Callable[[str], Iterable[tuple[str, str]]]
ParseField = Callable[[str], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """One kind of line.

    Parameters
    ----------
    head
        Finds the line; its groups ``step`` and ``total`` number the step, others are fields. Without a head any line
        with a field counts. With a group ``epoch`` they number the step in an epoch, and ``epochs`` counts epochs.
    pairs
        Splits what follows the head into names and texts of fields.
    fields
        By name in lower case, with ``*`` for any text: the value that a field gives, and how it is parsed. Of several
        fields of one value the first counts.
    part, event
        How the line belongs to a step. Lines of `Part.MORE` count once a step has begun.
    required
        A value without which it is another program's line.
    first_epoch
        The number of the first epoch.
    """

    head: re.Pattern[str] | None = None
    pairs: Pairs | None = None
    fields: Mapping[str, tuple[str, ParseField]] = field(default_factory=dict)
    part: StepPart = StepPart.STEP
    event: EventKind | None = None
    required: str | None = None
    first_epoch: int = 0

    def parse(self, text: str) -> ParsedLine | None:
        """Parse one line; ``None`` when it is another one."""
        head = self.head.search(text) if self.head else None
        if self.head and head is None:
            return None
        groups = head.groupdict() if head else {}
        step, total = parse_whole(groups.get("step") or ""), parse_whole(groups.get("total") or "")
        if step is None and groups.get("step"):
            return None
        epoch = parse_whole(groups.get("epoch") or "")
        if epoch is not None and step is not None and total is not None:
            epochs = parse_whole(groups.get("epochs") or "")
            step += max(epoch - self.first_epoch, 0) * total
            total = epochs * total if epochs is not None else None
        values = self._parse_values(groups, text[head.end() :] if head else text)
        if (self.required and self.required not in values) or (self.part is StepPart.MORE and not values):
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
            parsed = line_format.parse(text) if self._is_open or line_format.part is not StepPart.MORE else None
            if parsed is not None:
                self._is_open = self._is_open or parsed.part is StepPart.OPEN
                return parsed
        return None


def _find_matching(texts: Mapping[str, str | None], pattern: str) -> str | None:
    return next((text for name, text in texts.items() if fnmatchcase(name, pattern)), None)


def parse_ms(text: str) -> float | None:
    """Return a time in milliseconds in seconds."""
    elapsed_ms = parse_positive(text)
    return elapsed_ms / 1e3 if elapsed_ms else None


def invert(text: str) -> float | None:
    """Return the time of one of what a rate counts [s]."""
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


def parse_mib(text: str) -> float | None:
    """Return a size in bytes of a number of MiB, whatever a framework calls them."""
    size = parse_positive(text)
    return size * MIB if size else None


def _parse_flop(text: str) -> float | None:
    rate = parse_positive(text)
    return rate / 1e12 if rate else None


LOSS = ("loss", parse_number)
LR = ("lr", parse_number)
GRAD_NORM = ("grad_norm", parse_number)
STEP_S = ("step_s", parse_positive)
STEP_MS = ("step_s", parse_ms)
SAMPLES = ("samples_per_s", parse_positive)
TOKENS = ("tokens_per_s", parse_positive)
GPU_TOKENS = ("tokens_per_s_per_gpu", parse_positive)
TFLOPS = ("tflops_per_gpu", parse_positive)
BYTES = ("memory_bytes", parse_positive)
GIBIBYTES = ("memory_bytes", _parse_gib)

_TORCHTITAN_PAIRS = re.compile(
    rf"\b(loss|grad_norm|memory|tps|tflops|lr):\s*((?:{NUMBER})(?:\s*GiB)?)", re.ASCII
).findall

_LEROBOT_PAIRS = re.compile(rf"\b(loss|grdn|lr|updt_s|data_s):({NUMBER})", re.ASCII).findall


def _split_lerobot(text: str) -> list[tuple[str, str]]:
    """Return the fields of a line of lerobot, and the time of a step: that of the update and of the wait for data."""
    pairs = _LEROBOT_PAIRS(text)
    times_s = [value for name, value in pairs if name in ("updt_s", "data_s")]
    known = [seconds for each in times_s if (seconds := parse_number(each)) is not None]
    return [*pairs, ("both_s", str(sum(known)))] if known else pairs


FRAMEWORKS = (
    LineFramework(
        name="torchtitan",
        hints=("tps:",),
        formats=(
            LineFormat(
                head=re.compile(r"validate step:\s*(?P<step>[\d,]+)\s", re.ASCII),
                pairs=_TORCHTITAN_PAIRS,
                fields={"loss": LOSS},
                part=StepPart.EVENT,
                event=EventKind.VALIDATION,
            ),
            LineFormat(
                head=re.compile(r"\bstep:\s*(?P<step>[\d,]+)\s", re.ASCII),
                pairs=_TORCHTITAN_PAIRS,
                fields={
                    "loss": LOSS,
                    "grad_norm": GRAD_NORM,
                    "lr": LR,
                    "memory": ("memory_bytes", lambda text: parse_size_bytes(f"{text.removesuffix('GiB')}GiB")),
                    "tps": GPU_TOKENS,
                    "tflops": TFLOPS,
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
                    "time_per_iteration_ms": STEP_MS,
                    "elapsed_time_per_iteration_ms": STEP_MS,
                    "tokens_per_sec": TOKENS,
                    "tokens_per_sec_per_gpu": GPU_TOKENS,
                    "model_tflops_per_gpu": TFLOPS,
                    "global_batch_size": ("batch_tokens", parse_positive),
                    "lm_loss": LOSS,
                    "grad_norm": GRAD_NORM,
                    "lr": LR,
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
                    "loss": LOSS,
                    "global batch size": ("batch_tokens", parse_positive),
                    "tokens/s": TOKENS,
                    "tokens/s/gpu": GPU_TOKENS,
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
                    "seconds": STEP_S,
                    "loss": LOSS,
                    "tflop/s/device": TFLOPS,
                    "tokens/s/device": GPU_TOKENS,
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
                    "loss": LOSS,
                    "lr": LR,
                    "grad_norm": GRAD_NORM,
                    "time_per_step_s": STEP_S,
                    "tokens_per_second_per_gpu": GPU_TOKENS,
                    "peak_memory*": GIBIBYTES,
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
                    "timing_s/step": STEP_S,
                    "perf/throughput": GPU_TOKENS,
                    "actor/pg_loss": LOSS,
                    "actor/grad_norm": GRAD_NORM,
                    "actor/lr": LR,
                    "perf/max_memory_allocated_gb": GIBIBYTES,
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
                fields={"loss": LOSS, "speed": SAMPLES, "lr": LR},
            ),
        ),
        example="Batch 3 Loss: 15.01, Speed: 10.61 samples/sec, lr: 0.0001",
    ),
    LineFramework(
        # From 1,000 on its steps are rounded.
        name="lerobot",
        hints=("updt_s:",),
        formats=(
            LineFormat(
                head=re.compile(r"\bstep:(?:(?P<step>\d+)|[\d.]+[KMB]) smpl:", re.ASCII),
                pairs=_split_lerobot,
                fields={"loss": LOSS, "grdn": GRAD_NORM, "lr": LR, "both_s": STEP_S},
            ),
        ),
        example="INFO ts/train.py:232 step:200 smpl:2K ep:3 loss:7.49 grdn:154.5 lr:1.0e-05 updt_s:0.05",
    ),
    LineFramework(
        # The time in its lines is that since the line before, of many steps.
        name="openpi",
        hints=("param_norm=", "step="),
        formats=tuple(
            LineFormat(
                head=head,
                pairs=re.compile(rf"\b(loss|grad_norm|lr)=({NUMBER})", re.ASCII).findall,
                fields={"loss": LOSS, "grad_norm": GRAD_NORM, "lr": LR},
                required="loss",
            )
            for head in (
                re.compile(r"^Step (?P<step>\d+): (?=.{0,400}\bparam_norm=)", re.ASCII),
                re.compile(r"\bstep=(?P<step>\d+) (?=loss=\S+ lr=\S+ (?:grad_norm=\S+ )?time=[\d.]+s\s*$)", re.ASCII),
            )
        ),
        example="Step 100: grad_norm=1.0014, loss=0.0785, param_norm=1379.7463",
    ),
    LineFramework(
        # And CVNets before it: the step counts over all epochs.
        name="corenet",
        hints=("Avg. batch load time",),
        formats=(
            LineFormat(
                head=re.compile(r"\bEpoch:\s+\d+ \[\s*(?P<step>\d+)/\s*(?P<total>\d+)\], ", re.ASCII),
                pairs=re.compile(rf"\b(total_loss|loss)'?: ({NUMBER})", re.ASCII).findall,
                fields={"total_loss": LOSS, "loss": LOSS},
            ),
        ),
        example="LOGS    - Epoch:   1 [     124/10000000], loss: 15.67, LR: [1.3e-05], Avg. batch load time: 0.899",
    ),
    LineFramework(
        # Composer and LLM Foundry.
        name="composer",
        hints=("batch=", "Train "),
        formats=(
            LineFormat(
                head=re.compile(r"\[Eval batch=(\d+)/\1\]", re.ASCII), part=StepPart.EVENT, event=EventKind.VALIDATION
            ),
            *(
                LineFormat(
                    head=head,
                    pairs=re.compile(rf"\bTrain ([\w./-]+):\s*({NUMBER})", re.ASCII).findall,
                    fields={
                        "throughput/batches_per_sec": ("step_s", invert),
                        "throughput/tokens_per_sec": TOKENS,
                        "throughput/device/tokens_per_sec": GPU_TOKENS,
                        "throughput/samples_per_sec": SAMPLES,
                        "throughput/device/flops_per_sec": ("tflops_per_gpu", _parse_flop),
                        "memory/peak_allocated_mem": ("memory_bytes", _parse_gb),
                        "memory/peak_reserved_mem": ("memory_bytes", _parse_gb),
                        "loss/train/total": LOSS,
                        "l2_norm/grad/global": GRAD_NORM,
                        "lr-*": LR,
                    },
                    part=part,
                )
                for head, part in (
                    (re.compile(r"\[batch=(?P<step>\d+)/(?P<total>\d+)\]", re.ASCII), StepPart.OPEN),
                    (None, StepPart.MORE),
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
                head=re.compile(r"\[step=(?P<step>[\d,]+)(?:/(?P<total>[\d,]+))?[,\]]", re.ASCII), part=StepPart.OPEN
            ),
            LineFormat(
                pairs=re.compile(
                    rf"^\s*((?:train|throughput|optim|system|gpu_memory)/?[^=]{{0,80}})=({NUMBER})",
                    re.ASCII | re.IGNORECASE,
                ).findall,
                fields={
                    "throughput/device/tokens_per_second": GPU_TOKENS,
                    "throughput/device/tps": GPU_TOKENS,
                    "throughput/device/batches_per_second": ("step_s", invert),
                    "throughput/device/bps": ("step_s", invert),
                    "train/crossentropyloss": LOSS,
                    "train/ce loss": LOSS,
                    "optim/total_grad_norm": GRAD_NORM,
                    "optim/total grad norm": GRAD_NORM,
                    "optim/learning_rate_group0*": LR,
                    "optim/lr*": LR,
                    "system/peak gpu memory (mb)": ("memory_bytes", _parse_mb),
                    "gpu_memory/*peak*(gib)*": GIBIBYTES,
                },
                part=StepPart.MORE,
            ),
        ),
        example="[step=10/1000,epoch=1]\n    train/CrossEntropyLoss=10.75\n    throughput/device/tps=45,538",
    ),
    LineFramework(
        name="fms-fsdp",
        rank=25,
        hints=("step: ", "loss: ", "LR: ", "norm: ", "memory: ", "step time: ", "per sec: "),
        formats=(
            LineFormat(head=re.compile(r"^\s*step: (?P<step>\d+)\s*$", re.ASCII), part=StepPart.OPEN),
            LineFormat(
                pairs=re.compile(r"^\s*([A-Za-z][a-zA-Z ]{1,40}): (\S+)\s*$", re.ASCII).findall,
                fields={
                    "loss": LOSS,
                    "lr": LR,
                    "gradient norm": GRAD_NORM,
                    "allocated memory": BYTES,
                    "current step time": STEP_S,
                    "current token per gpu per sec": GPU_TOKENS,
                },
                part=StepPart.MORE,
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
                fields={"loss": LOSS, "seconds": STEP_S, "speed": SAMPLES},
            ),
            LineFormat(
                head=re.compile(
                    r"global_step=(?P<step>\d+), RunningAvgSamplesPerSec=(?P<average>[^,\s]+)"
                    r"(?:, CurrSamplesPerSec=(?P<current>[^,\s]+))?(?:, MemAllocated=(?P<allocated>[^,\s]+))?"
                    r"(?:, MaxMemAllocated=(?P<peak>[^,\s]+))?",
                    re.ASCII,
                ),
                fields={
                    "current": SAMPLES,
                    "average": SAMPLES,
                    "peak": ("memory_bytes", parse_size_bytes),
                    "allocated": ("memory_bytes", parse_size_bytes),
                },
                part=StepPart.OPEN,
            ),
            LineFormat(
                head=re.compile(r"\[Rank 0\] step=(?P<step>(?!0,)\d+), skipped=\d+, lr=\[(?P<lr>[^,\]]+)", re.ASCII),
                fields={"lr": LR},
                part=StepPart.OPEN,
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
                "step_s": STEP_S,
                "samples": ("batch", parse_positive),
                "tokens": ("batch_tokens", parse_positive),
                "gpus": ("gpus", parse_positive),
                "tflops_per_gpu": TFLOPS,
                "memory_bytes": BYTES,
                "loss": LOSS,
                "grad_norm": GRAD_NORM,
                "lr": LR,
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
        elapsed_s = parse_ms(match[4])
        step_s = elapsed_s * self._per_step if elapsed_s and self._per_step else None
        return ParsedLine(
            part=StepPart.OPEN, iteration=step, values=drop_missing(loss=parse_number(match[3]), step_s=step_s)
        )
