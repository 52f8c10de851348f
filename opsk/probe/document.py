"""Reads the document of a measurement, as `opsk.probe.program` writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from opsk.errors import InputError
from opsk.units import MIB

MAX_BYTES = 16 * MIB
"""A document of all parts on 64 GPUs has some 100 kB."""
MAX_SPREAD = 0.1
"""A measurement whose quartiles are farther apart was disturbed [ratio]."""
FORMAT, VERSION = "opsk-probe", 1
_HINT = "is this a file of opsk probe, of this release?"
_MAX_REPORTED = 5
Positive = Annotated[float, Field(gt=0, lt=1e18)]
Share = Annotated[float, Field(ge=0, lt=1e6)]
Name = Annotated[str, Field(max_length=300)]
Number = Annotated[int, Field(ge=1, le=1 << 40)]


class _Part(BaseModel):
    """One row; fields of newer programs are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class _Loaded(_Part):
    """A row with the state of the GPU at its end; ``None`` where NVML was not read."""

    clock_hz: Positive | None = None
    power_w: Positive | None = None
    temperature_c: float | None = None
    is_throttled: bool = False


class Machine(_Part):
    """What was measured, with which software."""

    device: Literal["cuda", "cpu"]
    gpu: Name
    ranks: Number
    nodes: Number
    gpus_per_node: Number
    torch: Name
    memory_bytes: Positive | None = None
    driver: Name = ""
    cuda: Name = ""
    nccl: Name = ""
    power_limit_w: Positive | None = None
    max_clock_hz: Positive | None = None


class Launch(_Part):
    """Time from one small kernel to the next [s]."""

    gap_s: Positive


class Copy(_Loaded):
    """A copy inside the GPU's memory; every byte counts twice."""

    size_bytes: Number
    time_s: Positive
    spread: Share
    bytes_per_s: Positive


class Product(_Loaded):
    """A product of matrices of m x k and k x n elements."""

    precision: Name
    m: Number
    k: Number
    n: Number
    time_s: Positive
    spread: Share
    flop_per_s: Positive


class Attention(_Part):
    """Causal attention: forward, and forward with backward."""

    kernel: Name
    length: Number
    head: Number
    forward_s: Positive
    both_s: Positive
    spread: Share
    forward_flop_per_s: Positive
    both_flop_per_s: Positive


class HostCopy(_Part):
    """A copy between host and GPU."""

    way: Literal["to_gpu", "to_host"]
    size_bytes: Number
    time_s: Positive
    spread: Share
    bytes_per_s: Positive


class Collective(_Part):
    """A collective on an array of ``size_bytes`` in all, among ``ranks`` on ``nodes``."""

    collective: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    scope: Literal["all", "node", "rail"]
    ranks: Number
    nodes: Number
    size_bytes: Number
    time_s: Positive
    spread: Share


class Training(_Part):
    """A step of the small model; one that does not state the whole model is shown and not fitted to."""

    variant: Name
    micro_batch: Number
    ranks: Number
    layers: Number
    hidden: Number
    seq: Number
    ffn: Number | None = None
    heads: Number | None = None
    vocab: Number | None = None
    step_s: Positive
    allocated_bytes: Positive | None = None
    reserved_bytes: Positive | None = None
    device_bytes: Positive | None = None


class Sustained(_Loaded):
    """A second of large products."""

    flop_per_s: Positive


class Skipped(_Part):
    """What was not measured, and why."""

    part: Name
    why: Name


class ProbeDocument(_Part):
    """A whole measurement."""

    format: Literal["opsk-probe"]
    version: Literal[1]
    measured_at: Name
    took_s: Share
    machine: Machine
    launch: tuple[Launch, ...] = ()
    memory: tuple[Copy, ...] = ()
    matmul: tuple[Product, ...] = ()
    attention: tuple[Attention, ...] = ()
    host_link: tuple[HostCopy, ...] = ()
    collectives: tuple[Collective, ...] = ()
    training: tuple[Training, ...] = ()
    sustained: tuple[Sustained, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def throttled_share(self) -> float:
        """Share of the measurements at whose end heat held the clock down [ratio]."""
        loaded = [*self.memory, *self.matmul, *self.sustained]
        return sum(row.is_throttled for row in loaded) / len(loaded) if loaded else 0.0

    @property
    def disturbed(self) -> int:
        """Number of measurements whose repetitions differ too much."""
        parts = (self.memory, self.matmul, self.attention, self.host_link, self.collectives)
        return sum(row.spread > MAX_SPREAD for part in parts for row in part)


def parse_probe(text: str | bytes, *, origin: str) -> ProbeDocument:
    """Return the measurement in a document.

    Raises
    ------
    InputError
        It is torn, no measurement, or has values that nothing measures.
    """
    if len(text) > MAX_BYTES:
        raise InputError(f"{origin}: larger than {MAX_BYTES} bytes", hint=_HINT)
    try:
        return ProbeDocument.model_validate_json(text)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        if errors[0]["type"] == "json_invalid":
            raise InputError(f"{origin}: no whole JSON document", hint="was the job ended? submit it again") from error
        raise InputError(f"{origin}: {_describe_errors(text, errors)}", hint=_HINT) from error


def _describe_errors(text: str | bytes, errors: Sequence[ErrorDetails]) -> str:
    """Return in a line what is wrong with a document that is whole."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        return "no measurement of opsk probe"
    if type(values.get("version")) is int and values["version"] != VERSION:
        return f"a measurement in format {values['version']}, and this release reads format {VERSION}"
    wrong = [f"{'.'.join(map(str, item['loc'])) or 'document'}: {item['msg']}" for item in errors]
    more = f"; and {len(wrong) - _MAX_REPORTED} more" if len(wrong) > _MAX_REPORTED else ""
    return f"{'; '.join(wrong[:_MAX_REPORTED])}{more}"
