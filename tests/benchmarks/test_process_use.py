"""Do processes share a core as long as they are asked to, and no longer?"""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.process_use import on_one_core


def test_two_processes_share_a_core_for_a_while() -> None:
    cores = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as other:
        with on_one_core(other.pid):
            shared = os.sched_getaffinity(0)
            assert len(shared) == 1
            assert os.sched_getaffinity(other.pid) == shared
        assert os.sched_getaffinity(0) == os.sched_getaffinity(other.pid) == cores
        other.communicate("\n")
