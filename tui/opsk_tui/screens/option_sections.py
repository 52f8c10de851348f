"""Renders one remap option in full: reasons, rank placement before and after, times, commands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opsk_tui.data.feed_port import Choice, PlacementView
from opsk_tui.text.format import duration
from opsk_tui.text.safe_text import fit_text, safe, wrap_text
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.document import Line, Section, section

_SLOT_WIDTH = 5
_TIME_NAME, _TIME = 18, 9
_MOST_NODES = 64


def render_choice(choice: Choice, width: int) -> list[Section]:
    """Return an option in full: reasons, rank placement before and after, times, commands."""
    option = choice.option
    why: list[Line] = [[(part, "text")] for line in option.why for part in wrap_text(safe(line), width)]
    why += [line for need in option.needs for line in render_prefixed("needs ", "watch", need, width)]
    why += [line for change in option.changes for line in render_prefixed("changes ", "dim", change, width)]
    times: list[Line] = []
    for part in option.downtime:
        head = f"{safe(part.name):<{_TIME_NAME}}{duration(part.seconds):>{_TIME}}  "
        times += render_prefixed(head, "text", part.why, width, key="dim")
    mine = choice.mine or tuple(False for _ in option.commands)
    commands: list[Line] = []
    for command, is_mine in zip(option.commands, mine, strict=False):
        actor = "you" if is_mine else f"needs {command.who.value}"
        parts = wrap_text(safe(command.text), max(30, width - 4))
        commands += [[("    " * bool(index) + part, "strong")] for index, part in enumerate(parts)]
        if len(parts) == 1 and len(parts[0]) + len(actor) + 4 <= width:
            commands[-1] = [*commands[-1], (f"  ({actor})", "dim")]
        else:
            commands.append([(f"    ({actor})", "dim")])
    return [
        section(safe(option.title), why),
        render_rank_placement(choice.before, choice.after, width),
        section("Downtime", times),
        section("Commands", commands),
    ]


def render_prefixed(head: str, head_key: str, text: str, width: int, *, key: str = "text") -> list[Line]:
    """Return a text after a prefix, wrapped at the width; further lines are aligned with the text."""
    parts = wrap_text(safe(text), max(24, width - len(head)))
    blank = " " * len(head)
    return [[(blank if index else head, head_key), (part, key)] for index, part in enumerate(parts)]


def render_rank_placement(before: PlacementView | None, after: PlacementView | None, width: int) -> Section:
    """Return both placements side by side where they fit: ranks by node and rail, with changes marked.

    Only nodes with a change are shown.
    """
    if before is None or after is None:
        return section("Ranks before and after", [])
    names = list(dict.fromkeys([*before.nodes, *after.nodes]))
    changed = [name for name in names if _row_differs(before, after, name)][:_MOST_NODES]
    size = min(14, max((len(name) for name in changed), default=4))
    panel = size + 1 + _SLOT_WIDTH * len(before.columns)
    is_wide = 2 * panel + 5 <= width
    head = "".join(fit_text(safe(column).replace("rail ", "r"), _SLOT_WIDTH, right=True) for column in before.columns)
    lines: list[Line] = []
    if is_wide:
        lines.append([(f"{'before':<{panel}}     {'after':<{panel}}", "dim")])
        lines.append([(" " * (size + 1) + head + "     " + " " * (size + 1) + head, "dim")])
    for name in changed:
        old, new = _render_slots(before, after, name, size), _render_slots(after, before, name, size)
        if is_wide:
            lines.append([*old, ("  →  ", "dim"), *new])
        else:
            lines += [[("before ", "dim"), *old], [("after  ", "dim"), *new]]
    if not changed:
        lines = [[("no rank changes its place", "dim")]]
    where = f"the {len(changed)} nodes that change" if len(changed) != 1 else "the node that changes"
    return section(f"Ranks before and after, on {where}", lines)


def _row_of(picture: PlacementView, name: str) -> int | None:
    return picture.nodes.index(name) if name in picture.nodes else None


def _row_differs(before: PlacementView, after: PlacementView, name: str) -> bool:
    old, new = _row_of(before, name), _row_of(after, name)
    if old is None or new is None:
        return True
    return not np.array_equal(before.ranks[old], after.ranks[new]) or bool(before.failed[old].any())


def _render_slots(picture: PlacementView, other: PlacementView, name: str, size: int) -> Sequence[Cell]:
    """Return one node's slots; those that differ from the other placement are highlighted."""
    row, mirror = _row_of(picture, name), _row_of(other, name)
    cells: list[Cell] = [(fit_text(safe(name), size) + " ", "text")]
    for column in range(len(picture.columns)):
        rank = -1 if row is None else int(picture.ranks[row, column])
        other_rank = -1 if mirror is None else int(other.ranks[mirror, column])
        is_failed = row is not None and bool(picture.failed[row, column])
        text = ("✗" if is_failed else "") + (str(rank) if rank >= 0 else "" if is_failed else "·")
        key = "sick" if is_failed else "hit" if rank != other_rank and rank >= 0 else "text" if rank >= 0 else "dim"
        cells += [(" ", "text"), (text.rjust(_SLOT_WIDTH - 1), key)]
    return cells
