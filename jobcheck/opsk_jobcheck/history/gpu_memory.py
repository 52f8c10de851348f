"""Knows the memory of GPUs by the names that Slurm may have for them, where a name leaves no doubt."""

from __future__ import annotations

from contextlib import suppress

from opsk.app.inputs.named_inputs import load_cluster
from opsk.errors import OpskError
from opsk.hardware.catalog import gpu, names, resolve_gpu
from opsk.hardware.catalog_index import normalise_key

SAME_RATIO = 0.05
"""GPUs of one name whose memories differ by less are one, as far as fit is concerned."""


def list_gpu_memory(cluster: str | None) -> dict[str, float]:
    """Return the memory that a job can fill, by `normalise_key` of the GPU's name [bytes].

    Parameters
    ----------
    cluster
        The site's cluster: its GPU is the one that no name, or an ambiguous one, means.
    """
    memory: dict[str, float] = {}
    for name in names("gpu"):
        spec = gpu(name)
        for label in (name, *spec.aliases):
            memory[normalise_key(label)] = spec.capacity_bytes
        for label in _shorten(name):
            memory.update(_resolve(label))
    if cluster is not None:
        with suppress(OpskError):
            spec = load_cluster(cluster).node.gpu
            memory |= dict.fromkeys(map(normalise_key, ("", spec.name, *_shorten(spec.name))), spec.capacity_bytes)
    return memory


def _shorten(name: str) -> list[str]:
    """Return the names that Slurm may have for a GPU of the catalogue: ``h100`` for ``h100-sxm``."""
    parts = name.split("-")
    return ["-".join(parts[:length]) for length in range(1, len(parts))]


def _resolve(label: str) -> dict[str, float]:
    """Return the memory of the GPUs that a name may mean, where all have the same."""
    with suppress(OpskError):
        spec, others = resolve_gpu(label)
        sizes = [spec.capacity_bytes, *(gpu(other).capacity_bytes for other in others)]
        if max(sizes) - min(sizes) <= SAME_RATIO * max(sizes):
            return {normalise_key(label): min(sizes)}
    return {}
