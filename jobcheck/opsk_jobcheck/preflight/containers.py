"""Checks where the nodes of a job get their container image from.

Source: pyxis, argument ``--container-image`` ([USER@][REGISTRY#]IMAGE[:TAG], or a path that begins with / or .); enroot
imports an image on every node that has not cached its layers, and converts it to a squashfs file there. Without the #
enroot takes the first part for a registry only where its credentials name it (src/docker.sh, ``docker::import``).
"""

from __future__ import annotations

from opsk_jobcheck.preflight.facts import JobFacts, PreflightFinding, report
from opsk_jobcheck.scripts.run_facts import CONTAINER_IMAGE

MIN_NODES = 4
"""Fewer nodes that import an image at once are no trouble for a registry."""


def check_image(facts: JobFacts) -> PreflightFinding | None:
    """Return that every node imports the image from a registry when the job starts, while all its GPUs wait."""
    entry = facts.stated.get(CONTAINER_IMAGE)
    if entry is None or facts.nodes < MIN_NODES or not is_in_registry(str(entry.value)):
        return None
    what = (
        f"{entry.text}: each of {facts.nodes} nodes imports the image from a registry and converts it, "
        f"while {facts.gpus or 'all'} GPUs wait"
    )
    source = separate_registry(str(entry.value).removeprefix("docker://"))
    return report(entry, what, f"enroot import -o image.sqsh docker://{source} once, and give the path of that file")


def is_in_registry(image: str) -> bool:
    """Return whether an image is named as in a registry, and not as a file."""
    return bool(image) and not image.startswith(("/", ".", "~", "dockerd://", "podman://")) and ".sqsh" not in image


def separate_registry(image: str) -> str:
    """Return an image with # after its registry, as enroot needs it: ``nvcr.io#nvidia/nemo``."""
    first, _, rest = image.partition("/")
    is_registry = "#" not in image and rest and ("." in first or ":" in first)
    return f"{first}#{rest}" if is_registry else image
