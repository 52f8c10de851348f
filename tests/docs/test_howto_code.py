"""Does the code that the how-tos show do what they say? Each page's own test is run on the page's own modules."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsk.postmortem.logs.lines import read_fields
from opsk.postmortem.signatures import parse_signatures, signatures
from opsk_jobcheck.scripts import script
from opsk_jobcheck.scripts.frameworks import registry

_CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"^`((?:opsk|exporters|jobcheck)/[\w/]+\.py)`", re.MULTILINE)


class Page:
    """The modules of a how-to, as if they lay where it says, and its test."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        text = path.read_text(encoding="utf-8")
        *modules, self._test = _CODE.findall(text)
        names = [name for name in _FILE.findall(text) if not name.startswith("tests/")]
        assert len(names) == len(modules), f"{path.name}: a block of code follows the name of its file"
        for name, code in zip(names, modules, strict=True):
            dotted = re.sub(r"^(exporters|jobcheck)/", "", name).removesuffix(".py").replace("/", ".")
            module = types.ModuleType(dotted)
            monkeypatch.setitem(sys.modules, dotted, module)
            exec(compile(code, str(path), "exec"), module.__dict__)

    def tests(self) -> Iterator[Callable[..., None]]:
        """Yield the functions of the page's test."""
        found: dict[str, Callable[..., None]] = {}
        exec(compile(self._test, "test of the page", "exec", dont_inherit=True), found)
        yield from (test for name, test in found.items() if name.startswith("test_"))


def test_a_reader(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(root / "docs/howto/add-a-reader.md", monkeypatch)
    reader = sys.modules["opsk_jobcheck.scripts.frameworks.tinytrain"].TINYTRAIN_READER
    monkeypatch.setattr(script, "READERS", (*registry.READERS, reader))
    done = [test() for test in page.tests()]
    assert len(done) == 2


def test_a_collector(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(root / "docs/howto/add-a-collector.md", monkeypatch)
    for number, test in enumerate(page.tests()):
        (tmp_path / str(number)).mkdir()
        test(tmp_path / str(number))
    real = sys.modules["opsk_exporters.open_files"].OpenFilesCollector
    (sample, *_), _ = (
        family.samples for family in real(sys.modules["opsk.telemetry.open_files"].OpenFilesReader()).collect()
    )
    assert sample.value > 0  # this machine's own kernel


def test_a_signature(root: Path) -> None:
    text = (root / "docs/howto/add-a-signature.md").read_text(encoding="utf-8")
    block = re.findall(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[0]
    (shown,) = parse_signatures({"storage.toml": block.replace('id = "storage.full"', 'id = "storage.example"')})
    line = "OSError: [Errno 28] No space left on device: '/scratch/run/ckpt.pt'"
    assert any(part in line for part in shown.fragments)
    assert read_fields(shown, line) == {"path": "/scratch/run/ckpt.pt"}
    # its keys and classes are those of the signatures that ship
    assert shown.failure in {each.failure for each in signatures()}


def test_every_place_that_a_howto_names_is_there(root: Path) -> None:
    """`opsk/…`, `tests/…` and the like in the how-tos on extending opsk; what the reader is to make is left out."""
    made = {"opsk/telemetry/open_files.py", "exporters/opsk_exporters/open_files.py",
            "jobcheck/opsk_jobcheck/scripts/frameworks/tinytrain.py",
            "tests/jobcheck/scripts/frameworks/test_tinytrain.py"}  # fmt: skip
    missing = [
        f"{page.name}: {name}"
        for page in sorted((root / "docs").rglob("*.md"))
        for name in re.findall(
            r"`((?:opsk|exporters|jobcheck|tui|tests|deploy|examples|docs)/[\w./-]+)`", page.read_text()
        )
        if name not in made and "NNNN" not in name and not any(root.glob(name.rstrip("/")))
    ]
    assert missing == []
