"""Shows the keys of a screen and the meaning of its glyphs."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from opsk_tui.screens.view_screen import ViewScreen
from opsk_tui.text.safe_text import wrap_text
from opsk_tui.widgets.canvas import Bar, Cell
from opsk_tui.widgets.document import Document, Line, Section, section

_NAMES = {
    "slash": "/", "question_mark": "?", "plus": "+", "minus": "-", "left_square_bracket": "[", "equals_sign": "=",
    "right_square_bracket": "]", "comma": ",", "full_stop": ".", "pageup": "PgUp", "pagedown": "PgDn",
    "escape": "Esc", "enter": "Enter", "space": "Space", "shift+tab": "Shift-Tab", "tab": "Tab", "up": "↑",
    "down": "↓", "left": "←", "right": "→", "home": "Home", "end": "End",
}  # fmt: skip

_WIDEST = 140


def key_words(binding: Binding) -> str:
    """Return the keys of a binding as people call them."""
    keys = [key.strip() for key in binding.key.split(",")]
    return " ".join(_NAMES.get(key, key.replace("ctrl+", "Ctrl-")) for key in keys)


class HelpScreen(ModalScreen[None]):
    """The keys of a screen.

    Parameters
    ----------
    about
        The screen that help was requested on.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss(None)", "Close"),
    ]

    def __init__(self, about: ViewScreen) -> None:
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        """Show the text above a line that says how to leave."""
        yield Document(id="help")
        yield Bar(id="help-keys", fill="bar")

    def on_mount(self) -> None:
        """Fill it."""
        self.call_after_refresh(self.show)

    def show(self) -> None:
        """Show the keys and the signs."""
        document = self.query_one(Document)
        document.show(self._sections())
        document.focus()
        self.query_one(Bar).show([[(" Esc", "key", "screen.dismiss(None)"), (" Close ", "bar", "")]])

    def _sections(self) -> list[Section]:
        """Return the screen's own keys, those of all screens, the glyphs, and the full state of each source."""
        about = self._about
        screen_keys = [item for item in type(about).__dict__.get("BINDINGS", ()) if isinstance(item, Binding)]
        moves = [item for item in type(about.body).BINDINGS if isinstance(item, Binding)]
        common = [item for item in ViewScreen.BINDINGS if isinstance(item, Binding)]
        everywhere = [item for item in about.top.BINDINGS if isinstance(item, Binding)]
        palette: list[Line] = [[("Ctrl-P".ljust(18), "accent"), ("Every command by its name", "text")]]
        glyph_set = about.top.glyphs
        legend: list[Line] = [
            [(glyph_set.levels, "accent"), ("  from low to high", "text")],
            [(glyph_set.sick, "sick"), (" sick   ", "text"), (glyph_set.watch, "watch"), (" watch   ", "text"),
             (glyph_set.unknown, "dim"), (" not known   ", "text")],
        ]  # fmt: skip
        width = max(30, min(self.app.size.width - 6, _WIDEST))
        words: list[Line] = [[(part, "text")] for line in about.ABOUT for part in wrap_text(line, width)]
        sources: list[Line] = [[(part, key)] for text, key in about.source_words() for part in wrap_text(text, width)]
        return [
            section(f"{about.NAME.capitalize()}", words),
            section("Keys here", [_line(item) for item in screen_keys]),
            section("Keys on every screen", [*[_line(item) for item in [*common, *everywhere]], *palette]),
            section("To move", [_line(item) for item in moves]),
            section("Signs", legend),
            section("What it sees with", sources),
        ]


def _line(binding: Binding) -> list[Cell]:
    """Return one key and its description."""
    return [(key_words(binding).ljust(18), "accent"), (binding.description, "text")]
