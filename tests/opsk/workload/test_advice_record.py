"""Is what the submit hook leaves in a job's record read back, whatever else stands there?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.workload.advice_record import AdviceRecord, Verdict, replace_hash

amounts = st.none() | st.floats(min_value=0, max_value=1e18)
ratios = st.none() | st.floats(min_value=0, max_value=1)
sizes = st.none() | st.integers(min_value=1, max_value=2**31 - 1)
records = st.builds(
    AdviceRecord,
    verdict=st.sampled_from(Verdict),
    fit=ratios,
    mem_bytes=amounts,
    capacity_bytes=amounts,
    step_s=amounts,
    tokens_per_s_per_gpu=amounts,
    tflops=amounts,
    mfu=ratios,
    tp=sizes,
    pp=sizes,
    dp=sizes,
    cp=sizes,
    ep=sizes,
    hash=st.none() | st.from_regex(r"[0-9a-f]{8,64}", fullmatch=True),
)


@given(records)
def test_what_is_written_is_read_back(record: AdviceRecord) -> None:
    assert AdviceRecord.parse(record.render()) == record


@given(records)
def test_one_printable_line_is_written(record: AdviceRecord) -> None:
    assert record.render().isascii()
    assert record.render().isprintable()


@given(records, st.sampled_from(["", "rerun of 4711; ", "seen by ops\n"]), st.sampled_from(["", " | thanks", "\nmore"]))
def test_a_users_own_words_around_the_record_do_not_matter(record: AdviceRecord, before: str, after: str) -> None:
    assert AdviceRecord.parse(before + record.render() + after) == record


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for whole in (text, "opsk:v1 verdict=fits " + text):
        found = AdviceRecord.parse(whole)
        assert found is None or AdviceRecord.parse(found.render()) == found


def test_a_known_record_is_written_to_the_letter() -> None:
    record = AdviceRecord(verdict=Verdict.TIGHT, fit=0.87, mem_bytes=73.8e9, step_s=12.3456789, tflops=412.0, tp=4)
    assert record.render() == "opsk:v1 verdict=tight fit=0.87 mem_bytes=73800000000 step_s=12.3457 tflops=412 tp=4"


@given(records, st.from_regex(r"[0-9a-f]{8,64}", fullmatch=True))
def test_a_record_written_for_another_script_differs_in_the_hash_alone(record: AdviceRecord, script_hash: str) -> None:
    assert record.render(script_hash=script_hash) == replace(record, hash=script_hash).render()


@given(records, st.from_regex(r"[0-9a-f]{8,64}", fullmatch=True))
def test_the_line_of_a_record_becomes_that_of_another_script(record: AdviceRecord, script_hash: str) -> None:
    """As the record would be written for it; a record that names no script goes on to name none."""
    expected = record.render(script_hash=script_hash) if record.hash else record.render()
    assert replace_hash(record.render(), script_hash) == expected


def test_a_record_is_not_written_for_what_is_no_hash() -> None:
    with pytest.raises(InputError, match="hash is 'a b'"):
        AdviceRecord(verdict=Verdict.FITS).render(script_hash="a b")
    with pytest.raises(InputError, match="hash is 'a b'"):
        replace_hash("opsk:v1 verdict=fits hash=abc", "a b")


def test_a_hash_in_what_others_wrote_is_left_alone() -> None:
    assert replace_hash("", "1234") == ""
    assert replace_hash("hash=1 opsk:v1 verdict=fits", "1234") == "hash=1 opsk:v1 verdict=fits"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "opsk",
        "opsk:v1",
        "opsk:v1 fit=0.9",
        "opsk:v1 verdict=maybe",
        "opsk:v2 verdict=fits",
        "xopsk:v1 verdict=fits",
        "opsk:v11 verdict=fits",
        "x" * 20000 + " opsk:v1 verdict=fits",
    ],
)
def test_text_without_a_readable_verdict_is_no_record(text: str) -> None:
    assert AdviceRecord.parse(text) is None


@pytest.mark.parametrize(
    "word",
    [
        "fit=1.5",
        "fit=-1",
        "step_s=nan",
        "step_s=inf",
        "step_s=1e999",
        "tp=0",
        "tp=2.5",
        "tp=٣",
        "dp=99999999999",
        "hash=../x",
    ],
)
def test_a_value_that_cannot_be_is_left_out_and_the_rest_stays(word: str) -> None:
    assert AdviceRecord.parse(f"opsk:v1 verdict=fits {word} mfu=0.4") == AdviceRecord(verdict=Verdict.FITS, mfu=0.4)


def test_unknown_keys_of_a_later_release_are_skipped() -> None:
    assert AdviceRecord.parse("opsk:v1 verdict=oom joules=3 pp=2") == AdviceRecord(verdict=Verdict.OOM, pp=2)


def test_the_first_of_two_equal_keys_counts() -> None:
    found = AdviceRecord.parse("opsk:v1 verdict=fits tp=8 tp=4 verdict=oom")
    assert found == AdviceRecord(verdict=Verdict.FITS, tp=8)


def test_a_record_out_of_range_is_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(InputError, match=r"fit is 2.*tp is 0.*hash is 'a b'"):
        AdviceRecord(verdict=Verdict.FITS, fit=2, tp=0, hash="a b")


def test_memory_ratio_is_predicted_over_capacity() -> None:
    # 60e9 / 80e9 by hand.
    assert AdviceRecord(verdict=Verdict.FITS, mem_bytes=60e9, capacity_bytes=80e9).mem_ratio == 0.75
    assert AdviceRecord(verdict=Verdict.FITS, mem_bytes=60e9).mem_ratio is None
