from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.app.interference.rates import ReadRates, read_rates
from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.planning.interference.measured import PortRate

FABRIC = rail_optimized_fabric(nodes=2, hcas=1, leaves=1, spines=1)
HCA = next(iter(FABRIC.hcas))
SWITCH = next(iter(FABRIC.switches))


def read(tmp_path: Path, text: str) -> ReadRates:
    path = tmp_path / "rates"
    path.write_text(text, encoding="utf-8")
    return read_rates(path, FABRIC)


def test_csv_rows_are_hcas_and_switch_ports(tmp_path: Path) -> None:
    found = read(
        tmp_path, f"guid,port,sent_bytes_per_s,received_bytes_per_s\n0x{HCA.upper()},,1e9,2e9\n{SWITCH},3,4,5\n"
    )
    assert found.rates.hcas == {HCA: PortRate(sent_bytes_per_s=1e9, received_bytes_per_s=2e9)}
    assert found.rates.switch_ports == {(SWITCH, 3): PortRate(sent_bytes_per_s=4.0, received_bytes_per_s=5.0)}
    assert found.problems == ()


def test_json_rows_are_the_same(tmp_path: Path) -> None:
    rows = [{"guid": HCA, "sent_bytes_per_s": 1}, {"guid": SWITCH, "port": 3, "received_bytes_per_s": 5}]
    found = read(tmp_path, json.dumps(rows))
    assert found.rates.hcas == {HCA: PortRate(sent_bytes_per_s=1.0)}
    assert found.rates.switch_ports == {(SWITCH, 3): PortRate(received_bytes_per_s=5.0)}


def test_two_ports_of_one_hca_add_up(tmp_path: Path) -> None:
    found = read(tmp_path, f"guid,port,sent_bytes_per_s,received_bytes_per_s\n{HCA},1,1,2\n{HCA},2,3,4\n")
    assert found.rates.hcas == {HCA: PortRate(sent_bytes_per_s=4.0, received_bytes_per_s=6.0)}


def test_bad_rows_are_counted_and_good_ones_used(tmp_path: Path) -> None:
    rows = [
        {"guid": HCA, "sent_bytes_per_s": 1}, {"guid": HCA, "sent_bytes_per_s": "NaN"}, {"guid": HCA, "port": -1},
        {"guid": "f" * 16, "sent_bytes_per_s": 1}, {"guid": HCA, "sent_bytes_per_s": -1}, 7, None,
        {"guid": HCA, "sent_bytes_per_s": True}, {"guid": HCA, "sent_bytes_per_s": 1e300},
    ]  # fmt: skip
    found = read(tmp_path, json.dumps(rows))
    assert found.rates.hcas == {HCA: PortRate(sent_bytes_per_s=1.0)}
    assert [problem.split(" of ")[0] for problem in found.problems] == ["7 rows", "1 ports"]


@pytest.mark.parametrize("text", ["", "[]", "{", "hello\n", "guid,port\n", "[" * 100_000, '{"guid": 1}', "null"])
def test_a_file_without_any_port_of_the_fabric_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError):
        read(tmp_path, text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.text(max_size=200))
def test_no_text_is_a_traceback(tmp_path: Path, text: str) -> None:
    try:
        read(tmp_path, text.encode("utf-8", "ignore").decode())
    except InputError as error:
        assert str(tmp_path) in error.message  # noqa: PT017
