"""Draws the fabrics that the pages show."""

from __future__ import annotations

from pathlib import Path

from opsk.app.inputs.fabric_files import read_dump
from opsk.cli.render.fabric_svg import render_fabric_svg
from opsk.fabric.rails import find_rails

ROOT = Path(__file__).resolve().parents[2]
DUMP = "examples/miswired.ibnetdiscover"
PICTURES = {"fabric.svg": "both"}


def main() -> None:
    """Draw the fabric with a fault of each kind."""
    fabric = read_dump(ROOT / DUMP)
    rails = find_rails(fabric)
    for name, kind in PICTURES.items():
        drawn = render_fabric_svg(fabric, rails, kind=kind, title=DUMP)
        (ROOT / "docs" / "images" / name).write_text(drawn, encoding="utf-8")
        print(f"wrote docs/images/{name}")


if __name__ == "__main__":
    main()
