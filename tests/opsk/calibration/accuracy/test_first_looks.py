"""Are errors of first looks read as they were recorded, and compared with the sources of the table alone?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opsk.calibration.accuracy.first_looks import (
    FirstLook,
    add_first_looks,
    find_offset_share,
    read_first_looks,
    select_newest,
)
from opsk.calibration.fitting.spread import Residuals
from opsk.costmodel.efficiency.cases import ASPECTS, Case
from opsk.errors import InputError

HEAD = "look,id,source,quantity,assumed,case,log_error,half_width\n"
RECORDED = Path(__file__).parents[4] / "benchmarks" / "published" / "first_look_errors.csv"
HOPPER, VOLTA = (Case.parse(f"{chip}/megatron-core/dense/16-bit/tp") for chip in ("hopper", "volta"))


def _write(folder: Path, rows: str) -> Path:
    path = folder / "looks.csv"
    path.write_text(HEAD + rows, encoding="utf-8")
    return path


def _build_look(source: str, case: Case, look: int = 1) -> FirstLook:
    return FirstLook(
        look=look, id=f"{source}-1", source=source, quantity="time", assumed_inputs=2, case=case, log_error=-0.4
    )


def test_a_row_is_read(tmp_path: Path) -> None:
    (look,) = read_first_looks(_write(tmp_path, "2,a-1,a,memory,3,hopper/megatron-core/dense/16-bit/tp,-0.25,0.2\n"))
    assert (look.source, look.quantity, look.assumed_inputs, look.log_error) == ("a", "memory", 3, -0.25)
    assert look.case == HOPPER


@pytest.mark.parametrize(
    "row",
    [
        "0,a-1,a,time,3,hopper/megatron-core,-0.25,0.2",
        "2,a-1,a,speed,3,hopper/megatron-core,-0.25,0.2",
        "2,a-1,a,time,-1,hopper/megatron-core,-0.25,0.2",
        "2,a-1,a,time,3,hopper/megatron-core,nan,0.2",
        "2,a-1,a,time,3,hopper/megatron-core,99,0.2",
        "2,a-1,a,time,3,hopper,0.1,0.2",
        "2,a-1,a,time",
        "2,a-1,,time,3,hopper/megatron-core,0.1,0.2",
    ],
)
def test_a_wrong_row_is_named_by_its_line(tmp_path: Path, row: str) -> None:
    good = "2,a-1,a,time,3,hopper/megatron-core,0.1,0.2\n"
    with pytest.raises(InputError, match="line 3"):
        read_first_looks(_write(tmp_path, good + row + "\n"))


def test_what_is_no_table_of_first_looks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_bytes(b"id,gpu\n1,A100\n")
    with pytest.raises(InputError, match="no column look, source"):
        read_first_looks(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError):
        read_first_looks(path)
    with pytest.raises(InputError):
        read_first_looks(tmp_path / "none.csv")


def test_first_looks_stand_after_the_sources_left_out_and_lack_what_other_sources_lack() -> None:
    left_out = replace(Residuals.plain([0.1, 0.0], [0, 0]), sources=np.array(["a", "b"], dtype=object))
    looks = (_build_look("c", HOPPER), _build_look("a", HOPPER), _build_look("c", VOLTA))
    both = add_first_looks(left_out, [HOPPER, VOLTA], looks, quantity="time")
    assert both.is_unseen.tolist() == [False, False, True, True, True]
    assert both.sources.tolist() == ["a", "b", "c", "a", "c"]
    assert both.assumed_inputs.tolist() == [0, 0, 2, 2, 2]
    # only source a itself ran on Hopper: for it the chip generation is new
    assert both.lacks[2:, ASPECTS.index("gpu")].tolist() == [False, True, False]
    assert len(add_first_looks(left_out, [HOPPER, VOLTA], looks, quantity="memory").log_errors) == 2


def test_a_later_look_counts_more_than_one_whose_errors_were_mended() -> None:
    left_out = replace(Residuals.plain([0.1], [0]), sources=np.array(["a"], dtype=object))
    looks = (_build_look("c", HOPPER), _build_look("d", HOPPER, look=2))
    both = add_first_looks(left_out, [HOPPER], looks, quantity="time")
    assert both.unseen_weights.tolist() == [0.0, 0.5, 1.0]
    assert both.weights.tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 3])


def test_the_newest_of_several_looks_tests_a_fit() -> None:
    looks = [_build_look("old", HOPPER), _build_look("new", HOPPER, look=3), _build_look("newer", HOPPER, look=3)]
    assert [look.source for look in select_newest(looks)] == ["new", "newer"]
    assert not select_newest(looks[:1])  # ranges of one look alone are better than none
    assert not select_newest([])


def test_recorded_first_looks_are_of_five_looks_and_both_quantities() -> None:
    looks = read_first_looks(RECORDED)
    assert {look.quantity for look in looks} == {"time", "memory"}
    assert len({look.source for look in looks}) >= 82
    assert {look.look for look in looks} == {1, 2, 3, 4, 5}
    assert len(looks) == len({(look.id, look.quantity) for look in looks})


def test_what_a_source_has_in_common_is_told_from_what_its_runs_have_not() -> None:
    generator = np.random.default_rng(11)
    sources = np.array([f"{place // 10}" for place in range(400)], dtype=object)
    offsets = np.repeat(generator.normal(0.0, 0.2, 40), 10)
    plain = Residuals.plain(offsets + generator.normal(0.0, 0.1, 400), [0] * 400)
    assert find_offset_share(replace(plain, sources=sources)) is None
    looked = replace(plain, sources=sources, unseen_weights=np.ones(400))
    assert find_offset_share(looked) == pytest.approx(0.8, abs=0.08)
