"""What is in a text of nvidia-smi: one or several full queries, lists, links, or the reason why there is none?

A capture of several answers one after another is read as such; what ``-L`` and ``nvlink`` say is added to the GPUs of
every full query. A GPU that does not answer is in ``reading.lost``, an error in place of a value in
``reading.unreadable``; "not supported" is neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from opsk.telemetry.gpu.nvidia_smi.gpu import sample_of
from opsk.telemetry.gpu.nvidia_smi.links import ListedGpu, read_list
from opsk.telemetry.gpu.nvidia_smi.query import is_header, read_rows
from opsk.telemetry.gpu.nvidia_smi.tree import Section, read_tree
from opsk.telemetry.gpu.nvidia_smi.values import Absent, absent, printable, whole, word
from opsk.telemetry.gpu.samples import GpuReading, GpuSample, LostGpu, Unreadable, normalise_pci

_MOST_LINES = 1_000_000
_MOST_UNREADABLE = 200
_HEADER = re.compile(r"=+NVSMI LOG=+")
_GPU_LINE = re.compile(r"GPU (?:[0-9a-fA-F]{1,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\s*")
_TOP = ("timestamp", "driver version", "cuda version", "attached gpus", "hic", "nvml version")
_NO_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu)\s{0,2}"
    r"(?:(?P<pci>(?:[0-9a-fA-F]{4,8}:)[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
    r"|(?P<index>\d{1,3}):?\s{0,2}(?P<pci2>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])?)"
    r"\s{0,2}:\s{0,2}(?P<why>[^\n]{0,200})"
)
_STAMPS = ("%a %b %d %H:%M:%S %Y", "%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S")
_UNKNOWN_INDEX = -1


class SmiProblem(StrEnum):
    """Why nvidia-smi gave no answer."""

    NO_DEVICES = "no devices were found"
    NO_DRIVER = "couldn't communicate with the nvidia driver"
    VERSION_MISMATCH = "driver/library version mismatch"
    NO_LIBRARY = "couldn't find libnvidia-ml"
    INITIALISATION = "failed to initialize nvml"
    NO_PROGRAM = "command not found"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiReport:
    """One full query (``-q``, or rows of ``--query-gpu``).

    Parameters
    ----------
    reading
        GPUs, lost ones, and what could not be read; ``read_at_s`` is 0 unless the reader was told.
    table
        Whether it is a table of ``--query-gpu``, which shows chosen columns only.
    taken_at
        Wall clock of the query, without zone.
    attached
        GPUs that the driver says it has; more than there are in ``reading`` when the text was cut or a GPU is lost.
    """

    reading: GpuReading
    table: bool = False
    taken_at: datetime | None = None
    attached: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiText:
    """All that a text of nvidia-smi says.

    Parameters
    ----------
    reports
        Full queries in order, then tables.
    listed
        GPUs of ``-L`` and ``nvlink``.
    lost
        GPUs that nvidia-smi could get no handle for; they are in every report as well.
    problem, said
        Why there is no answer, and the line that says so.
    """

    reports: tuple[SmiReport, ...] = ()
    listed: tuple[ListedGpu, ...] = ()
    lost: tuple[LostGpu, ...] = ()
    problem: SmiProblem | None = None
    said: str = ""


def read_nvidia_smi(text: str, read_at_s: float = 0.0) -> SmiText:
    """Return what a text of nvidia-smi says; a text of something else gives nothing.

    Parameters
    ----------
    text
        Output of nvidia-smi, or a capture of several.
    read_at_s
        Monotonic time of the reading [s], for the reports.
    """
    lines = text.split("\n", _MOST_LINES)[:_MOST_LINES]
    problem, said = _problem(lines)
    lost = tuple(_lost(lines))
    listed = read_list("\n".join(lines))
    reports = [
        _completed(report, listed, lost, read_at_s)
        for report in (*_queries(lines), *_tables(lines))
        if report is not None
    ]
    return SmiText(reports=tuple(reports), listed=listed, lost=lost, problem=problem, said=said)


def _problem(lines: Sequence[str]) -> tuple[SmiProblem | None, str]:
    """Return why nvidia-smi gave no answer, from the lines that begin with its complaint."""
    for line in lines[:200]:
        words = line[:300].strip()
        lowered = words.casefold()
        for problem in (
            SmiProblem.VERSION_MISMATCH,
            SmiProblem.NO_DEVICES,
            SmiProblem.NO_DRIVER,
            SmiProblem.NO_LIBRARY,
            SmiProblem.INITIALISATION,
            SmiProblem.NO_PROGRAM,
        ):
            complaint = lowered.startswith(("no devices", "nvidia-smi", "failed to initialize", "bash: ", "sh: "))
            if problem.value in lowered and (complaint or lowered.endswith("command not found")):
                return problem, printable(words)
    return None, ""


def _lost(lines: Sequence[str]) -> Iterator[LostGpu]:
    """Give the GPUs that nvidia-smi could get no handle for."""
    seen = set()
    for line in lines:
        found = _NO_HANDLE.search(line[:500]) if "device handle" in line else None
        if found is None or found[0] in seen:
            continue
        seen.add(found[0])
        yield LostGpu(
            uuid=None,
            index=int(found["index"]) if found["index"] else _UNKNOWN_INDEX,
            pci=normalise_pci(found["pci"] or found["pci2"] or ""),
            why=printable(found["why"])[:120] or Absent.UNKNOWN_ERROR.value,
        )


def _queries(lines: Sequence[str]) -> Iterator[SmiReport | None]:
    """Give the full queries of a text: each begins with its header, or, where that was cut off, with a GPU's line."""
    block: list[str] = []
    inside = False
    for line in lines:
        plain = line.rstrip()
        if _HEADER.fullmatch(plain) or (plain.lower().startswith("timestamp  ") and not _is_top_block(block)):
            if _holds_gpus(block):
                yield _query(block)
            block, inside = [], True
        if inside or _GPU_LINE.fullmatch(plain) or plain.casefold().startswith(_TOP):
            inside = inside or bool(_GPU_LINE.fullmatch(plain))
            if _ends_query(plain):
                yield _query(block) if _holds_gpus(block) else None
                block, inside = [], False
            else:
                block.append(line)
    if _holds_gpus(block):
        yield _query(block)


