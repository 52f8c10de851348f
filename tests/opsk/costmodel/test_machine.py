"""Rates of clusters: peaks times efficiencies, by number format and by link."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, LinkEfficiency
from opsk.costmodel.machine import (
    NO_LINK_BYTES_PER_S,
    STATE_FRACTIONS,
    USUAL_SHARES,
    Machine,
    build_machine,
    build_machines,
    find_generation,
    generations,
    host_w,
    load_kernel_rates,
    network_w,
)
from opsk.costmodel.table import ATTENTIONS, PRECISIONS, SOFTWARE, IntColumn
from opsk.errors import InputError
from opsk.hardware.catalog import cluster, gpu, names
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Precision
from tests.fakes.training_runs import A100, a100_cluster

USUAL = {
    "pascal": "p100-sxm2-16gb", "volta": "v100-sxm2-16gb", "turing": "t4", "ampere": "a100-sxm-80gb", "ada": "l40s",
    "hopper": "h100-sxm", "blackwell": "b200-sxm", "blackwell-ultra": "b300-sxm", "blackwell-rtx": "rtx-pro-6000",
    "cdna2": "mi250x-gcd", "cdna3": "mi300x", "cdna4": "mi355x",
}  # fmt: skip


def test_every_kernel_has_rates_on_every_chip() -> None:
    rates = load_kernel_rates()
    assert rates.shape == (9, len(generations()), len(ATTENTIONS), len(SOFTWARE))
    assert np.isfinite(rates).all()
    assert (rates[:6] > 0).all()
    assert (rates[:6] < 1.35).all()  # no kernel outruns products by more than the short runs of its benchmark


def test_every_generation_of_the_catalogue_is_in_the_table() -> None:
    assert {gpu(name).architecture for name in names("gpu")} <= set(generations())


def test_an_unknown_chip_is_taken_for_an_a100() -> None:
    assert find_generation("rubin") == find_generation("ampere")


@pytest.mark.parametrize("generation", USUAL_SHARES)
def test_usual_shares_are_those_of_the_catalogue(generation: str) -> None:
    share = gpu(USUAL[generation]).sustained_share
    kinds = {"16-bit" if name in ("bf16", "fp16") else name: value for name, value in share.items()}
    assert kinds == dict(USUAL_SHARES[generation])


def test_states_are_ordered_by_what_works_and_none_beats_the_limit():
    states = STATE_FRACTIONS
    assert 0 < states.idle < states.waiting < states.communicating <= states.computing <= 1
    assert states.waiting < states.memory_bound < states.computing
    assert max(asdict(states).values()) == 1


def test_a_node_of_h100_draws_what_was_measured():
    # Latif et al. 2024 (arXiv 2412.08602): at most 8.4 kW of rated 10.2, GPUs near their limits of 8 x 700 W
    node = cluster("superpod-h100").node
    assert 8 * host_w(node) + 8 * 700 == pytest.approx(8400, rel=0.02)


def test_a_host_of_unknown_rating_is_a_share_of_its_gpus():
    node = cluster("superpod-h100").node
    known, unknown = host_w(node), host_w(replace(node, power_w=None))
    # 350 W is half of 700 W; the rating says 345 W
    assert unknown == pytest.approx(350)
    assert unknown == pytest.approx(known, rel=0.02)


def test_a_host_rated_below_its_gpus_draws_nothing_rather_than_less():
    assert host_w(replace(cluster("superpod-h100").node, power_w=1000.0)) == 0


def test_the_network_of_a_superpod_is_counted_by_switches_and_transceivers():
    # 48 switches x 64 ports x 18 W + 2 x 2 x 1016 transceivers x 9 W = 91,872 W over 1,016 GPUs
    assert network_w(cluster("superpod-h100")) == pytest.approx((48 * 64 * 18 + 4064 * 9) / 1016)


def test_a_rail_only_network_needs_less(cluster: ClusterSpec):
    assert network_w(replace(cluster, fabric="rail-only")) < network_w(cluster)


def test_more_tiers_need_more_power_and_one_node_needs_no_network(cluster: ClusterSpec):
    watts = [network_w(replace(cluster, nodes=nodes)) for nodes in (1, 8, 256, 10_000, 10**9)]
    assert watts == sorted(watts)
    assert watts[0] == 0


def test_slower_links_need_less_power(cluster: ClusterSpec):
    nic = replace(cluster.node.nic, bytes_per_s=50e9)
    faster = replace(cluster, node=replace(cluster.node, nic=nic))
    assert network_w(faster) == pytest.approx(2 * network_w(cluster))


REACHED = GpuEfficiency(
    matmul_fraction=0.8,
    fp8_fraction=0.6,
    fp4_fraction=0.5,
    matmul_size=100.0,
    attention_factor=0.9,
    hbm_fraction=0.75,
)
LINKS = LinkEfficiency(hb_fraction=0.8, nic_fraction=0.9, hb_hop_s=3e-6, nic_hop_s=9e-6)
EFFICIENCY = Efficiency(gpu={"": REACHED, "ampere": replace(REACHED, matmul_fraction=0.7)}, links=LINKS)
BLACKWELL = replace(
    A100, name="b", peak_flop_per_s={"fp32": 7e13, "fp16": 2e15, "bf16": 2e15, "fp8": 4e15, "fp4": 8e15}, tdp_w=1000.0
)


def _column(*precisions: Precision) -> IntColumn:
    return np.array([PRECISIONS.index(precision) for precision in precisions])


def _machine(cluster: ClusterSpec, *precisions: Precision) -> Machine:
    return build_machine(cluster, _column(*(precisions or (Precision.BF16,))), EFFICIENCY)


def _with_gpu(**fields: object) -> ClusterSpec:
    cluster = a100_cluster()
    return replace(cluster, node=replace(cluster.node, gpu=replace(A100, **fields)))  # type: ignore[arg-type]


def test_rates_are_peaks_times_what_is_reached() -> None:
    machine = _machine(a100_cluster())
    assert machine.peak_flop_per_s[0] == 312e12
    assert machine.matmul_flop_per_s[0] == pytest.approx(0.8 * 312e12)
    assert machine.attention_flop_per_s[0] == pytest.approx(0.9 * 0.8 * 312e12)
    assert machine.plain_flop_per_s[0] == pytest.approx(0.8 * 312e12)
    assert float(machine.hbm_bytes_per_s) == pytest.approx(0.75 * 2.039e12)
    assert float(machine.hb_bytes_per_s) == pytest.approx(0.8 * 300e9)
    assert float(machine.nic_bytes_per_s) == pytest.approx(0.9 * 25e9)
    assert (float(machine.matmul_size[0]), float(machine.plain_size)) == (100, 100)
    assert (float(machine.hb_hop_s), float(machine.nic_hop_s)) == (3e-6, 9e-6)


def test_small_products_lose_more_in_formats_of_fewer_bits() -> None:
    """Sizes of benchmarks/published/product_fits.csv; what stays in 16 bits keeps its own, and a larger one stays."""
    cluster = _with_gpu(peak_flop_per_s=BLACKWELL.peak_flop_per_s)
    formats = (Precision.BF16, Precision.FP8, Precision.MXFP8, Precision.NVFP4)
    machine = _machine(cluster, *formats)
    assert machine.matmul_size.tolist() == [100, 450, 450, 1100]
    assert float(machine.plain_size) == 100
    wide = replace(EFFICIENCY, gpu={"": replace(REACHED, matmul_size=700.0)})
    assert build_machine(cluster, _column(*formats), wide).matmul_size.tolist() == [700, 700, 700, 1100]
    ideal = replace(EFFICIENCY, gpu={"": replace(REACHED, matmul_size=0.0)})
    assert build_machine(cluster, _column(*formats), ideal).matmul_size.tolist() == [0, 0, 0, 0]


def test_each_number_format_has_its_peak_and_its_fraction() -> None:
    formats = (Precision.FP32, Precision.BF16, Precision.FP8, Precision.MXFP8, Precision.FP8_BLOCK, Precision.NVFP4)
    cluster = a100_cluster()
    machine = _machine(replace(cluster, node=replace(cluster.node, gpu=BLACKWELL)), *formats)
    np.testing.assert_allclose(machine.peak_flop_per_s, [7e13, 2e15, 4e15, 4e15, 4e15, 8e15])
    np.testing.assert_allclose(machine.matmul_flop_per_s, [0.9 * 7e13, 0.8 * 2e15, *[0.6 * 4e15] * 3, 0.5 * 8e15])
    # attention and head stay in 16 bits under FP8 and FP4 recipes
    np.testing.assert_allclose(machine.plain_flop_per_s, [0.9 * 7e13, *[0.8 * 2e15] * 5])
    np.testing.assert_allclose(machine.attention_flop_per_s, [0.9 * 0.9 * 7e13, *[0.9 * 0.8 * 2e15] * 5])
    np.testing.assert_allclose(machine.fp32_flop_per_s, 0.9 * 7e13)


def test_a_fitted_generation_has_its_own_fractions_and_others_share_the_rest() -> None:
    fitted, other = (_machine(_with_gpu(architecture=name)) for name in ("ampere", "turing"))
    assert fitted.matmul_flop_per_s[0] == pytest.approx(0.7 * 312e12)
    assert other.matmul_flop_per_s[0] == pytest.approx(0.8 * 312e12)


def test_gpus_without_nvlink_talk_over_pcie_inside_their_node() -> None:
    cluster = _with_gpu(hb_bytes_per_s=0.0)
    machine = _machine(replace(cluster, node=replace(cluster.node, hb_domain_gpus=1)))
    assert float(machine.hb_gpus) == 8
    assert float(machine.hb_bytes_per_s) == pytest.approx(0.8 * 32e9)


@pytest.mark.parametrize(("nics", "share"), [(8, 1.0), (4, 0.5), (1, 0.125)])
def test_gpus_share_the_nics_of_their_node(nics: int, share: float) -> None:
    assert float(_machine(a100_cluster(nics=nics)).nic_bytes_per_s) == pytest.approx(share * 0.9 * 25e9)


def test_oversubscription_divides_the_fabric() -> None:
    assert float(_machine(replace(a100_cluster(), oversubscription=4.0)).nic_bytes_per_s) == pytest.approx(
        0.9 * 25e9 / 4
    )
    # more uplinks than downlinks do not speed a NIC up
    assert float(_machine(replace(a100_cluster(), oversubscription=0.5)).nic_bytes_per_s) == pytest.approx(0.9 * 25e9)


def test_a_node_without_nics_has_a_link_that_no_plan_wants() -> None:
    assert float(_machine(a100_cluster(nics=0)).nic_bytes_per_s) == NO_LINK_BYTES_PER_S


def test_a_column_of_clusters_has_the_rates_of_each() -> None:
    cluster = a100_cluster()
    clusters = [
        cluster,
        replace(cluster, node=replace(cluster.node, gpu=BLACKWELL, hb_domain_gpus=72)),
        a100_cluster(nics=4),
        cluster,
    ]
    formats = (Precision.BF16, Precision.MXFP8, Precision.FP16, Precision.FP32)
    together = build_machines(clusters, _column(*formats), EFFICIENCY)
    for place, (one, precision) in enumerate(zip(clusters, formats, strict=True)):
        alone = _machine(one, precision)
        for name in ("matmul_flop_per_s", "plain_flop_per_s", "hb_gpus", "nic_bytes_per_s", "tdp_w", "capacity_bytes"):
            expected = float(np.broadcast_to(getattr(alone, name), (1,))[0])
            assert getattr(together, name)[place] == pytest.approx(expected), name


def test_a_format_that_a_gpu_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="a100-sxm-80gb has no fp4, fp8 peak"):
        _machine(a100_cluster(), Precision.BF16, Precision.FP8, Precision.NVFP4)
    with pytest.raises(InputError, match="a100-sxm-80gb has no fp8 peak"):
        build_machines([a100_cluster()] * 2, _column(Precision.BF16, Precision.MXFP8), EFFICIENCY)


def test_fp8_needs_16_bit_products_too() -> None:
    with pytest.raises(InputError, match="has no bf16 peak"):
        _machine(_with_gpu(peak_flop_per_s={"fp32": 1e13, "fp8": 1e15}), Precision.FP8)
