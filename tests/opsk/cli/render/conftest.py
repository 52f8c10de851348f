"""What tests of pictures share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.fakes.warm_opsk import warm


@pytest.fixture
def run_opsk() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run opsk as a user does, without colour and without a terminal."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **variables}
        if variables:  # Python reads its locale when it starts
            command = [sys.executable, "-m", "opsk", *arguments]
            return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return warm().run(arguments, environment=environment, timeout_s=120.0)

    return run
