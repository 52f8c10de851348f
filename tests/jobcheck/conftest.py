"""A running advisor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.advisor_process import RunningAdvisor, start_advisor


@pytest.fixture
def socket_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose name is short enough for a Unix socket."""
    return tmp_path_factory.mktemp("a")


@pytest.fixture(scope="module")
def advisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAdvisor]:
    """An advisor that the tests of one module share."""
    running = start_advisor(tmp_path_factory.mktemp("a"))
    yield running
    running.stop()


@pytest.fixture
def own_advisor(socket_directory: Path) -> Iterator[RunningAdvisor]:
    """An advisor of the test's own, to be killed, stopped and reloaded."""
    running = start_advisor(socket_directory)
    yield running
    running.stop()
