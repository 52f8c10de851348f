"""Computes the sizes and the work of one layer of each kind of mixer, for `opsk.costmodel.sizes.mixers`.

Shapes as in mamba_ssm/modules/mamba2.py, HuggingFace transformers' modeling_jamba.py, modeling_qwen3_next.py and
modeling_minimax.py, and fla/layers/kda.py. FLOP and traffic of the kernels are counted from their source: a kernel
writes what the next one reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from opsk.workload.model import USUAL_CHUNKS, Mixer, ModelShape

SCAN_FRACTION = {Mixer.MAMBA2: 0.33, Mixer.LIGHTNING: 0.65, Mixer.GATED_DELTANET: 0.65, Mixer.KDA: 0.65}
"""Rate of the kernels over that of plain products while they compute, without their traffic.

``mamba2``: mamba_ssm's five kernels, 79 to 85 ns a token for 128 heads of 64 and a state of 128 on H100 (vllm pull
request 27299). Delta rules: flash-linear-attention 0.5.1, 0.81 ms for 8,192 tokens and 64 heads of 128 on H200
(FlashQLA's benchmark_results_H200.txt) and 3.20 ms for 96 on H20, which has a seventh of the arithmetic (FlashKDA's
BENCHMARK_H20.md). ``lightning`` has the same products. See benchmarks/published/mixers.csv; on Blackwell Triton's
kernels take up to half as long again."""
MAMBA_SCAN_PASSES = 3.5
"""Elements of 16 bits that Mamba's scan seems to move for each element of its state: it is bound by neither HBM nor
arithmetic. From layers of a 1.3B model that train in 1.51 us a token on A100 and 1.16 us on H100, of which 0.77 and
0.31 us are products (flash-linear-attention issue 32); those two alone would give 2.4 and 5."""
BACKWARD_OVER_FORWARD = {
    Mixer.MAMBA: 2.5,
    Mixer.MAMBA2: 2.5,
    Mixer.LIGHTNING: 2.5,
    Mixer.GATED_DELTANET: 3.0,
    Mixer.KDA: 3.3,
}
"""Backward of the kernels over their forward. Measured: 3.06 and 3.01 of the gated delta rule (H200, FlashQLA), 3.33 of
KDA (RTX 5090, FlashKDA), 2.3 and 2.5 of chunked linear attention with many heads (GB200, flash-linear-attention's
README). Mamba's scans repeat their forward in the backward too, five products against two as in FlashAttention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixerSizes:
    """One layer of a mixer, the whole of it, and its work for one token.

    Parameters
    ----------
    mixer_inner
        Width of the input of the output projection.
    mixer_into, mixer_shared_into
        Outputs of the projections from the residual stream: those that belong to heads, and those that belong to
        ``mixer_groups`` groups of them.
    mixer_low, mixer_low_split
        Weights of products of low rank that every tensor-parallel rank holds, and that are split over them.
    mixer_small, mixer_whole
        Parameters that no product has (convolution, decay, norms): split, and held by every rank.
    mixer_scan_flop
        FLOP of the scan for one token as Megatron Core counts them, as if it ran token by token.
    mixer_kernel_flop
        Work of the kernels, in FLOP of plain products that take as long (see `SCAN_FRACTION`).
    mixer_moved
        Elements of 16 bits that kernels read and write for one token.
    mixer_stored
        Elements of 16 bits that are stored for the backward, without the inputs of both projections.
    mixer_backward
        Backward of the kernels over their forward.
    """

    mixer_inner: float = 0.0
    mixer_into: float = 0.0
    mixer_shared_into: float = 0.0
    mixer_groups: float = 1.0
    mixer_low: float = 0.0
    mixer_low_split: float = 0.0
    mixer_small: float = 0.0
    mixer_whole: float = 0.0
    mixer_scan_flop: float = 0.0
    mixer_kernel_flop: float = 0.0
    mixer_moved: float = 0.0
    mixer_stored: float = 0.0
    mixer_backward: float = 0.0


MIXER_COLUMNS = tuple(item.name for item in fields(MixerSizes))
_NOTHING = MixerSizes()


