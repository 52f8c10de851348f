"""Models of which the name tells the size alone, and those of the catalogue that are as large."""

from __future__ import annotations

import pytest

from opsk.workload.public_models.lookup import public_models
from opsk.workload.public_models.sized_names import MAX_OF_KIND, SHARES, find_as_large


@pytest.mark.parametrize(
    ("name", "parameters"), [("our-lab/Story-3B", 3e9), ("/models/story_410m_v2", 4.1e8), ("/models/Story3B", 3e9)]
)
def test_models_that_are_as_large_have_as_many_parameters_or_a_few_more(name: str, parameters: float) -> None:
    found = find_as_large(name)
    assert 1 <= len(found) <= 2 * MAX_OF_KIND
    known = public_models()
    counts = [known[key].parameters / parameters for key in found if key in known]
    assert counts
    assert all(SHARES[0] <= count <= SHARES[1] for count in counts)


@pytest.mark.parametrize(
    "name",
    [
        "our-lab/Story",
        "our-lab/Story-3B-on-300B-tokens",
        "our-lab/Story-VL-3B",
        "our-lab/StoryVL2-3B",
        "our-lab/StoryVLM3B",
        "our-lab/Story8x3B",
        "our-lab/StoryVLM-3B",
        "our-lab/Story-V-3B",
        "our-lab/xLSTM-3B",
        "our-lab/Story-30B-A3B",
        "our-lab/Story-8x7B",
        "our-lab/Story-3B-GPTQ",
        "our-lab/Story-2000B",
        "our-lab/Story-3Bx",
    ],
)
def test_a_name_that_tells_no_size_of_a_plain_decoder_has_none(name: str) -> None:
    assert find_as_large(name) == ()
