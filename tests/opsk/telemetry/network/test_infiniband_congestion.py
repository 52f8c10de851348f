"""Is congestion the share of what a port could not send, and is it silent where the counters say nothing?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.network.infiniband import CongestionMeter, PortSample


class Time:
    """A clock that goes on by itself, a minute a question, unless told otherwise."""

    def __init__(self) -> None:
        self.now, self.step = 0.0, 60.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def port(
    wait: int | None, sent: int | None, *, link_layer: str = "InfiniBand", saturated: tuple[str, ...] = ()
) -> PortSample:
    counters = {"port_xmit_wait": wait, "port_xmit_data": sent}
    return PortSample(
        device="mlx5_0",
        port=1,
        link_layer=link_layer,
        saturated=saturated,
        counters={name: value for name, value in counters.items() if value is not None},
    )


def between(first: PortSample, second: PortSample, tick_bytes: float = 4) -> float | None:
    meter = CongestionMeter(tick_bytes, clock=Time())
    assert meter.ratio(first) is None
    return meter.ratio(second)


@pytest.mark.parametrize(
    ("ticks", "sent", "tick_bytes", "expected"),
    [
        # By hand: 100 ticks of 4 bytes against 400 bytes sent are half; of 8 bytes, 800 of 1,200.
        (100, 400, 4, 1 / 2),
        (100, 400, 8, 2 / 3),
        (0, 400, 4, 0.0),
        (100, 0, 4, 1.0),
        (0, 0, 4, 0.0),
    ],
)
def test_the_ratio_is_lost_bytes_among_all(ticks: int, sent: int, tick_bytes: float, expected: float) -> None:
    assert between(port(7, 1000), port(7 + ticks, 1000 + sent), tick_bytes) == pytest.approx(expected)


@given(st.integers(0, 2**31), st.integers(0, 2**50), st.sampled_from([1, 4, 8, 32, 128]))
def test_the_ratio_stays_between_0_and_1(ticks: int, sent: int, tick_bytes: int) -> None:
    ratio = between(port(0, 0), port(ticks, sent), tick_bytes)
    assert ratio is not None
    assert 0 <= ratio <= 1


@given(st.integers(1, 2**30), st.integers(1, 2**40), st.integers(1, 2**30), st.sampled_from([1, 8, 32]))
def test_the_order_of_two_ports_does_not_depend_on_the_tick(wait: int, sent: int, other: int, tick_bytes: int) -> None:
    def order(tick: float) -> bool:
        one, two = between(port(0, 0), port(wait, sent), tick), between(port(0, 0), port(other, sent), tick)
        assert one is not None
        assert two is not None
        return one <= two

    assert order(tick_bytes) == order(4) == (wait <= other)


def test_the_first_look_says_nothing() -> None:
    assert CongestionMeter().ratio(port(1, 2)) is None


@pytest.mark.parametrize("after", [(0, 5000), (9, 100), (0, 0)])
def test_a_reset_says_nothing_once(after: tuple[int, int]) -> None:
    meter = CongestionMeter(clock=Time())
    meter.ratio(port(8, 4000))
    assert meter.ratio(port(*after)) is None
    assert meter.ratio(port(after[0] + 1, after[1] + 4)) == 0.5


@pytest.mark.parametrize(
    "silent",
    [
        port(None, 100),
        port(100, None),
        port(2**32 - 1, 100, saturated=("counters/port_xmit_wait",)),
        port(1, 2**34 - 4, saturated=("counters/port_xmit_data",)),
        port(100, 100, link_layer="Ethernet"),
    ],
)
def test_counters_that_say_nothing_give_nothing_and_are_forgotten(silent: PortSample) -> None:
    meter = CongestionMeter(clock=Time())
    meter.ratio(port(0, 0))
    assert meter.ratio(silent) is None
    assert meter.ratio(port(200, 400)) is None


def test_other_saturated_counters_do_not_matter() -> None:
    assert between(port(0, 0), port(1, 4, saturated=("counters/link_downed",))) == 0.5


def test_a_second_scraper_at_the_same_moment_is_told_the_same() -> None:
    clock = Time()
    meter = CongestionMeter(clock=clock)
    meter.ratio(port(0, 0))
    assert meter.ratio(port(1, 4)) == 0.5
    clock.step = 0.1
    assert meter.ratio(port(1, 5)) == 0.5
    clock.step = 60
    # 0 ticks since the look that counted.
    assert meter.ratio(port(1, 9)) == 0.0


def test_a_port_that_comes_back_begins_anew() -> None:
    meter = CongestionMeter(clock=Time())
    meter.ratio(port(0, 0))
    meter.forget_others(set())
    assert meter.ratio(port(1, 4)) is None
