"""Can a name that somebody else chose steer the terminal of whoever types a command?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opsk.cli.main import main

ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"


@pytest.mark.parametrize("command", [["check", "{}"], ["predict", "{}"], ["throughput", "{}"], ["fabric", "{}"],
    ["postmortem", "--log", "{}"], ["losses", "--log", "{}"], ["validate", "{}"], ["store", "import", "{}"],
    ["place", "{}", "--nodes", "{}"], ["remap", "{}", "--failed", "{}"], ["check", "{}", "--cluster", "{}"], ["{}"],
    ["fabric", "--{}"], ["store", "prune", "--days", "{}"], ["design", "--cluster", "{}"]],
    ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("exists", [True, False])
def test_a_file_name_is_shown_and_not_obeyed(
    command: list[str],
    exists: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shell's ``*`` puts names on the command line that others gave to files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    if exists:
        (tmp_path / ESCAPES).mkdir()
    monkeypatch.setattr(sys, "argv", ["opsk", *(word.format(ESCAPES) for word in command)])
    with pytest.raises(SystemExit):
        main()
    out, err = capsys.readouterr()
    assert not set("\x1b\x07\u202e\x9b") & set(out + err)