def mixer_sizes(model: ModelShape) -> MixerSizes:
    """Return the numbers of one layer with the model's mixer; all 0 where it has none."""
    return _KINDS[model.mixer](model) if model.mixer_layers else _NOTHING


def _chunk(model: ModelShape) -> float:
    """Return the tokens that a kernel works on at a time."""
    return float(model.mixer_chunk or USUAL_CHUNKS[model.mixer])


def _mamba2(model: ModelShape) -> MixerSizes:
    """Return Mamba-2: gate, x, B, C and step size from one product; convolution over x, B and C, with a bias.

    Kernels (mamba_ssm/ops/triton): convolution, states of chunks in fp32 (x read again), their passing on, products of
    C and B in fp32, scan, gated norm. ``mamba_split_conv1d_scan_combined`` stores the projection's output and the
    scan's, and recomputes the rest in the backward.
    """
    heads, groups, state, chunk = model.mixer_heads, model.mixer_groups, model.mixer_state, _chunk(model)
    inner, shared = heads * model.mixer_head_dim, 2 * groups * state
    flop = 2 * chunk * (state * groups + inner) + 4 * state * inner
    states, products = 8 * state * inner / chunk, 4 * chunk * groups
    moved = 2 * (inner + shared) + 3 * inner + 2 * shared + states + products + 3 * inner
    return MixerSizes(
        mixer_inner=inner,
        mixer_into=2 * inner + heads,
        mixer_shared_into=shared,
        mixer_groups=groups,
        mixer_small=(inner + shared) * (model.mixer_conv + 1) + 3 * heads + model.mixer_norm * inner,
        mixer_scan_flop=7 * inner * state,
        mixer_kernel_flop=flop / SCAN_FRACTION[Mixer.MAMBA2],
        mixer_moved=moved,
        mixer_stored=3 * inner + shared + heads,
        mixer_backward=BACKWARD_OVER_FORWARD[Mixer.MAMBA2],
    )


def _mamba(model: ModelShape) -> MixerSizes:
    """Return Mamba: gate and x from one product; step size, B and C from x, the first by a product of rank r.

    The scan is one kernel (csrc/selective_scan), which reads x, step size and gate and writes its output. Kept: both
    inputs, convolved x, step size, B and C, output.
    """
    inner, state, rank = model.mixer_heads * model.mixer_head_dim, model.mixer_state, model.mixer_rank
    return MixerSizes(
        mixer_inner=inner,
        mixer_into=2 * inner,
        mixer_low_split=inner * (rank + 2 * state) + rank * inner,
        mixer_small=inner * (model.mixer_conv + 1 + state + 2),
        mixer_whole=model.mixer_norm * (rank + 2 * state),
        mixer_scan_flop=7 * inner * state,
        mixer_moved=2 * inner + 4 * inner + MAMBA_SCAN_PASSES * inner * state,
        mixer_stored=5 * inner + rank + 2 * state,
        mixer_backward=BACKWARD_OVER_FORWARD[Mixer.MAMBA],
    )


def _delta_work(model: ModelShape, chunk: float) -> tuple[float, float]:
    """Return products and traffic of the chunked delta rule for one token (fla/ops/gated_delta_rule).

    Of a head: products of keys with keys and with queries, the corrected keys and values (w, u), what they take from
    the state, what queries take from it and from the chunk, and the new state. Traffic: keys are read by four kernels,
    the triangular matrix is written in fp32 and its inverse in 16 bits, w, u, corrected values and states are written
    and read.
    """
    heads, width, state = model.mixer_heads, model.mixer_head_dim, model.mixer_state
    flop = heads * (2 * chunk * (3 * state + 2 * width) + 6 * state * width)
    moved = heads * (7 * state + 6 * width + 2 * state * width / chunk + 6 * chunk)
    return flop, moved


