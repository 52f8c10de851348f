"""Is a simulated site what its seed says, and does it show a site's records what a real one would?"""

from __future__ import annotations

from statistics import median

import pytest

from opsk.calibration.runs.run_writer import compute_steady_step_s
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.predict import predict_one
from opsk.lab.hidden.jobs import KINDS, SimulatedJob, list_clusters, simulate_jobs
from opsk.lab.hidden.probe import NODES, measure_probe
from opsk.lab.hidden.site import HIGH, LOW, MAX_SHARE, HiddenSite, draw_site
from opsk.probe.comparison import compare, summarise_ratios


@pytest.fixture(scope="module")
def site() -> HiddenSite:
    return draw_site(7, list_clusters())


@pytest.fixture(scope="module")
def jobs(site: HiddenSite) -> list[SimulatedJob]:
    return simulate_jobs(site, 200)


def test_every_efficiency_has_a_factor_of_its_own_within_the_bounds(site: HiddenSite) -> None:
    hopper = site.efficiencies["superpod-h100"]
    gpu, base = hopper.for_gpu("hopper"), DEFAULT.for_gpu("hopper")
    factors = [getattr(gpu, name) / getattr(base, name) for name in ("matmul_fraction", "attention_factor")]
    assert factors[0] != factors[1]
    assert all(LOW <= factor <= HIGH for factor in factors)
    assert max(gpu.matmul_fraction, hopper.links.nic_fraction) <= MAX_SHARE
    assert hopper.links != site.efficiencies["superpod-a100"].links
    assert hopper.software == site.efficiencies["superpod-a100"].software  # frameworks are the same everywhere


def test_nics_of_larger_jobs_have_more_of_the_factor_of_their_size(site: HiddenSite) -> None:
    cluster = list_clusters()[0]
    rates = [site.efficiency(cluster, nodes).links.nic_hop_s for nodes in (1, 8, 64)]
    factor = site.size_factors[cluster.name]
    assert rates == pytest.approx([rates[0], rates[0] / factor**0.5, rates[0] / factor])


def test_a_seed_is_a_site_with_its_jobs(site: HiddenSite, jobs: list[SimulatedJob]) -> None:
    assert draw_site(7, list_clusters()) == site
    assert simulate_jobs(site, 5) == jobs[:5]
    assert draw_site(8, list_clusters()) != site
    assert {job.kind for job in jobs} == {kind.name for kind in KINDS}
    assert len(KINDS) == 12


def test_jobs_that_run_well_take_the_time_of_the_hidden_site(site: HiddenSite, jobs: list[SimulatedJob]) -> None:
    well = [job for job in jobs if not job.fault][:20]
    steps = [compute_steady_step_s(job.intervals) or 0.0 for job in well]
    assert steps == pytest.approx([job.true_step_s for job in well], rel=0.03)
    true = [site.step_s(job.model, job.plan, job.cluster) for job in well]
    assert steps == pytest.approx(true, rel=0.1)
    predicted = [float(predict_one(job.model, job.plan, job.cluster).time.step_s.expected) for job in well]
    assert median(abs(each / step - 1.0) for each, step in zip(predicted, steps, strict=True)) > 0.05


@pytest.mark.parametrize(
    ("fault", "is_recorded"),
    [("data stall", "unsteady"), ("sick GPU", "failure"), ("straggler", "named or steady"), ("invented", "steady")],
)
def test_what_runs_badly_is_recorded_as_it_would_be(jobs: list[SimulatedJob], fault: str, is_recorded: str) -> None:
    those = [job for job in jobs if job.fault == fault]
    assert those
    if is_recorded == "unsteady":
        assert all(job.held_up_by == fault for job in those)
        assert any(compute_steady_step_s(job.intervals) is None for job in those)
    elif is_recorded == "failure":
        assert all(job.has_failure for job in those)
    elif is_recorded == "named or steady":
        assert all(job.held_up_by or compute_steady_step_s(job.intervals) for job in those)
    else:
        steps = [compute_steady_step_s(job.intervals) or 0.0 for job in those]
        assert all(step < 0.6 * job.true_step_s for step, job in zip(steps, those, strict=True))
        assert not any(job.held_up_by or job.has_failure for job in those)


def test_a_probe_measures_the_hidden_machine_in_the_format_of_the_program(site: HiddenSite) -> None:
    """Each rate is the model's with the site's efficiencies, within the noise of 1.5 %."""
    for cluster in list_clusters():
        document = measure_probe(site, cluster)
        ratios = summarise_ratios(compare(document, cluster, site.efficiency(cluster, NODES)))
        assert {part for part, _ in ratios} == {"matmul", "attention", "memory", "collectives"}
        assert list(ratios.values()) == pytest.approx([1.0] * len(ratios), abs=0.03)
        assert len(document.training) == 12
        flop = [2.0 * row.m * row.k * row.n / row.time_s for row in document.matmul]
        assert flop == pytest.approx([row.flop_per_s for row in document.matmul])
