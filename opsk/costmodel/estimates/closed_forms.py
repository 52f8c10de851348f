"""Computes published closed forms that need no cluster model, each with its source.

They are for GPT shapes only (two-matrix MLP of 4 h, all heads with their own keys, tied head). The general model
reproduces them; the tests compare the two. Scaling laws are in `opsk.costmodel.estimates.scaling_laws`, equations of
collectives in `opsk.costmodel.collectives`.
"""

from __future__ import annotations

DAY_S = 86400.0
MIXED_PRECISION_BYTES_PER_PARAMETER = 16
"""fp16 weights 2, fp16 gradients 2, fp32 master weights, momentum and variance 12 (Rajbhandari et al. 2020, ZeRO)."""
MEGATRON_BYTES_PER_PARAMETER = 18
"""The same with fp32 gradients, 4 instead of 2 (Megatron-LM); figures 1 and 7 of Korthikanti et al. 2022."""


def gpt_parameters(*, layers: int, hidden: int, vocab: int, seq: int) -> float:
    """Return the parameters of a GPT: 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)).

    Source: Narayanan et al. 2021 (arXiv 2104.04473), equation 2. The final norm (2 h) is left out there.
    """
    square = 12 * layers * hidden**2
    return square * (1 + 13 / (12 * hidden) + (vocab + seq) / (12 * layers * hidden))


def gpt_step_flop(*, global_batch: int, seq: int, layers: int, hidden: int, vocab: int) -> float:
    """Return the FLOP of a step with full recomputation: 96 B s l h^2 (1 + s/(6 h) + V/(16 l h)) [FLOP].

    GPT-3 (B = 1024, s = 2048, l = 96, h = 12288, V = 51200) takes 3.0073e18. Source: Narayanan et al. 2021, equation 3.
    """
    square = 96.0 * global_batch * seq * layers * hidden**2
    return square * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))


def gpt_model_flop(*, global_batch: int, seq: int, layers: int, hidden: int, vocab: int) -> float:
    """Return the FLOP of a step without recomputation: 72 B s l h^2 (1 + s/(6 h) + V/(12 l h)) [FLOP].

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), equation 7.
    """
    square = 72.0 * global_batch * seq * layers * hidden**2
    return square * (1 + seq / (6 * hidden) + vocab / (12 * layers * hidden))


def gpt_selective_flop_as_printed(*, global_batch: int, seq: int, layers: int, hidden: int, vocab: int) -> float:
    """Return the "hardware" FLOP that Korthikanti et al. 2022 print, equation 8, for selective recomputation [FLOP].

    72 B s l h^2 (1 + s/(3 h) + V/(12 l h)): this adds three forwards of the attention products, one is computed.
    """
    square = 72.0 * global_batch * seq * layers * hidden**2
    return square * (1 + seq / (3 * hidden) + vocab / (12 * layers * hidden))


def flop_per_token(*, parameters: float, layers: int, heads: int, head_dim: int, seq: int) -> float:
    """Return the model FLOP of training one token: 6 N + 12 L H Q T [FLOP].

    PaLM 540B (118 layers, 48 heads of 256, 2,048 tokens) takes 3.28e12. Source: Chowdhery et al. 2022 (PaLM, arXiv
    2204.02311), appendix B.
    """
    return 6.0 * parameters + 12.0 * layers * heads * head_dim * seq


def utilisation(*, flop: float, time_s: float, gpus: int, peak_flop_per_s: float) -> float:
    """Return the share of the peak: MFU of model FLOP, HFU of FLOP with recomputation [ratio]."""
    return flop / (time_s * gpus * peak_flop_per_s)


def training_time_s(*, tokens: float, parameters: float, gpus: int, flop_per_s: float) -> float:
    """Return the time to train with full recomputation: 8 T P / (n X) [s].

    300e9 tokens through 175e9 parameters on 1,040 GPUs at 140e12 FLOP/s take 33.4 days. Source: Narayanan et al. 2021,
    equation 4.
    """
    return 8 * tokens * parameters / (gpus * flop_per_s)


def state_bytes(parameters: float) -> float:
    """Return the bytes of weights, gradients and Adam states in mixed precision: 16 P (Rajbhandari et al. 2020)."""
    return MIXED_PRECISION_BYTES_PER_PARAMETER * parameters


def gpt_state_bytes_per_gpu(*, layers: int, hidden: int, gpus: int) -> float:
    """Return the bytes of weights, gradients and Adam states of the mean GPU, embedding left out: 18 x 12 l h^2 / N.

    What "parameters and optimizer state" are in figure 1 of Korthikanti et al. 2022: the formula gives its values to
    the last digit, so they are computed there, not measured.
    """
    return MEGATRON_BYTES_PER_PARAMETER * 12.0 * layers * hidden**2 / gpus


def layer_activation_bytes(*, seq: int, micro_batch: int, hidden: int, heads: int) -> float:
    """Return the activations of one layer without any technique: s b h (34 + 5 a s / h) [bytes].

    Source for this and the next five: Korthikanti et al. 2022, equations 1 to 5 and table 2.
    """
    return seq * micro_batch * hidden * (34 + 5 * heads * seq / hidden)


def layer_activation_bytes_tp(*, seq: int, micro_batch: int, hidden: int, heads: int, tp: int) -> float:
    """Return the activations of one layer with tensor parallelism: s b h (10 + 24/t + 5 a s / (h t)) [bytes]."""
    return seq * micro_batch * hidden * (10 + 24 / tp + 5 * heads * seq / (hidden * tp))


def layer_activation_bytes_sp(*, seq: int, micro_batch: int, hidden: int, heads: int, tp: int) -> float:
    """Return the same with sequence parallelism: s b h / t (34 + 5 a s / h) [bytes]."""
    return seq * micro_batch * hidden / tp * (34 + 5 * heads * seq / hidden)


def layer_activation_bytes_selective(*, seq: int, micro_batch: int, hidden: int, tp: int) -> float:
    """Return the same with selective recomputation too: 34 s b h / t [bytes]."""
    return 34 * seq * micro_batch * hidden / tp


def layer_activation_bytes_tp_selective(*, seq: int, micro_batch: int, hidden: int, tp: int) -> float:
    """Return those of selective recomputation without sequence parallelism: s b h (10 + 24/t) [bytes]."""
    return seq * micro_batch * hidden * (10 + 24 / tp)


def layer_activation_bytes_full(*, seq: int, micro_batch: int, hidden: int) -> float:
    """Return what full recomputation keeps of one layer: 2 s b h [bytes]."""
    return 2.0 * seq * micro_batch * hidden


def interleaving_factor(*, pp: int, vpp: int) -> float:
    """Return by how much interleaving raises the activations of the first stage: 1 + (p - 1)/(p v); 1 for v = 1."""
    return 1 + (pp - 1) / (pp * vpp) if vpp > 1 else 1.0