def _gated_deltanet(model: ModelShape) -> MixerSizes:
    """Return gated DeltaNet: queries, keys, values and gate from products, a decay and a step size a head.

    A convolution without a bias over queries, keys and values; queries and keys are normalised, and repeated for the
    heads of their group. Kept: gate, what comes into the convolution and out of it, normalised queries and keys of all
    heads, the inverse triangular matrix, decays in fp32, output.
    """
    heads, groups, state, chunk = model.mixer_heads, model.mixer_groups, model.mixer_state, _chunk(model)
    inner, shared = heads * model.mixer_head_dim, 2 * groups * state
    flop, moved = _delta_work(model, chunk)
    return MixerSizes(
        mixer_inner=inner,
        mixer_into=2 * inner + 2 * heads,
        mixer_shared_into=shared,
        mixer_groups=groups,
        mixer_small=(inner + shared) * model.mixer_conv + 2 * heads,
        mixer_whole=model.mixer_norm * model.mixer_head_dim,
        mixer_scan_flop=2 * (model.mixer_conv * (inner + shared) + 4 * inner * model.mixer_head_dim),
        mixer_kernel_flop=flop / SCAN_FRACTION[Mixer.GATED_DELTANET],
        mixer_moved=moved + 2 * (inner + shared) + 2 * shared + 3 * inner,
        mixer_stored=4 * inner + 2 * shared + heads * (2 * state + chunk + 4),
        mixer_backward=BACKWARD_OVER_FORWARD[Mixer.GATED_DELTANET],
    )


def _kda(model: ModelShape) -> MixerSizes:
    """Return Kimi's delta attention: as gated DeltaNet, with a decay for each element of a key.

    Decay and output gate come from products of rank r, which are not split as far as they come from the residual
    stream. The decays are summed up in fp32, read by four kernels; keys are written once more with them.
    """
    heads, groups, state, chunk = model.mixer_heads, model.mixer_groups, model.mixer_state, _chunk(model)
    inner, shared = heads * model.mixer_head_dim, 2 * groups * state
    flop, moved = _delta_work(model, chunk)
    decays = heads * state
    return MixerSizes(
        mixer_inner=inner,
        mixer_into=inner + heads,
        mixer_shared_into=shared,
        mixer_groups=groups,
        mixer_low=2 * model.hidden * model.mixer_rank,
        mixer_low_split=model.mixer_rank * (decays + inner),
        mixer_small=(inner + shared) * model.mixer_conv + heads + decays,
        mixer_whole=model.mixer_norm * model.mixer_head_dim,
        mixer_scan_flop=2 * (model.mixer_conv * (inner + shared) + 4 * inner * model.mixer_head_dim),
        mixer_kernel_flop=flop / SCAN_FRACTION[Mixer.KDA],
        mixer_moved=moved + 13 * decays + 2 * (inner + shared) + 2 * shared + 3 * inner,
        mixer_stored=4 * inner + 3 * shared + 3 * decays + heads * (2 * chunk + 2) + 2 * model.mixer_rank,
        mixer_backward=BACKWARD_OVER_FORWARD[Mixer.KDA],
    )


def _lightning(model: ModelShape) -> MixerSizes:
    """Return lightning attention: queries, keys, values and gate, decays that are not trained, no convolution.

    Kernels as those of Mamba-2's scan with a group a head; the activation of queries, keys and values is one more.
    """
    heads, groups, state, chunk = model.mixer_heads, model.mixer_groups, model.mixer_state, _chunk(model)
    inner, shared = heads * model.mixer_head_dim, 2 * groups * state
    flop = 2 * chunk * (state * heads + inner) + 4 * state * inner
    moved = 2 * (inner + shared) + 3 * inner + 2 * shared + 4 * state * inner / chunk + 3 * inner
    return MixerSizes(
        mixer_inner=inner,
        mixer_into=2 * inner,
        mixer_shared_into=shared,
        mixer_groups=groups,
        mixer_small=model.mixer_norm * inner,
        mixer_scan_flop=4 * inner * state,
        mixer_kernel_flop=flop / SCAN_FRACTION[Mixer.LIGHTNING],
        mixer_moved=moved,
        mixer_stored=4 * inner + 2 * shared,
        mixer_backward=BACKWARD_OVER_FORWARD[Mixer.LIGHTNING],
    )


_KINDS: Mapping[Mixer, Callable[[ModelShape], MixerSizes]] = {
    Mixer.MAMBA: _mamba,
    Mixer.MAMBA2: _mamba2,
    Mixer.GATED_DELTANET: _gated_deltanet,
    Mixer.KDA: _kda,
    Mixer.LIGHTNING: _lightning,
}
