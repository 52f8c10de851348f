"""Do the sums over NVLinks only grow, and are sick links named?"""

from __future__ import annotations

from dataclasses import replace

from opsk.telemetry.gpu.samples import GpuSample, NvLinkSample
from opsk_exporters.gpu.collector import GpuCollector
from tests.exporters.gpu.test_collector import samples, shown
from tests.fakes.gpus import FixedGpus, gpu_uuid, h100, reading


def test_links_are_summed_over_the_gpu() -> None:
    now, uuid = shown(h100(1)), gpu_uuid(1)
    # 18 links of 4,096 and 2,048 bytes, at 26.562 GB/s each.
    assert now["opsk_gpu_nvlink_received_bytes_total", uuid] == 18 * 4096
    assert now["opsk_gpu_nvlink_transmitted_bytes_total", uuid] == 18 * 2048
    assert now["opsk_gpu_nvlink_speed_bytes_per_second", uuid] == 18 * 26.562e9
    assert now["opsk_gpu_nvlinks", uuid, "active"] == 18
    assert now["opsk_gpu_nvlinks", uuid, "inactive"] == 0


def test_sound_links_have_no_series_of_their_own() -> None:
    assert not any(key[0].startswith("opsk_gpu_nvlink_link") for key in shown(h100(0)))


def test_links_that_are_down_or_have_errors_are_named() -> None:
    gpu = h100(0)
    down = NvLinkSample(link=3, state="inactive")
    noisy = replace(gpu.nvlinks[7], errors={"replay": 5, "crc": 0})
    links = (*gpu.nvlinks[:3], down, *gpu.nvlinks[4:7], noisy, *gpu.nvlinks[8:])
    now = shown(replace(gpu, nvlinks=links))
    assert now["opsk_gpu_nvlink_link_down", gpu.uuid, "3"] == 1
    assert now["opsk_gpu_nvlink_link_errors_total", gpu.uuid, "replay", "7"] == 5
    assert ("opsk_gpu_nvlink_link_errors_total", gpu.uuid, "crc", "7") not in now
    assert now["opsk_gpu_nvlink_errors_total", gpu.uuid, "replay"] == 5
    assert now["opsk_gpu_nvlinks", gpu.uuid, "inactive"] == 1


def test_a_link_that_goes_down_does_not_make_the_sum_fall() -> None:
    def gpu(*links: NvLinkSample) -> GpuSample:
        return GpuSample(uuid="GPU-a", index=0, nvlinks=links)

    first = NvLinkSample(link=0, state="active", received_bytes=100)
    second = NvLinkSample(link=1, state="active", received_bytes=1000)
    down = NvLinkSample(link=1, state="inactive")
    grown = replace(first, received_bytes=150)
    source = FixedGpus(reading(gpu(first, second)), reading(gpu(grown, down)))
    collector = GpuCollector(source)
    key = ("opsk_gpu_nvlink_received_bytes_total", "GPU-a")
    assert samples(collector.collect())[key] == 1100
    assert samples(collector.collect())[key] == 1150


def test_a_link_that_begins_anew_does_not_make_the_sum_fall_and_a_new_driver_does() -> None:
    def gpu(*received: int) -> GpuSample:
        links = (NvLinkSample(link=link, state="active", received_bytes=count) for link, count in enumerate(received))
        return GpuSample(uuid="GPU-a", index=0, nvlinks=tuple(links))

    steps = ((100, 1000), (150, 10), (160, 30), (5, 7), (6, 9))
    collector = GpuCollector(FixedGpus(*(reading(gpu(*step)) for step in steps)))
    key = ("opsk_gpu_nvlink_received_bytes_total", "GPU-a")
    sums = [samples(collector.collect())[key] for _ in steps]
    # Link 1 was trained anew: its 10 and 30 come on top of 1,000. Then both began anew: the driver was loaded again.
    assert sums == [1100, 1160, 1190, 12, 15]


def test_gpus_without_links_have_no_series_of_links() -> None:
    assert not any("nvlink" in key[0] for key in shown(replace(h100(0), nvlinks=())))
