"""Are series of exporters read as what happened between the first and the last scrape?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.app.losses import parse_scrape, read_scrape
from opsk.diagnosis.losses.scrapes import Scrape, compute_activities
from tests.fakes.losing_causes import simulated
from tests.fakes.losing_files import write_scrapes


def series(node: str, at_s: float, text: str) -> Scrape:
    return Scrape(node=node, values=parse_scrape(text.encode())[0], at_s=at_s)


def test_files_say_what_was_simulated(tmp_path: Path) -> None:
    job = simulated(5, "power_cap")
    found = compute_activities(read_scrape(name) for name in write_scrapes(tmp_path, job))
    assert found.interval_s == pytest.approx(600)
    assert len(found.gpus) == len(job.gpus)
    for seen, told in zip(found.gpus, job.gpus, strict=True):
        assert (seen.node, seen.index) == (told["node"], told["index"])
        assert seen.clock == pytest.approx(told["clock"])
        assert dict(seen.throttled) == pytest.approx(told["throttled"])
        assert seen.power_limit_w == told["power_limit_w"]
    for port, asked in zip(found.ports, job.ports, strict=True):
        assert port.congestion == pytest.approx(asked["congestion"], abs=1e-9)
        assert port.rate == asked["rate"]
        assert port.leaf == asked["leaf"]
    for host, expected in zip(found.hosts, job.hosts, strict=True):
        assert host.cpu_busy == pytest.approx(expected["cpu_busy"])
        assert host.io_stalled == pytest.approx(expected["io_stalled"])


INFO = 'opsk_gpu_info{gpu="G",index="2",slurm_index="5"} 1\n'


def test_gauges_are_averaged_and_slurms_index_is_the_name() -> None:
    first = series("n1", 0, INFO + 'opsk_gpu_utilization_ratio{gpu="G"} 0.8\n')
    last = series("n1", 60, INFO + 'opsk_gpu_utilization_ratio{gpu="G"} 1.0\n')
    (gpu,) = compute_activities([last, first]).gpus
    assert (gpu.index, gpu.busy, gpu.sm_active) == (5, pytest.approx(0.9), None)


def test_a_counter_that_went_back_gives_nothing() -> None:
    counter = 'opsk_gpu_throttle_seconds_total{{gpu="G",reason="sw_thermal_slowdown"}} {}\n'
    first, last = (series("n1", at, INFO + counter.format(value)) for at, value in ((0, 50.0), (60, 3.0)))
    assert compute_activities([first, last]).gpus[0].throttled == {}


def test_one_scrape_gives_gauges_only() -> None:
    found = compute_activities(
        [series("n1", 0, INFO + 'opsk_host_cpu_seconds_total{mode="idle"} 5\nopsk_host_cpus 2\n')]
    )
    assert (len(found.gpus), found.hosts) == (1, ())


def test_the_rate_is_compared_with_ports_of_the_same_name() -> None:
    """A slower port that all nodes have is another network's; one that is slower than its like is trained down."""
    text = (
        'opsk_infiniband_port_info{{device="mlx5_0",port="1"}} 1\n'
        'opsk_infiniband_port_info{{device="mlx5_9",port="1"}} 1\n'
        'opsk_infiniband_port_rate_bytes_per_second{{device="mlx5_0",port="1"}} {}\n'
        'opsk_infiniband_port_rate_bytes_per_second{{device="mlx5_9",port="1"}} 1.25e10\n'
    )
    found = compute_activities([series("n1", 0, text.format(5e10)), series("n2", 0, text.format(2.5e10))])
    assert {(port.node, port.device): port.rate for port in found.ports} == {
        ("n1", "mlx5_0"): 1.0,
        ("n2", "mlx5_0"): 0.5,
        ("n1", "mlx5_9"): 1.0,
        ("n2", "mlx5_9"): 1.0,
    }


def test_ports_of_the_storage_network_are_left_out() -> None:
    assert (
        compute_activities([series("n1", 0, 'opsk_infiniband_port_info{device="a",port="1",role="storage"} 1\n')]).ports
        == ()
    )


def test_only_the_jobs_gpus_count_where_that_is_told() -> None:
    text = (
        'opsk_gpu_info{gpu="A",index="0"} 1\nopsk_gpu_info{gpu="B",index="1"} 1\n'
        'opsk_job_info{job="s1",job_id="7"} 1\nopsk_job_gpu{job="s1",gpu="B"} 1\n'
    )
    assert [gpu.index for gpu in compute_activities([series("n1", 0, text)], job_id="7").gpus] == [1]
    assert [gpu.index for gpu in compute_activities([series("n1", 0, text)], job_id="8").gpus] == [0, 1]


def test_hostile_text_is_passed_over() -> None:
    text = 'opsk_a{x="\\"}"} 1\nopsk_b nan\nopsk_c{x="y} 2\nopsk_d{' + "x" * 100_000 + "} 1\nopsk_e 3 1700000000000\n"
    values, stamped = parse_scrape(text.encode())
    assert values == {("opsk_a", frozenset({("x", '"}')})): 1.0, ("opsk_e", frozenset()): 3.0}
    assert stamped == 1.7e9
