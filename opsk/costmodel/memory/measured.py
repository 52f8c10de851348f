"""Computes the activations of models that were measured layer by layer: ConvNets, U-Nets, two towers, sound.

A sample stores what autograd saved of it when the model ran on tensors without data
(``docs/programs/tables/measured_models.py``), whatever its layers are. Left out are workspaces of convolutions, which
cuDNN chooses by speed and which may take gigabytes, and what an autoencoder stores while it encodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.elementwise import lookup, to_float, where
from opsk.costmodel.sizes.pipeline import Stages
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import IS_WIDE, FloatColumn, PlanTable

LIVE_TENSORS = 3.0
"""Tensors as large as the largest one that live while its layer's backward runs: two gradients and a workspace."""
CONTRAST_BYTES = 20.0
"""Bytes of one similarity of two samples: both directions' 16-bit logits, their fp32 logarithms and gradients
(open_clip/loss.py, ``ClipLoss``; `opsk.costmodel.memory.peak.EAGER_LOSS_BYTES` without the fp32 copy)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Activations of the candidate stages, shape (3, plans) each [bytes].

    ``stored`` between forward and backward at the peak; ``restored`` what recomputation restores of one layer;
    ``working`` the gradients while that layer's backward runs; ``layer`` the most that a single layer stores;
    ``lingering`` what remains of all layers at the end of the last backward.
    """

    stored: FloatColumn
    restored: FloatColumn
    working: FloatColumn
    layer: FloatColumn
    lingering: FloatColumn


def compute_measured_activations(model: ShapeColumns, plans: PlanTable, shares: Shares, stages: Stages) -> Activations:
    """Return the activations of measured models, those of each sample times the samples of a micro-batch.

    A contrastive loss compares the samples of all ranks: all of them on each rank, or its own with all
    (``--local-loss`` of OpenCLIP).
    """
    is_fp32 = lookup(IS_WIDE, plans.precision)
    samples = to_float(plans.micro_batch) * to_float(stages.is_first >= 0)
    whole = where(is_fp32, model.measured_sample_fp32, model.measured_sample)
    width = where(is_fp32, 2.0, 1.0)
    is_checkpointed = shares.full_recompute & (model.measured_checkpointed > 0)
    stored = samples * where(is_checkpointed, width * model.measured_checkpointed, whole)
    part = samples * where(is_checkpointed, width * model.measured_part, 0.0)
    working = LIVE_TENSORS * width * samples * model.measured_tensor
    gathered = samples * shares.replicas
    rows = where(model.measured_local_contrast > 0, samples, gathered)
    loss = model.measured_contrast * CONTRAST_BYTES * rows * gathered
    return Activations(
        stored=stored + loss, restored=part, working=working, layer=part + working, lingering=0.0 * samples
    )
