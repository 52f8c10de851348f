"""Writes shell completions for ``opsk``, by click, where each shell looks: ``python completion.py SHARE``.

It stands alone, importing nothing of its neighbours: the opsk of a finished tree runs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from opsk.cli.main import opsk

PLACES: tuple[tuple[type[ShellComplete], str], ...] = (
    (BashComplete, "bash-completion/completions/opsk"),
    (ZshComplete, "zsh/site-functions/_opsk"),
    (FishComplete, "fish/vendor_completions.d/opsk.fish"),
)


def main(share: Path) -> None:
    """Write one file for each shell."""
    for kind, place in PLACES:
        complete = kind(opsk, {}, "opsk", "_OPSK_COMPLETE")
        file = share / place
        file.parent.mkdir(parents=True, exist_ok=True)
        # Not .source(): for bash it would ask which bash this machine has.
        file.write_text(complete.source_template % complete.source_vars(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
