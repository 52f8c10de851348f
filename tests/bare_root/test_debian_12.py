"""The first minute on a bare Debian 12."""

from __future__ import annotations

from pathlib import Path

from tests.bare_root.first_minute import MARKS, add_stand_ins, prepare_machine, run_a_few_tests, show_demo

pytestmark = MARKS


def test_the_demo_and_then_the_tests(root: Path, tmp_path: Path) -> None:
    with prepare_machine("bookworm", root, tmp_path) as machine:
        show_demo(machine)
        add_stand_ins(machine)
        run_a_few_tests(machine)
