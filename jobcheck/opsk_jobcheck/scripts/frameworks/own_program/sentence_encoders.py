"""Tells programs of sentence-transformers, which load a model by its class and work on several texts of a sample.

Source: ``SentenceTransformer``, ``CrossEncoder`` and their trainers of sentence-transformers 2.2 to 5.
"""

from __future__ import annotations

from opsk_jobcheck.scripts.frameworks.python.source import PythonSource

CLASSES = ("SentenceTransformer", "CrossEncoder", "SparseEncoder")
"""Classes that load a model by its name."""
TEXTS = 4
"""Texts of a sample, at most: a pair, or an anchor with one text that is like it and two that are not."""


def is_sentence_encoder(source: PythonSource | None) -> bool:
    """Return whether a program trains with sentence-transformers."""
    if source is None or not any(name.partition(".")[0] == "sentence_transformers" for name in source.imports):
        return False
    is_fitted = any(
        "train_objectives" in call.keywords or "train_dataloader" in call.keywords for call in source.find_calls("fit")
    )
    return is_fitted or any(
        source.find_calls("SentenceTransformerTrainer", "CrossEncoderTrainer", "SparseEncoderTrainer")
    )
