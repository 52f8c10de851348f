"""Is a measurement read whole, and refused where it is torn or no measurement?"""

from __future__ import annotations

import json

import pytest

from opsk.errors import InputError
from opsk.probe.document import MAX_BYTES, parse_probe
from tests.fakes.probe_documents import LOADED, probe_document


def test_a_measurement_is_read() -> None:
    document = parse_probe(json.dumps(probe_document()), origin="p.json")
    assert (document.machine.gpu, document.machine.ranks) == ("NVIDIA H100 80GB HBM3", 8)
    assert (len(document.matmul), document.throttled_share, document.disturbed) == (2, 0.0, 0)


def test_what_heat_held_down_and_what_varied_is_counted() -> None:
    hot = {"flop_per_s": 5e14, **LOADED, "is_throttled": True}
    link = {"way": "to_gpu", "size_bytes": 1 << 28, "time_s": 1e-3, "spread": 0.4, "bytes_per_s": 5.5e10}
    document = parse_probe(json.dumps(probe_document(sustained=[hot] * 4, host_link=[link])), origin="p.json")
    assert (document.throttled_share, document.disturbed) == (0.5, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(probe_document())[:-100], "p.json: no whole JSON document"),
        ("", "no whole JSON document"),
        ("[]", "p.json: no measurement of opsk probe"),
        ('{"format": "other"}', "p.json: no measurement of opsk probe"),
        (json.dumps(probe_document(version=2)), "a measurement in format 2, and this release reads format 1"),
        (json.dumps(probe_document(version="new")), "version: "),
        (json.dumps(probe_document(launch=[{"gap_s": -1.0}])), "launch.0.gap_s: "),
        (json.dumps(probe_document(launch=[{"gap_s": 1e300}])), "launch.0.gap_s: "),
        (" " * (MAX_BYTES + 1), "larger than"),
    ],
    ids=["torn", "empty", "a list", "another format", "a newer version", "no version", "negative", "absurd", "huge"],
)
def test_a_file_that_is_no_measurement_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_probe(text, origin="p.json")
    assert message in refused.value.message
