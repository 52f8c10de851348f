"""Models that are named after a family, and the largest of that family."""

from __future__ import annotations

import pytest

from opsk.workload.public_models.family_limits import find_largest_of_family
from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.measured import find_measured


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("our-lab/newsBERTo", "roberta-large"),
        ("our-lab/story-roberta-base-v2", "roberta-large"),
        ("/models/whisper-vi-first", "openai/whisper-large-v3"),
        ("our-lab/WhisperStory-small", "openai/whisper-large-v3"),
        ("our-lab/distil-hubert-story", "facebook/wav2vec2-large-xlsr-53"),
        ("our-lab/story-gpt2", "gpt2-xl"),
        ("our-lab/StoryT5-base", "google/mt5-large"),
        ("our-lab/opus-mt-xx-yy", "Helsinki-NLP/opus-mt-en-es"),
        ("our-lab/kobart-base", "facebook/mbart-large-50"),
        ("our-lab/newsBERT-110M", "roberta-large"),
    ],
)
def test_a_model_is_no_larger_than_the_largest_of_its_family(name: str, first: str) -> None:
    found = find_largest_of_family(name)
    assert found[0] == first
    assert all(public_model(key) is not None or find_measured(key) is not None for key in found)


@pytest.mark.parametrize(
    "name",
    [
        "our-lab/story",
        "our-lab/story-bert-xlarge",
        "our-lab/story-bert-1.3b",
        "our-lab/story-bert-780m",
        "our-lab/ModernBERT-story",
        "our-lab/story-longbert",
        "our-lab/bert-48layers",
        "our-lab/VisualBERT",
        "our-lab/bert-gpt2-story",  # an encoder and a decoder
        "our-lab/bert-custom",
        "our-lab/t5-xl",
        "our-lab/opus-mt-tc-big-xx-yy",
    ],
)
def test_a_name_after_which_a_model_may_be_larger_tells_no_family(name: str) -> None:
    assert find_largest_of_family(name) == ()
