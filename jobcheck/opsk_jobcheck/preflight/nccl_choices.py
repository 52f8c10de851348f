"""Checks variables that choose NCCL's algorithm, protocol or channels against what the links of a node need.

Source: "Environment Variables" of NCCL's user guide, and the constants of its tuner (src/graph/tuning.cc, 2.28).
"""

from __future__ import annotations

from opsk.costmodel.collectives.hierarchical import TREE_FRACTION
from opsk.hardware.spec import NodeSpec
from opsk_jobcheck.preflight.facts import JobFacts, PreflightFinding, report
from opsk_jobcheck.scripts.run_facts import CHANNEL_LIMITS

CHANNEL_BYTES_PER_S = {"volta": 20e9, "ampere": 20e9, "hopper": 36.7e9, "blackwell": 40e9, "blackwell-ultra": 40e9}
"""The rate of a channel of a ring (perChMaxRingLL128Bws of the tuner), by chip generation [bytes/s]."""
_UNSET = "remove the line: NCCL chooses for each size of message"


def check_protocol(facts: JobFacts) -> PreflightFinding | None:
    """Return that ``NCCL_PROTO`` allows only the protocol for small messages."""
    entry = facts.find_variable("NCCL_PROTO")
    if entry is None or facts.gpus < 2 or _parse_choices(entry.value) != {"ll"}:
        return None
    what = f"{entry.text} sends a flag with every 4 bytes: large messages reach half of the links' rate at the most"
    return report(entry, what, _UNSET)


def check_algorithm(facts: JobFacts) -> PreflightFinding | None:
    """Return that ``NCCL_ALGO`` forces trees where they are slower than rings: inside one node."""
    entry, node, gpus = facts.find_variable("NCCL_ALGO"), facts.node, facts.workload.plan.gpus_per_node or 0
    is_forced = entry is not None and _parse_choices(entry.value) == {"tree"}
    if entry is None or not is_forced or node is None or not _has_nvlink(node) or facts.nodes != 1 or gpus < 3:
        return None
    longer = 2 / TREE_FRACTION / (2 * (gpus - 1) / gpus) - 1
    what = (
        f"{entry.text} on one node: a tree is a chain there, in which {gpus - 2} of {gpus} GPUs send the array twice: "
        f"large all-reduces take {longer:.0%} longer than as a ring"
    )
    return report(entry, what, _UNSET)


def check_channels(facts: JobFacts) -> PreflightFinding | None:
    """Return that fewer channels are allowed than half of NVLink's rate takes."""
    node = facts.node
    rate = CHANNEL_BYTES_PER_S.get(node.gpu.architecture) if node is not None else None
    if node is None or rate is None or not _has_nvlink(node) or (facts.workload.plan.gpus_per_node or 0) < 2:
        return None
    for name in CHANNEL_LIMITS:
        entry = facts.find_variable(name)
        if entry is None or not str(entry.value).isdecimal():
            continue
        channels, link = int(str(entry.value)), node.gpu.hb_bytes_per_s or 0.0
        if channels > 0 and 2 * channels * rate < link:
            what = (
                f"{entry.text} allows {channels * rate / 1e9:.0f} of the {link / 1e9:.0f} GB/s of NVLink: "
                f"a channel carries about {rate / 1e9:.0f}"
            )
            return report(entry, what, f"allow {-(-link // rate):.0f}, or remove the line")
    return None


def _has_nvlink(node: NodeSpec) -> bool:
    """Return whether the GPUs of a node are joined by NVLink."""
    return node.gpu.vendor == "nvidia" and node.hb_domain_gpus > 1 and bool(node.gpu.hb_bytes_per_s)


def _parse_choices(value: object) -> set[str]:
    """Return the choices that a variable allows; nothing where it excludes some, or differs by collective."""
    text = str(value).lower()
    return set() if "^" in text or ":" in text else {word.strip() for word in text.split(",") if word.strip()}
