"""Computes published scaling laws and closed forms of training runs, each with its source.

They need no cluster model: of the machine they use only its rate and its power. N and P are parameters, D tokens, C the
FLOP of a whole run, losses are in nats a token. Where a paper's printed constants do not reproduce its own tables, the
docstring says so. Forms of a step and of a layer are for GPT shapes only (two-matrix MLP of 4 h, all heads with their
own keys, tied head); the general model reproduces them, and the tests compare the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY_S = 86400.0
MIXED_PRECISION_BYTES_PER_PARAMETER = 16
"""fp16 weights 2, fp16 gradients 2, fp32 master weights, momentum and variance 12 (Rajbhandari et al. 2020, ZeRO)."""
MEGATRON_BYTES_PER_PARAMETER = 18
"""The same with fp32 gradients, 4 instead of 2 (Megatron-LM); figures 1 and 7 of Korthikanti et al. 2022."""
PETAFLOP_S_DAY_FLOP = 1e15 * 86400
"""FLOP of a petaflop/s-day, in which Kaplan et al. and Brown et al. count [FLOP]."""
TOKENS_PER_PARAMETER = 20.0
"""Compute-optimal tokens a parameter: Hoffmann et al. 2022 (arXiv 2203.15556), table 3 has 20.0 to 22.4."""


def training_flop(*, parameters: float, tokens: float) -> float:
    """Return the FLOP of a training run: 6 N D [FLOP]; attention to other tokens, and recomputation, are left out.

    GPT-3 (174.6e9, 300e9) takes 3.14e23. Source: Kaplan et al. 2020 (arXiv 2001.08361), section 2.1.
    """
    return 6.0 * parameters * tokens


def optimal_tokens(parameters: float) -> float:
    """Return the compute-optimal number of tokens by the rule of thumb: 20 P (Hoffmann et al. 2022)."""
    return TOKENS_PER_PARAMETER * parameters


def optimal_training_flop(parameters: float) -> float:
    """Return the FLOP of a compute-optimal run: 6 P x 20 P = 120 P^2 [FLOP]; 175e9 parameters take 3.675e24.

    Source: Yin et al. 2023 (J. Supercomputing, doi 10.1007/s11227-023-05479-7), equation 7.
    """
    return training_flop(parameters=parameters, tokens=optimal_tokens(parameters))


def optimal_parameters(flop: float) -> float:
    """Return the parameters for which a budget of ``flop`` is compute-optimal by that rule: sqrt(C / 120)."""
    return math.sqrt(flop / (6.0 * TOKENS_PER_PARAMETER))


def run_time_s(*, flop: float, flop_per_s: float) -> float:
    """Return t = C / R [s], R being what the whole system achieves. Source: Yin et al. 2023, section 4."""
    return flop / flop_per_s


def run_energy_j(*, time_s: float, power_w: float) -> float:
    """Return E = t P [J], P being the mean power of the whole system. Source: Yin et al. 2023, section 4."""
    return time_s * power_w


@dataclass(frozen=True, slots=True, kw_only=True)
class KaplanLaw:
    """Loss as power laws of non-embedding parameters and tokens (Kaplan et al. 2020, equations 1.1, 1.2 and 1.5)."""

    alpha_n: float
    n_c: float
    alpha_d: float
    d_c: float

    def loss(self, *, parameters: float = math.inf, tokens: float = math.inf) -> float:
        """Return [(N_c/N)^(alpha_N/alpha_D) + D_c/D]^alpha_D [nats a token]; infinity is "not limiting"."""
        by_parameters = (self.n_c / parameters) ** (self.alpha_n / self.alpha_d)
        return float((by_parameters + self.d_c / tokens) ** self.alpha_d)


KAPLAN_SINGLE = KaplanLaw(alpha_n=0.076, n_c=8.8e13, alpha_d=0.095, d_c=5.4e13)
"""One quantity limiting at a time (equations 1.1 and 1.2; table 5 of the paper)."""
KAPLAN_JOINT = KaplanLaw(alpha_n=0.076, n_c=6.4e13, alpha_d=0.103, d_c=1.8e13)
"""The joint fit (table 2 of the paper), from which its D >= 5e3 N^0.74 follows."""
KAPLAN_ALPHA_C, KAPLAN_C_C_FLOP = 0.050, 3.1e8 * PETAFLOP_S_DAY_FLOP
KAPLAN_ALPHA_B, KAPLAN_BATCH_TOKENS = 0.21, 2e8
KAPLAN_ALPHA_S, KAPLAN_STEPS = 0.76, 2.1e3


def kaplan_loss_of_compute(flop: float) -> float:
    """Return the loss at the optimal use of a budget: (C_c / C_min)^0.050 [nats a token] (equation 1.3)."""
    return float((KAPLAN_C_C_FLOP / flop) ** KAPLAN_ALPHA_C)


@dataclass(frozen=True, slots=True, kw_only=True)
class KaplanOptimum:
    """The compute-efficient use of a budget: model size, batch [tokens], steps at that batch."""

    parameters: float
    batch_tokens: float
    steps: float


def kaplan_optimum(flop: float) -> KaplanOptimum:
    """Return N = 1.3e9 C^0.73, B = 2.0e6 C^0.24, S_min = 5.4e3 C^0.03 with C in petaflop/s-days (table 6 of the paper).

    Hoffmann et al. 2022 find too few tokens in it: the learning rate was not fitted to the length of each run.
    """
    budget = flop / PETAFLOP_S_DAY_FLOP
    return KaplanOptimum(parameters=1.3e9 * budget**0.73, batch_tokens=2.0e6 * budget**0.24, steps=5.4e3 * budget**0.03)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametricLoss:
    """L(N, D) = E + A / N^alpha + B / D^beta (Hoffmann et al. 2022, equation 2)."""

    e: float
    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, *, parameters: float, tokens: float) -> float:
        """Return the loss [nats a token]."""
        return float(self.e + self.a / parameters**self.alpha + self.b / tokens**self.beta)

    @property
    def parameter_exponent(self) -> float:
        """Exponent a of N_opt ~ C^a: beta / (alpha + beta); that of the tokens is 1 - a."""
        return self.beta / (self.alpha + self.beta)

    def optimal_parameters(self, flop: float) -> float:
        """Return N_opt = G (C/6)^a, G = (alpha A / (beta B))^(1/(alpha + beta)) (equation 4)."""
        return float(self._balance * (flop / 6.0) ** self.parameter_exponent)

    def optimal_tokens(self, flop: float) -> float:
        """Return D_opt = C / (6 N_opt)."""
        return flop / (6.0 * self.optimal_parameters(flop))

    def optimal_flop(self, parameters: float) -> float:
        """Return the budget for which ``parameters`` are optimal, the inverse of `optimal_parameters` [FLOP]."""
        return float(6.0 * (parameters / self._balance) ** (1 / self.parameter_exponent))

    @property
    def _balance(self) -> float:
        """G of equation 4."""
        return float((self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta)))


HOFFMANN_PRINTED = ParametricLoss(e=1.69, a=406.4, b=410.7, alpha=0.34, beta=0.28)
"""As the paper prints it (equation 10). The rounding of beta moves the optimum: 32e9 parameters at 5.76e23 FLOP."""
HOFFMANN_UNROUNDED = ParametricLoss(e=1.6934, a=406.4, b=410.7, alpha=0.3392, beta=0.2849)
"""The digits in the paper's TeX source, as Besiroglu et al. 2024 (arXiv 2404.10102) report them. These give the paper's
own 40e9 parameters at 5.76e23 FLOP and its exponent 0.46."""
BESIROGLU = ParametricLoss(e=1.8172, a=482.01, b=2085.43, alpha=0.3478, beta=0.3658)
"""The refit of Besiroglu et al. 2024 to the same runs: the parametric form that agrees with 20 tokens a parameter."""


def fsdp_state_share(*, gpus: int) -> float:
    """Return what one GPU holds under FSDP, in units of the parameters' own memory: 6 / N.

    Parameters 1, Adam's states 2, gradients and residue 3 together. Source: Yin et al. 2023, equation 2.
    """
    return 6.0 / gpus


FSDP_VOLUME, DDP_VOLUME = 3.0, 2.0
"""What one GPU sends each step, in units of the parameters' own memory: two all-gathers and a reduce-scatter, against
an all-reduce (Yin et al. 2023, equation 3; Rajbhandari et al. 2020, section 7.2.2)."""


def deepspeed_state_share_as_printed(*, tp: int, pp: int, dp: int) -> float:
    """Return 2 (DP + PP TP + 1) / N as Yin et al. 2023 print it (equation 5), in units of the parameters' own memory.

    It is the sum 1/(PP TP) + 2/DP + 1/(PP TP) + 2/N: the optimizer over DP ranks only. See `deepspeed_state_share`.
    """
    return 2.0 * (dp + pp * tp + 1) / (dp * pp * tp)


def deepspeed_state_share(*, tp: int, pp: int, dp: int) -> float:
    """Return the same with the optimizer where ZeRO-1 keeps it: its 2 are split over TP and PP first, then over DP.

    1/(PP TP) + 2/N + 1/(PP TP) + 2/N = (2 DP + 4) / N. Parameters, Adam, gradients and residue are those of the paper.
    """
    return (2.0 * dp + 4.0) / (dp * pp * tp)


def deepspeed_volume_as_printed(*, tp: int, pp: int, dp: int) -> float:
    """Return (TP/N + 1) 2, what one GPU sends each step in units of the parameters' own memory.

    Source: Yin et al. 2023, equation 6, through readers' notes. It includes neither batch nor sequence, on which the
    traffic of tensor parallelism depends; the cost model does.
    """
    return 2.0 * (tp / (dp * pp * tp) + 1.0)


def scaling_bandwidth_bytes_per_s(*, volume_bytes: float, flop: float, flop_per_s: float) -> float:
    """Return the bandwidth a GPU needs to send ``volume_bytes`` while it computes ``flop`` [bytes/s].

    A faster GPU needs more of it. Source: the argument of Yin et al. 2023, section 5, on linear scaling.
    """
    return volume_bytes * flop_per_s / flop


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
