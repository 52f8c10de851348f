"""What a test made that has threads, so that they end with the test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from opsk.telemetry.background_reader import Background
from opsk.telemetry.gpu.nvml.source import NvmlEvents
from opsk.telemetry.gpu.shared_source import SharedGpus
from opsk_exporters.core.collector import Worker

_KINDS: tuple[Any, ...] = (Background, SharedGpus, NvmlEvents, Worker)
PATIENCE_S = 30.0


def ended_with_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what has a thread and was made while a test ran; for a fixture that every test has."""
    made: list[Any] = []
    for kind in _KINDS:
        monkeypatch.setattr(kind, "__init__", _noting(kind.__init__, made))
    yield
    for each in made:
        each.close()


def _noting(real: Any, made: list[Any]) -> Any:
    """Return a constructor that remembers what it made."""

    def init(self: Any, *arguments: Any, **keys: Any) -> None:
        real(self, *arguments, **keys)
        made.append(self)

    return init


def all_end(threads: list[Any], patience_s: float = PATIENCE_S) -> bool:
    """Tell whether threads end; waits for them."""
    until = time.monotonic() + patience_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not [thread for thread in threads if thread.is_alive()]
