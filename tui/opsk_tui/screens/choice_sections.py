"""How does one option after a failure look in full: why, who sits where before and after, times, commands?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opsk_tui.data.feed_port import Choice, SeatPicture
from opsk_tui.text.format import duration
from opsk_tui.text.safe_text import fitted, safe, wrapped
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.document import Line, Section, section

_SEAT = 5
_TIME_NAME, _TIME = 18, 9
_MOST_NODES = 64


def choice_sections(choice: Choice, width: int) -> list[Section]:
    """Return an option in full: why, seats before and after, times, commands."""
    option = choice.option
    why: list[Line] = [[(part, "text")] for line in option.why for part in wrapped(safe(line), width)]
    why += [line for need in option.needs for line in led("needs ", "watch", need, width)]
    why += [line for change in option.changes for line in led("changes ", "dim", change, width)]
    times: list[Line] = []
    for part in option.downtime:
        head = f"{safe(part.name):<{_TIME_NAME}}{duration(part.seconds):>{_TIME}}  "
        times += led(head, "text", part.why, width, key="dim")
    mine = choice.mine or tuple(False for _ in option.commands)
    commands: list[Line] = []
    for command, is_mine in zip(option.commands, mine, strict=False):
        whom = "you" if is_mine else f"needs {command.who.value}"
        parts = wrapped(safe(command.text), max(30, width - 4))
        commands += [[("    " * bool(at) + part, "strong")] for at, part in enumerate(parts)]
        if len(parts) == 1 and len(parts[0]) + len(whom) + 4 <= width:
            commands[-1] = [*commands[-1], (f"  ({whom})", "dim")]
        else:
            commands.append([(f"    ({whom})", "dim")])
    return [
        section(safe(option.title), why),
        seats(choice.before, choice.after, width),
        section("Downtime", times),
        section("Commands", commands),
    ]


def led(head: str, head_key: str, text: str, width: int, *, key: str = "text") -> list[Line]:
    """Return a text behind a word, broken at the width; further lines stand below the text."""
    parts = wrapped(safe(text), max(24, width - len(head)))
    blank = " " * len(head)
    return [[(blank if at else head, head_key), (part, key)] for at, part in enumerate(parts)]


def seats(before: SeatPicture | None, after: SeatPicture | None, width: int) -> Section:
    """Return both pictures side by side where they fit: ranks by node and rail, what changes marked.

    Only nodes on which something changes are shown.
    """
    if before is None or after is None:
        return section("Ranks before and after", [])
    names = list(dict.fromkeys([*before.nodes, *after.nodes]))
    changed = [name for name in names if _row_differs(before, after, name)][:_MOST_NODES]
    size = min(14, max((len(name) for name in changed), default=4))
    panel = size + 1 + _SEAT * len(before.columns)
    is_wide = 2 * panel + 5 <= width
    head = "".join(fitted(safe(column).replace("rail ", "r"), _SEAT, right=True) for column in before.columns)
    lines: list[Line] = []
    if is_wide:
        lines.append([(f"{'before':<{panel}}     {'after':<{panel}}", "dim")])
        lines.append([(" " * (size + 1) + head + "     " + " " * (size + 1) + head, "dim")])
    for name in changed:
        old, new = _seat_cells(before, after, name, size), _seat_cells(after, before, name, size)
        if is_wide:
            lines.append([*old, ("  →  ", "dim"), *new])
        else:
            lines += [[("before ", "dim"), *old], [("after  ", "dim"), *new]]
    if not changed:
        lines = [[("no rank changes its place", "dim")]]
    where = f"the {len(changed)} nodes that change" if len(changed) != 1 else "the node that changes"
    return section(f"Ranks before and after, on {where}", lines)


def _row_of(picture: SeatPicture, name: str) -> int | None:
    return picture.nodes.index(name) if name in picture.nodes else None


def _row_differs(before: SeatPicture, after: SeatPicture, name: str) -> bool:
    old, new = _row_of(before, name), _row_of(after, name)
    if old is None or new is None:
        return True
    return not np.array_equal(before.ranks[old], after.ranks[new]) or bool(before.failed[old].any())


def _seat_cells(picture: SeatPicture, other: SeatPicture, name: str, size: int) -> Sequence[Cell]:
    """Return one node's seats; those that differ from the other picture are stressed."""
    row, mirror = _row_of(picture, name), _row_of(other, name)
    cells: list[Cell] = [(fitted(safe(name), size) + " ", "text")]
    for column in range(len(picture.columns)):
        rank = -1 if row is None else int(picture.ranks[row, column])
        there = -1 if mirror is None else int(other.ranks[mirror, column])
        is_failed = row is not None and bool(picture.failed[row, column])
        text = ("✗" if is_failed else "") + (str(rank) if rank >= 0 else "" if is_failed else "·")
        key = "sick" if is_failed else "hit" if rank != there and rank >= 0 else "text" if rank >= 0 else "dim"
        cells += [(" ", "text"), (text.rjust(_SEAT - 1), key)]
    return cells
