"""Threads of what a test made end with the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.threads import ended_with_the_test


@pytest.fixture(autouse=True)
def no_threads_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the threads that a test began."""
    yield from ended_with_the_test(monkeypatch)
