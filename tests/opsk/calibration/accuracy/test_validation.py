"""Predicting a table of runs and scoring it."""

from __future__ import annotations

import pytest

from opsk.calibration.accuracy.scoring import Score, quantile, summarise_errors
from opsk.calibration.accuracy.validation import Validation, validate_runs, validation_document
from opsk.calibration.runs.runs import parse_runs
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from tests.fakes.tables_of_runs import row, table


def validated(*rows: dict[str, str]) -> Validation:
    return validate_runs(parse_runs(table(*rows)))


def score(error: float) -> Score:
    return Score(
        quantity="step_s", predicted=1 + error, measured=1.0, half_width=0.2, is_held=abs(error) < 0.2, is_stated=True
    )


def test_a_row_is_predicted_as_a_single_plan_is() -> None:
    (found,) = validated(row()).rows
    run = found.run
    alone = predict(run.model, PlanTable.of([run.plan]), run.cluster)
    assert found.prediction.quantities["step_s"].expected == pytest.approx(alone.time.step_s.expected[0])
    assert found.prediction.quantities["mfu"].expected == pytest.approx(alone.time.mfu.expected[0])


def test_assumed_inputs_widen_the_range_and_keep_the_middle() -> None:
    stated, assumed = validated(row(id="a-1"), row(id="a-2", recompute="")).rows
    assert assumed.prediction.quantities["step_s"].half_width > stated.prediction.quantities["step_s"].half_width


def test_a_row_without_measurements_is_predicted_and_not_scored() -> None:
    (found,) = validated(row()).rows
    assert found.time is None
    assert found.memory is None


def test_errors_are_relative_to_the_measurement() -> None:
    (unmeasured,) = validated(row()).rows
    predicted = unmeasured.prediction.quantities["step_s"].expected
    (found,) = validated(row(iter_time_s=repr(predicted / 1.1))).rows
    assert found.time is not None
    assert found.time.error == pytest.approx(0.1)


def test_an_absurd_row_is_told_and_kills_no_other() -> None:
    absurd = row(id="bad-1", layers="1000000000", hidden="1000000000", heads="8", kv_heads="8")
    validation = validated(row(id="good-1"), absurd, row(id="good-2"))
    assert [entry.run.id for entry in validation.rows] == ["good-1", "good-2"]
    assert [entry.id for entry in validation.unpredictable] == ["bad-1"]


def test_the_document_keeps_every_row_in_order_with_the_same_keys() -> None:
    document = validation_document(
        validated(row(id="a-1", iter_time_s="1.4"), row(id="a-2", layers="x"), row(id="a-3"))
    )
    assert [entry["id"] for entry in document["rows"]] == ["a-1", "a-2", "a-3"]
    good, bad, _ = document["rows"]
    assert good["predicted"].keys() == bad["predicted"].keys()
    assert good["predicted"]["memory"].keys() == bad["predicted"]["memory"].keys()
    assert bad["predicted"]["step_s"] is None
    assert bad["predicted"]["verdict"] == "unknown"
    assert "layers" in bad["problems"][0]
    assert document["summary"]["by_gpu"]["A100"]["time"]["rows"] == 1
    assert document["summary"]["unpredictable"].keys() == {"a-2"}


def test_memory_definitions_grow_from_tensors_to_device() -> None:
    (found,) = validated(row()).rows
    memory = found.prediction.definitions
    assert memory["allocated"] <= memory["reserved"] < memory["device"]


def test_memory_is_that_of_the_rank_that_was_measured() -> None:
    # the first stage holds the most micro-batches in flight, the last only one (1F1B)
    columns = {"gpus": "64", "tp": "8", "pp": "8", "global_batch": "64", "recompute": "none"}
    first, last, fullest = validated(
        *(row(id=f"a-{rank}", mem_rank=rank, **columns) for rank in ("first", "last", ""))
    ).rows
    assert first.prediction.memory_bytes.expected > last.prediction.memory_bytes.expected
    assert fullest.prediction.memory_bytes.expected >= first.prediction.memory_bytes.expected


def test_more_assumed_inputs_widen_the_range_further() -> None:
    one, two = validated(row(id="a-1", sharding=""), row(id="a-2", sharding="", recompute="")).rows
    assert two.prediction.quantities["step_s"].half_width > one.prediction.quantities["step_s"].half_width


@pytest.mark.parametrize("definition", ["allocated", "reserved", "device"])
def test_memory_is_what_the_row_defines(definition: str) -> None:
    (found,) = validated(row(mem_definition=definition, peak_mem_gb="30")).rows
    assert found.prediction.memory_bytes.expected == found.prediction.definitions[definition]
    assert found.memory is not None
    assert found.memory.measured == 30e9


@pytest.mark.parametrize(
    ("software", "definition"), [("nanotron", "allocated"), ("ms-swift", "reserved"), ("megatron-lm", "device")]
)
def test_memory_that_no_row_defines_is_what_the_framework_prints(software: str, definition: str) -> None:
    # nanotron prints torch.cuda.max_memory_allocated, ms-swift max_memory_reserved; of others nothing is known
    (found,) = validated(row(software=software, peak_mem_gb="30")).rows
    assert found.prediction.memory_bytes.expected == found.prediction.definitions[definition]
    noted = [entry.value for entry in found.run.assumed if entry.field == "measured.mem_definition"]
    assert noted == ([] if definition == "device" else [definition])


def test_an_out_of_memory_run_that_is_said_to_fit_is_missed() -> None:
    calls = validated(row(id="x-1", notes="OOM on 80GB GPUs", layers="4", params_b="")).report.out_of_memory
    assert (calls.out_of_memory, calls.missed) == (1, ("x-1",))


def test_a_run_that_died_far_below_its_memory_counts_as_fragmentation() -> None:
    calls = validated(row(id="x-1", notes="OOM on rank 0", peak_mem_gb="58.8")).report.out_of_memory
    assert (calls.out_of_memory, calls.fragmented) == (0, ("x-1",))


def test_a_summary_by_hand() -> None:
    found = summarise_errors([score(error) for error in (-0.3, -0.1, 0.0, 0.1, 0.2)])
    assert found is not None
    assert found.median_absolute_error == pytest.approx(0.1)
    # between the 4th (0.2) and 5th (0.3) of five sorted values, 0.6 of the way
    assert found.p90_absolute_error == pytest.approx(0.26)
    assert found.under == pytest.approx(0.4)
    assert found.median_error == pytest.approx(0.0)


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert quantile([4.0], 0.9) == 4.0
