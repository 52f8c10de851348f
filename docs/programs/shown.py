"""Finds the commands that pages show with their output, and runs them again.

A block of a page that begins with ``$`` shows commands and, below each, what it printed. A comment right above it
says what there is to know:

    <!-- example: lab -->              it needs the lab of the page's program; numbers may differ from run to run
    <!-- example: differs in REGEX --> what the expression matches is another thing in each run
    <!-- example: not run: REASON -->  it cannot be run by a program, and why

Without a comment it prints the same wherever a checkout is, to the letter. ``outputs.py`` writes what commands print
into the pages; tests run them and compare.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("deploy", "exporters", "jobcheck", "modulefiles", "tui")
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", *(f"{part}/README.md" for part in PARTS))
TUTORIAL = "docs/tutorial/lab.md"
WITH_LAB = (TUTORIAL, "README.md", "docs/howto/read-the-advice.md")
"""The only pages with blocks that need a lab."""
COLUMNS = "112"
_BLOCK = re.compile(r"(?:^<!-- example: (?P<mark>[^\n]*?) -->\n)?^```\n(?P<body>\$ .*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ (?P<command>(?:[^\n]*\\\n)*[^\n]*)\n?", re.MULTILINE)
_NOT_RUN, _DIFFERS, _LAB = "not run: ", "differs in ", "lab"
_NUMBER = re.compile(r"[0-9][0-9,.:]*")
_DRAWN = re.compile(r"[▁▂▃▄▅▆▇█─━]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a page: its commands, each with what stands below it."""

    page: str
    line: int
    mark: str
    shown: tuple[tuple[str, str], ...]

    @property
    def why_not(self) -> str:
        """Why no program can run it; empty where one can."""
        return self.mark.removeprefix(_NOT_RUN) if self.mark.startswith(_NOT_RUN) else ""

    @property
    def needs_lab(self) -> bool:
        """Whether it runs on a lab."""
        return self.mark == _LAB

    def same(self, text: str) -> str:
        """Return an output without what may differ from run to run."""
        text = "\n".join(line.rstrip() for line in text.strip().splitlines())
        if self.mark.startswith(_DIFFERS):
            return re.sub(self.mark.removeprefix(_DIFFERS), "…", text)
        if not self.needs_lab:
            return text
        return re.sub(r"[ ]+", " ", _DRAWN.sub("▅", _NUMBER.sub("0", text)))


def pages() -> list[Path]:
    """Return all pages that people read, sorted."""
    return sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})


def blocks(path: Path) -> Iterator[Block]:
    """Yield the blocks of a page that show commands."""
    text = path.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        body = found["body"]
        commands = list(_COMMAND.finditer(body))
        ends = [command.start() for command in commands[1:]] + [len(body)]
        yield Block(
            page=str(path.relative_to(ROOT)),
            line=text.count("\n", 0, found.start("body")) + 1,
            mark=found["mark"] or "",
            shown=tuple(
                (command["command"], body[command.end() : end]) for command, end in zip(commands, ends, strict=True)
            ),
        )


def rewritten(text: str, outputs: Iterator[str] | list[str]) -> str:
    """Return a page with these outputs, one a command in the page's order, in the blocks that can be run."""
    following = iter(outputs)

    def block(found: re.Match[str]) -> str:
        if (found["mark"] or "").startswith(_NOT_RUN):
            return found[0]
        lines = []
        for command in _COMMAND.finditer(found["body"]):
            output = "\n".join(line.rstrip() for line in next(following).strip("\n").splitlines())
            lines.append(f"$ {command['command']}\n{output}\n" if output else f"$ {command['command']}\n")
        mark = f"<!-- example: {found['mark']} -->\n" if found["mark"] else ""
        return f"{mark}```\n{''.join(lines)}```"

    return _BLOCK.sub(block, text)


class Session:
    """A shell that keeps what its commands set, from command to command.

    Parameters
    ----------
    environment
        Variables beside those of this process.
    cwd
        Where it starts.
    """

    _END = "\x1e"

    def __init__(self, cwd: Path = ROOT, **environment: str) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=cwd, text=True, bufsize=1,
            env={**kept, "PATH": path, "COLUMNS": COLUMNS, "LC_ALL": "C.UTF-8", **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, command: str) -> str:
        """Run a command as it is typed, and return all that it printed.

        Raises
        ------
        RuntimeError
            The shell has ended.
        """
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {command}\n}} </dev/null; printf '\\036'\n")
        self._shell.stdin.flush()
        printed = []
        while (sign := self._shell.stdout.read(1)) != self._END:
            if not sign:
                raise RuntimeError(f"the shell ended in {command!r} after: {''.join(printed)[-500:]}")
            printed.append(sign)
        return "".join(printed)

    def close(self) -> None:
        """End the shell."""
        if self._shell.stdin is not None:
            self._shell.stdin.close()
        self._shell.wait(timeout=30)
