"""Computes the time of collectives in two phases, one per level, as the rail-only paper defines them.

Wang et al., "How to build low-cost networks for large language models" (arXiv 2307.12169), equations 1 to 3, for x GPUs
in each of y HB domains with C_hb and C_nic bytes/s a GPU. Latency is not modelled, as in the paper. The step-time model
uses streamed rings instead (`opsk.costmodel.collectives.hierarchical`); these are for comparing networks.
"""

from __future__ import annotations


def all_gather_s(
    size_bytes: float, *, inside: float, across: float, hb_bytes_per_s: float, nic_bytes_per_s: float
) -> float:
    """Return (y - 1) D/(x y C_nic) + (x - 1) D/(x C_hb) [s], equation 1; D is the whole array.

    Shards are first gathered along each rail, then in the domain. A reduce-scatter takes the same, an all-reduce twice.
    """
    nic_share, hb_share = all_gather_shares(inside=inside, across=across)
    return size_bytes * (nic_share / nic_bytes_per_s + hb_share / hb_bytes_per_s)


def all_gather_shares(*, inside: float, across: float) -> tuple[float, float]:
    """Return the parts of the array that one GPU moves over its NIC and over NVLink.

    32 GPUs in each of 2 domains: 1/64 and 31/32, so 98.4 % of the traffic stays in the domain (paper: 98 %).
    """
    return (across - 1) / (inside * across), (inside - 1) / inside


def rail_optimized_all_to_all_s(
    pair_bytes: float, *, inside: float, across: float, hb_bytes_per_s: float, nic_bytes_per_s: float
) -> float:
    """Return max((x - 1) D/C_hb, x (y - 1) D/C_nic) [s], equation 2; D is what each pair exchanges."""
    hb_s = (inside - 1) * pair_bytes / hb_bytes_per_s
    return max(hb_s, inside * (across - 1) * pair_bytes / nic_bytes_per_s)


def rail_only_all_to_all_s(
    pair_bytes: float, *, inside: float, across: float, hb_bytes_per_s: float, nic_bytes_per_s: float
) -> float:
    """Return y (x - 1) D/C_hb + x (y - 1) D/C_nic [s], equation 3: what goes to other rails is forwarded on NVLink."""
    hb_s = across * (inside - 1) * pair_bytes / hb_bytes_per_s
    return hb_s + inside * (across - 1) * pair_bytes / nic_bytes_per_s


def forwarding_slowdown(*, hb_bytes_per_s: float, nic_bytes_per_s: float) -> float:
    """Return about how much longer an all-to-all takes with forwarding: C_nic/C_hb [ratio].

    8.3 % on DGX A100 and 11.1 % on DGX H100; the paper prints 8.2 and 11.2 %. It takes y (x - 1) for x (y - 1).
    """
    return nic_bytes_per_s / hb_bytes_per_s
