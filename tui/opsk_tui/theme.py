"""Defines the colour themes of the screens.

There are four themes: dark, light, one for people who cannot distinguish red and green (Okabe and Ito's palette, heat
from dark blue to yellow), and one without any colour, which ``NO_COLOR`` selects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rich.style import Style
from textual.theme import Theme

LEVELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """Styles by their meaning; ``ramp`` are the colours of a heat map from low to high."""

    name: str
    styles: Mapping[str, Style]
    ramp: tuple[Style, ...]

    def __getitem__(self, key: str) -> Style:
        """Return the style of a key; ``heat3`` is a step of the ramp, ``sick+cursor`` combines two styles."""
        return _combine_styles(self.name, key)


def _palette(name: str, *, back: str, styles: Mapping[str, str], ramp: tuple[str, ...]) -> Palette:
    """Put every style on the background, so that nothing depends on the terminal's own colours."""
    base = Style.parse(f"on {back}") if back else Style.null()
    shown = {key: base + Style.parse(text) for key, text in styles.items()}
    return Palette(name=name, styles=shown, ramp=tuple(base + Style.parse(text) for text in ramp))


_DARK = _palette(
    "opsk-dark",
    back="#11151c",
    styles={
        "text": "#d5dae3", "dim": "#7d8797", "strong": "bold #ffffff", "title": "bold #7cc4ff", "ok": "#62c073",
        "watch": "bold #f2b84b", "sick": "bold #ffffff on #c2293d", "bad": "bold #ff6b78",
        "bar_strong": "bold #ffffff on #222a36",
        "accent": "#7cc4ff", "bar": "#d5dae3 on #222a36",
        "tab": "#9aa5b5 on #222a36", "tab_on": "bold #11151c on #7cc4ff", "key": "bold #7cc4ff on #222a36",
        "cursor": "on #2f4a6d", "mark": "on #2f4a6d",
        "hit": "bold #11151c on #f2b84b", "here": "bold #11151c on #f2b84b",
    },
    ramp=("#43507a", "#3d6a9c", "#3485ad", "#2f9fae", "#41b596", "#72c873", "#abd750", "#ece34a"),
)  # fmt: skip
_LIGHT = _palette(
    "opsk-light",
    back="#fbfbf8",
    styles={
        "text": "#23272e", "dim": "#6a7280", "strong": "bold #000000", "title": "bold #0b57a4", "ok": "#1d7a35",
        "watch": "bold #9a5b00", "sick": "bold #ffffff on #b3142b", "bad": "bold #b3142b",
        "bar_strong": "bold #000000 on #e3e6ea",
        "accent": "#0b57a4", "bar": "#23272e on #e3e6ea",
        "tab": "#4c5563 on #e3e6ea", "tab_on": "bold #ffffff on #0b57a4", "key": "bold #0b57a4 on #e3e6ea",
        "cursor": "on #c5dcf6", "mark": "on #c5dcf6",
        "hit": "bold #000000 on #ffd56b", "here": "bold #000000 on #ffd56b",
    },
    ramp=("#b9c3d6", "#93b1d6", "#6a9dd0", "#3e86bf", "#2a6ea6", "#23568a", "#1d3f6c", "#16294d"),
)  # fmt: skip
_SAFE = _palette(
    "opsk-colour-blind",
    back="#000000",
    styles={
        "text": "#e6e6e6", "dim": "#8c8c8c", "strong": "bold #ffffff", "title": "bold #56b4e9", "ok": "#56b4e9",
        "watch": "bold #f0e442", "sick": "bold #000000 on #e69f00", "bad": "bold #e69f00",
        "bar_strong": "bold #ffffff on #262626",
        "accent": "#56b4e9", "bar": "#e6e6e6 on #262626",
        "tab": "#a6a6a6 on #262626", "tab_on": "bold #000000 on #56b4e9", "key": "bold #56b4e9 on #262626",
        "cursor": "on #00446b", "mark": "on #00446b",
        "hit": "bold #000000 on #f0e442", "here": "bold #000000 on #f0e442",
    },
    ramp=("#24427a", "#3d4f86", "#575d6d", "#707173", "#8a8678", "#a69d75", "#c4b56c", "#fee838"),
)  # fmt: skip
_MONO = _palette(
    "opsk-monochrome",
    back="",
    styles={
        "text": "", "dim": "", "strong": "bold", "title": "bold underline", "ok": "", "watch": "bold",
        "sick": "bold", "bad": "bold",
        "bar_strong": "bold reverse",
        "accent": "bold", "bar": "reverse", "tab": "reverse", "tab_on": "bold not reverse",
        "key": "bold reverse", "cursor": "reverse", "mark": "underline",
        "hit": "bold underline", "here": "bold underline",
    },
    ramp=("",) * LEVELS,
)  # fmt: skip

_NO_COLOUR = {
    **dict.fromkeys(
        ("ansi-background", "ansi-foreground", "border", "border-blurred", "block-cursor-foreground",
         "block-cursor-background", "input-cursor-background", "input-cursor-foreground", "input-selection-background",
         "input-selection-foreground", "screen-selection-background", "screen-selection-foreground"),
        "ansi_default",
    ),
    "block-cursor-text-style": "reverse", "input-cursor-text-style": "reverse",
}  # fmt: skip
PALETTES = {palette.name: palette for palette in (_DARK, _LIGHT, _SAFE, _MONO)}
DARK, MONOCHROME = _DARK.name, _MONO.name


@lru_cache(maxsize=4096)
def _combine_styles(name: str, key: str) -> Style:
    """Combine the styles of ``a+b``."""
    palette = PALETTES[name]
    style = Style.null()
    for word in key.split("+"):
        layer = palette.ramp[int(word[4:])] if word.startswith("heat") else palette.styles.get(word, Style.null())
        style = style + layer if word != "cursor" or name != MONOCHROME else style + Style(reverse=not style.reverse)
    return style


def themes() -> list[Theme]:
    """Return the same colours for Textual's own parts: palette, input, scroll bars."""
    return [
        Theme(
            name=_DARK.name, primary="#7cc4ff", secondary="#2f4a6d", accent="#7cc4ff", warning="#f2b84b",
            error="#c2293d", success="#62c073", foreground="#d5dae3", background="#11151c", surface="#1a202a",
            panel="#222a36",
        ),
        Theme(
            name=_LIGHT.name, primary="#0b57a4", secondary="#c5dcf6", accent="#0b57a4", warning="#9a5b00",
            error="#b3142b", success="#1d7a35", foreground="#23272e", background="#fbfbf8", surface="#f0f1ee",
            panel="#e3e6ea", dark=False,
        ),
        Theme(
            name=_SAFE.name, primary="#56b4e9", secondary="#00446b", accent="#56b4e9", warning="#f0e442",
            error="#e69f00", success="#56b4e9", foreground="#e6e6e6", background="#000000", surface="#141414",
            panel="#262626",
        ),
        Theme(
            name=_MONO.name, primary="ansi_default", secondary="ansi_default", accent="ansi_default",
            warning="ansi_default", error="ansi_default", success="ansi_default", foreground="ansi_default",
            background="ansi_default", surface="ansi_default", panel="ansi_default", boost="ansi_default", ansi=True,
            variables=_NO_COLOUR,
        ),
    ]  # fmt: skip