def _is_top_block(block: Sequence[str]) -> bool:
    """Whether a block has just begun: its header and nothing else."""
    return all(not line.strip() or _HEADER.fullmatch(line.rstrip()) for line in block)


def _holds_gpus(block: Sequence[str]) -> bool:
    return any(_GPU_LINE.fullmatch(line.rstrip()) for line in block)


def _ends_query(line: str) -> bool:
    """Whether a line is no part of a full query any more: it stands at the left margin and is none of its keys."""
    if not line or line[0].isspace() or _GPU_LINE.fullmatch(line) or _HEADER.fullmatch(line):
        return False
    return not line.casefold().startswith((*_TOP, "[", "unable to"))


def _query(block: Sequence[str]) -> SmiReport:
    """Return one full query."""
    tree = read_tree(line for line in block if not _HEADER.fullmatch(line.rstrip()))
    gpus, lost, unreadable = [], [], []
    sections = [part for part in tree.parts if _GPU_LINE.fullmatch(part.title) or part.name.startswith("gpu ")]
    for index, section in enumerate(sections):
        sample = sample_of(section, index)
        errors = [(title, why) for title, text in section.all_values() if (why := absent(text)) and why.is_error]
        gone = _why_gone(section, sample)
        if gone is not None:
            lost.append(
                LostGpu(uuid=sample.uuid or None, index=index, pci=sample.pci, model=sample.model, why=gone.value)
            )
        else:
            gpus.append(sample)
            unreadable += [
                Unreadable(gpu=sample.uuid or sample.pci, what=word(title) or "", error=why.value)
                for title, why in errors
            ]
    return SmiReport(
        reading=GpuReading(
            read_at_s=0.0,
            driver=word(tree.value("driver version")),
            cuda=word(tree.value("cuda version")),
            gpus=tuple(gpus),
            lost=tuple(lost),
            unreadable=tuple(unreadable[:_MOST_UNREADABLE]),
        ),
        taken_at=_moment(tree.value("timestamp")),
        attached=whole(tree.value("attached gpus")),
    )


def _why_gone(section: Section, sample: GpuSample) -> Absent | None:
    """Return why a GPU of a query is lost: its identity, or all that is measured, is an error."""
    identity = [why for key in ("gpu uuid", "product name") if (why := absent(section.value(key))) and why.is_error]
    if identity:
        return identity[0]
    values = [absent(text) for _, text in section.all_values()]
    errors = [why for why in values if why is not None and why.is_error]
    lost = [why for why in errors if why is Absent.LOST]
    if lost and sample.memory is None and not sample.temperatures_c:
        return lost[0]
    return None


def _tables(lines: Sequence[str]) -> Iterator[SmiReport]:
    """Give the tables of ``--query-gpu``."""
    for number, line in enumerate(lines):
        if ", " not in line or "." not in line or not is_header(line.strip()):
            continue
        rows = []
        for row in lines[number + 1 :]:
            if ", " not in row or row.startswith("#"):
                break
            rows.append(row)
        gpus, driver = [], None
        for place, (index, section, version) in enumerate(read_rows(line.strip(), rows)):
            driver = driver or version
            gpus.append(sample_of(section, place if index is None else index))
        if gpus:
            yield SmiReport(reading=GpuReading(read_at_s=0.0, driver=driver, gpus=tuple(gpus)), table=True)


def _moment(text: str | None) -> datetime | None:
    """Return the wall clock of a query."""
    for form in _STAMPS:
        try:
            return datetime.strptime((text or "").strip(), form)  # noqa: DTZ007 - nvidia-smi states no zone
        except ValueError:
            continue
    return None


def _completed(report: SmiReport, listed: Sequence[ListedGpu], lost: Sequence[LostGpu], read_at_s: float) -> SmiReport:
    """Return a report with what the lists say of its GPUs, and the GPUs that gave no handle."""
    reading = report.reading
    gpus = tuple(_with_list(gpu, listed) for gpu in reading.gpus)
    known = {gpu.pci for gpu in reading.lost}
    extra = tuple(gpu for gpu in lost if gpu.pci is None or gpu.pci not in known)
    told = replace(reading, read_at_s=read_at_s, gpus=gpus, lost=(*reading.lost, *extra))
    return replace(report, reading=told)


def _with_list(gpu: GpuSample, listed: Sequence[ListedGpu]) -> GpuSample:
    """Return a GPU with its links and the names of its MIG devices; UUID and index must both agree."""
    own = next((entry for entry in listed if (entry.uuid, entry.index) == (gpu.uuid, gpu.index)), None)
    if own is None:
        return gpu
    names = {entry.index: entry for entry in own.mig}
    mig = tuple(
        replace(device, uuid=device.uuid or names[device.index].uuid, profile=names[device.index].profile)
        if device.index in names
        else device
        for device in gpu.mig
    )
    return replace(gpu, nvlinks=own.links or gpu.nvlinks, mig=mig)
