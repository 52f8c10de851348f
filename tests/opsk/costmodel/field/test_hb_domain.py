"""Figures 8 to 10 of the rail-only paper: what the size and the rates of HB domain and network are worth.

The paper does not say how fast its GPUs compute, what overlaps and what latency is, so signs, order and rough sizes are
held, not digits; each test names what is printed and what we allow.
"""

from __future__ import annotations

import numpy as np
import pytest

from opsk.workload.model import ModelShape
from tests.opsk.costmodel.field.best_plan import GPT_1T, GPT_146B, Case, best_step_s

SIZES = (16384, 32768, 65536)
DOMAINS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FIGURE_8 = [(GPT_1T, 4096, gpus) for gpus in SIZES] + [(GPT_146B, 1024, gpus) for gpus in SIZES]
TBIT_PER_S, GBIT_PER_S = 1e12 / 8, 1e9 / 8


def _times(model: ModelShape, batch: int, gpus: int, *, has_latency: bool = False) -> dict[int, float]:
    """Return the step time of the best plan by size of the HB domain [s]."""
    return {
        domain: best_step_s(Case(model=model, gpus=gpus, batch=batch, hb_domain_gpus=domain, has_latency=has_latency))
        for domain in (*DOMAINS, gpus)
    }


@pytest.mark.parametrize(("model", "batch", "gpus"), FIGURE_8)
def test_a_larger_hb_domain_is_never_slower(model: ModelShape, batch: int, gpus: int):
    times = np.array(list(_times(model, batch, gpus).values()))
    # but for 3 %: where a group spans domains its ring uses NICs and NVLink at once, in one domain NVLink alone
    assert (times[1:] <= 1.03 * times[:-1]).all(), times


@pytest.mark.parametrize(("model", "batch", "gpus"), FIGURE_8)
def test_latency_does_not_turn_that_round(model: ModelShape, batch: int, gpus: int):
    # the steps inside a domain grow with its logarithm beyond a node, those that they replace cost a NIC's latency
    times = np.array(list(_times(model, batch, gpus, has_latency=True).values()))
    growth = times[1:] / times[:-1]
    assert (growth[:-1] <= 1).all(), times
    # one domain of all GPUs has NVLink alone, where two or more have their NICs as well: 1.1 % for 146B on 16,384
    assert growth[-1] <= 1.012, times


@pytest.mark.parametrize(("model", "batch", "gpus"), FIGURE_8)
def test_256_gpus_in_a_domain_are_nearly_ideal(model: ModelShape, batch: int, gpus: int):
    # printed: 0.9 % (1T) and 4.1 % (146B) above one domain of all GPUs; allowed: -3 to 8 %
    times = _times(model, batch, gpus)
    assert 0.97 < times[256] / times[gpus] < 1.08


@pytest.mark.parametrize("gpus", SIZES)
def test_the_smaller_model_gains_more_from_larger_domains(gpus: int):
    # printed for 146B: K = 8 is 43.3 % below K = 1, and K = 256 30.6 % below K = 8. Ours: 57 to 65 %, and 48, 48 and
    # 34 %; why that much more is open, since the paper states no rate of computing. Allowed: 30 to 70, and 15 to 55 %
    large, small = _times(GPT_1T, 4096, gpus), _times(GPT_146B, 1024, gpus)
    assert 0.30 < 1 - small[8] / small[1] < 0.70
    assert 0.15 < 1 - small[256] / small[8] < 0.55
    assert 1 - small[256] / small[8] > 1 - large[256] / large[8]


@pytest.mark.parametrize("gpus", SIZES)
def test_the_larger_model_flattens_beyond_32(gpus: int):
    # printed: stagnates beyond 32 GPUs; held: up to there at least 40 % are gained, from there on less than 12 %
    times = _times(GPT_1T, 4096, gpus)
    assert 1 - times[32] / times[1] > 0.40
    assert 1 - times[256] / times[32] < 0.12


def _gain(*, domain: int, slow: tuple[float, float], fast: tuple[float, float]) -> float:
    """Return by how much GPT-1T on 32,768 GPUs gets faster from one pair of rates (HB, NIC) to another [ratio]."""
    slow_s, fast_s = (
        best_step_s(
            Case(
                model=GPT_1T,
                gpus=32768,
                batch=4096,
                hb_domain_gpus=domain,
                hb_bytes_per_s=hb * TBIT_PER_S,
                nic_bytes_per_s=nic * GBIT_PER_S,
            )
        )
        for hb, nic in (slow, fast)
    )
    return 1 - fast_s / slow_s


def test_small_domains_want_faster_nics_and_large_ones_faster_nvlink():
    # figure 9, printed: NVLink 2.4 to 9.6 Tbit/s improves K = 8 by 8.0 % and K = 256 by 13.3 % on average; NICs of 100
    # to 400 Gbit/s improve K = 8 by 35.9 % and K = 256 by 8.0 %. The number of GPUs is not stated; 32,768 here. Held:
    # the order within each pair, and each within a factor of two or six points
    nics, nvlinks = (100, 200, 300, 400), (2.4, 4.8, 7.2, 9.6)
    by_nvlink = {k: np.mean([_gain(domain=k, slow=(2.4, nic), fast=(9.6, nic)) for nic in nics]) for k in (8, 256)}
    by_nic = {k: np.mean([_gain(domain=k, slow=(hb, 100), fast=(hb, 400)) for hb in nvlinks]) for k in (8, 256)}
    assert by_nvlink[8] < by_nvlink[256]
    assert by_nic[8] > 2 * by_nic[256]
    printed = {"nvlink": (0.080, 0.133), "nic": (0.359, 0.080)}
    for name, gains in (("nvlink", by_nvlink), ("nic", by_nic)):
        for gain, paper in zip(gains.values(), printed[name], strict=True):
            assert abs(gain - paper) < 0.06 or paper / 2 < gain < 2 * paper, (name, gains)


def test_larger_batches_need_the_domain_less():
    # figure 10, GPT-1T on 32,768 GPUs, batch 256 to 4,096: performance relative to one domain of all GPUs is 65 to 85 %
    # for K = 8, 95 to 99 % for K = 256. Held: it rises with the batch for K = 8 by at least two
    # points, and K = 256 stays above 93 %
    def relative(domain: int, batch: int) -> float:
        ideal, real = (
            best_step_s(Case(model=GPT_1T, gpus=32768, batch=batch, hb_domain_gpus=k)) for k in (32768, domain)
        )
        return ideal / real

    small = [relative(8, batch) for batch in (256, 1024, 4096)]
    large = [relative(256, batch) for batch in (256, 1024, 4096)]
    assert small[0] + 0.02 < small[-1] < 0.97
    assert min(large) > 0.93
    assert min(large) > max(small)
