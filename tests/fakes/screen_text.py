"""What a part of a screen shows, as plain text."""

from __future__ import annotations

from textual.geometry import Region

from opsk_tui.widgets.canvas import Canvas


def text_lines(canvas: Canvas) -> list[str]:
    """Return the painted lines of a part."""
    return [line.text for line in canvas.render_lines(Region(0, 0, *canvas.size))]
