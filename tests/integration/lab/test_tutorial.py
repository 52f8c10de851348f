"""Does the tutorial go as it says? All of its commands, in order, in one shell, on the lab that they start."""

from __future__ import annotations

import importlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.warm_opsk import warm
from tests.integration.conftest import Slurm
from tests.integration.releases.roots import INSTALLED

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.fabric,
    pytest.mark.timeout(900),
    pytest.mark.parametrize("slurm", [INSTALLED], indirect=True, scope="session"),
]
NEEDED = ("gcc", "promtool", "prometheus")
MAY_DIFFER = 0.2
"""Of the lines of a long output: which log is read first, and what else a busy machine does, shows in some."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own folder: sockets of a lab have short names."""
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    top.chmod(0o755)
    yield top
    shutil.rmtree(top, ignore_errors=True)


def test_every_command_prints_what_the_page_shows(
    slurm: Slurm, root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"the tutorial needs {', '.join(missing)}")
    monkeypatch.syspath_prepend(str(root / "docs" / "programs"))
    shown, outputs = importlib.import_module("shown"), importlib.import_module("outputs")
    blocks = list(shown.blocks(root / shown.TUTORIAL))
    monkeypatch.setattr(outputs, "Session", partial(shown.Session, **warm().shell_function()))
    printed = outputs.tutorial(blocks, folder / "opsk-tutorial")
    expected = [(block, command, text) for block in blocks for command, text in block.shown]
    wrong = []
    for (block, command, text), output in zip(expected, printed, strict=True):
        page, now = (Counter(block.same(each).splitlines()) for each in (text, output))
        differ = max((page - now).total(), (now - page).total())
        if differ > MAY_DIFFER * page.total():
            wrong.append(f"$ {command}\n{output}")
    assert not wrong, "python docs/programs/outputs.py docs/tutorial/lab.md shows what is new\n" + "\n".join(wrong)
