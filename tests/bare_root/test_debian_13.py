"""The first minute on a bare Debian 13."""

from __future__ import annotations

from pathlib import Path

from tests.bare_root.first_minute import MARKS, prepare_machine, run_a_few_tests, show_demo

pytestmark = MARKS


def test_the_tests_and_then_the_demo(root: Path, tmp_path: Path) -> None:
    with prepare_machine("trixie", root, tmp_path) as machine:
        run_a_few_tests(machine)
        show_demo(machine)
