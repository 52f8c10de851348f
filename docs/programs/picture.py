"""Draws the README's picture: what a real ``sbatch`` on a lab prints for an example, as it was printed.

Start a lab first: ``opsk lab up``, ``eval "$(opsk lab env)"``; then ``python docs/programs/picture.py``.
"""

from __future__ import annotations

import io
import re
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "examples/llama3-70b-megatron.sbatch"
PICTURE = ROOT / "docs" / "images" / "sbatch.svg"
WIDTH = 122
STYLES = (("✗", "bold red"), ("✓", "bold green"), ("→", "cyan"))


def main() -> None:
    """Submit the example and draw what sbatch printed."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["sbatch", str(ROOT / SCRIPT)],
            cwd=folder,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ sbatch {SCRIPT}", style="bold"))
    for line in done.stdout.splitlines():
        console.print(style_line(line), soft_wrap=False)
    PICTURE.parent.mkdir(exist_ok=True)
    drawn = console.export_svg(title="sbatch on the lab", theme=MONOKAI)
    # The drawing must fetch nothing: every viewer has a monospace font.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


def style_line(line: str) -> Text:
    """Return a line with its mark coloured and its prefix dimmed."""
    text = Text(line, style=next((style for mark, style in STYLES if mark in line), ""))
    text.highlight_regex(r"^sbatch: (opsk)?", "dim")
    return text


if __name__ == "__main__":
    main()
