"""Which GPUs does ``nvidia-smi -L`` list, and what does ``nvidia-smi nvlink`` say of their links?

Read are the answers to ``-s`` (state and speed), ``-e`` (errors), ``-R`` (what is at the other end) and ``-gt d`` (data
moved), one after another or mixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from opsk.telemetry.gpu.nvidia_smi.values import absent, quantity, whole
from opsk.telemetry.gpu.samples import NvLinkSample, normalise_pci
from opsk.text import blank_controls

_LONGEST_LINE = 1000
_MOST_LINKS = 256
_GPU = re.compile(
    r"GPU (?P<index>\d{1,4}): (?P<model>[^\n]{1,200}?) \(UUID: (?P<uuid>(?:GPU|MIG)-[\w-]{1,64}|[^)]{0,64})\)"
)
_MIG = re.compile(
    r"\s{1,16}MIG (?P<profile>\S{1,40})\s{1,16}Device\s{1,4}(?P<index>\d{1,4}): \(UUID: (?P<uuid>MIG-[\w/-]{1,100})\)"
)
_LINK = re.compile(r"\s{1,32}Link (?P<link>\d{1,3}): (?P<rest>[^\n]{0,200})")
_ERRORS = re.compile(r"(?P<kind>[A-Za-z][\w /-]{0,60}?) (?:Errors?|Error Count):? *(?P<count>\d{1,20})")
_DATA = re.compile(r"Data (?P<way>[TR])x: (?P<amount>\d{1,18} \w{1,4})")
_REMOTE = re.compile(r"Remote Device (?P<pci>[0-9a-fA-F:.]{7,20}): Link (?P<link>\d{1,3})")
_NO_LINKS = re.compile(
    r"\s{0,16}(?!#|\$)[^\n]{0,80}(?:not supported|unable to retrieve|no nvlink|links are inactive)", re.IGNORECASE
)
_STATES = {"<inactive>": "inactive", "inactive": "inactive", "sleep": "sleep", "<sleep>": "sleep", "active": "active"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedMig:
    """A MIG device as ``-L`` lists it."""

    index: int
    uuid: str
    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGpu:
    """A GPU as ``-L`` or ``nvlink`` names it, with what that text says of it.

    ``unsupported`` holds the sentence in place of links (a GPU in MIG mode, say).
    """

    index: int
    model: str
    uuid: str
    mig: tuple[ListedMig, ...] = ()
    links: tuple[NvLinkSample, ...] = ()
    unsupported: str = ""


def read_list(text: str) -> tuple[ListedGpu, ...]:
    """Return the GPUs that a text of ``nvidia-smi -L`` lists, with their MIG devices."""
    return merged(_blocks(text.split("\n")))


def read_links(text: str) -> tuple[ListedGpu, ...]:
    """Return the GPUs of a text of ``nvidia-smi nvlink``, with their links; several answers are joined."""
    return read_list(text)


def merged(gpus: Iterable[ListedGpu]) -> tuple[ListedGpu, ...]:
    """Return each GPU once, with all that is said of it.

    A GPU is known by index and UUID together: a published capture may have masked every UUID.
    """
    found: dict[tuple[int, str], ListedGpu] = {}
    for gpu in gpus:
        before = found.get((gpu.index, gpu.uuid))
        if before is not None:
            gpu = replace(
                gpu,
                mig=before.mig or gpu.mig,
                links=_joined((*before.links, *gpu.links)),
                unsupported=before.unsupported or gpu.unsupported,
            )
        found[(gpu.index, gpu.uuid)] = gpu
    return tuple(found.values())


def _blocks(lines: Iterable[str]) -> Iterable[ListedGpu]:
    """Give the GPUs of a text, one for each line that names one."""
    current: ListedGpu | None = None
    mig: list[ListedMig] = []
    links: dict[int, NvLinkSample] = {}
    for raw in lines:
        line = raw[:_LONGEST_LINE].rstrip()
        header = _GPU.match(line)
        if header is not None:
            if current is not None:
                yield replace(current, mig=tuple(mig), links=tuple(links.values()))
            current, mig, links = _gpu(header), [], {}
        elif current is not None:
            instance, link = _MIG.match(line), _LINK.match(line)
            if instance is not None:
                mig.append(ListedMig(index=int(instance["index"]), uuid=instance["uuid"], profile=instance["profile"]))
            elif link is not None and int(link["link"]) < _MOST_LINKS:
                number = int(link["link"])
                links[number] = _with(links.get(number, NvLinkSample(link=number)), link["rest"].strip())
            elif _NO_LINKS.match(line) is not None:
                current = replace(current, unsupported=line.strip()[:200])
            elif line and not line[0].isspace():
                yield replace(current, mig=tuple(mig), links=tuple(links.values()))
                current = None
    if current is not None:
        yield replace(current, mig=tuple(mig), links=tuple(links.values()))


def _gpu(header: re.Match[str]) -> ListedGpu:
    """Return the GPU that a line names."""
    model = blank_controls(header["model"])
    return ListedGpu(index=int(header["index"]), model=model, uuid=header["uuid"] if header["uuid"][3:4] == "-" else "")


def _with(link: NvLinkSample, rest: str) -> NvLinkSample:
    """Return a link with what one more line says of it."""
    remote, data, errors = _REMOTE.match(rest), _DATA.match(rest), _ERRORS.match(rest)
    if remote is not None:
        return replace(link, remote_pci=normalise_pci(remote["pci"]), remote_link=int(remote["link"]))
    if data is not None:
        amount = quantity(data["amount"])
        moved = None if amount is None else int(amount)
        return replace(link, transmitted_bytes=moved) if data["way"] == "T" else replace(link, received_bytes=moved)
    if errors is not None:
        kind = "_".join(re.findall(r"[a-z0-9]+", errors["kind"].casefold()))
        return replace(link, errors={**link.errors, kind: whole(errors["count"]) or 0})
    state = _STATES.get(rest.casefold())
    if state is not None:
        return replace(link, state=state)
    speed = None if absent(rest) is not None else quantity(rest)
    return (
        link
        if speed is None or not rest.casefold().endswith("b/s")
        else replace(link, state="active", bytes_per_s=speed)
    )


def _joined(links: Iterable[NvLinkSample]) -> tuple[NvLinkSample, ...]:
    """Return each link once, with all that is said of it."""
    found: dict[int, NvLinkSample] = {}
    for link in links:
        before = found.get(link.link)
        if before is not None:
            link = NvLinkSample(
                link=link.link,
                state=link.state or before.state,
                version=link.version or before.version,
                bytes_per_s=link.bytes_per_s if link.bytes_per_s is not None else before.bytes_per_s,
                remote_kind=link.remote_kind or before.remote_kind,
                remote_pci=link.remote_pci or before.remote_pci,
                remote_link=link.remote_link if link.remote_link is not None else before.remote_link,
                received_bytes=link.received_bytes if link.received_bytes is not None else before.received_bytes,
                transmitted_bytes=(
                    link.transmitted_bytes if link.transmitted_bytes is not None else before.transmitted_bytes
                ),
                errors={**before.errors, **link.errors},
            )
        found[link.link] = link
    return tuple(sorted(found.values(), key=lambda link: link.link))
