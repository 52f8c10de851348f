"""A stand-in for the analysis: run as a script it forks advisor workers whose answer the script itself orders.

``FAKE sleep 0.5``, ``FAKE crash``, ``FAKE raise``, ``FAKE want /a/b``, ``FAKE silent``, ``FAKE lines 3``,
``FAKE oom 0.999 plan.tp``, ``FAKE optout``, ``FAKE detail``, ``FAKE free 0 2`` in the text say what happens; else the
verdict is ``fits``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from opsk.config import SiteConfig
from opsk.errors import ConfigError
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest, short_hash
from opsk_jobcheck.workers.fork_server import serve
from opsk_jobcheck.workers.worker import run


class OrderedThinker:
    """Does what the script orders, and counts the thoughts in a file where one is named."""

    def __init__(self, site: SiteConfig) -> None:
        if site.cluster == "missing":
            raise ConfigError("missing: no such cluster", hint="name another")
        self.cluster = site.cluster or "none"

    def analyze(self, query: AnalysisRequest) -> Analysis:
        """Carry out the orders in the text."""
        if os.environ.get("FAKE_COUNT"):
            with Path(os.environ["FAKE_COUNT"]).open("a", encoding="ascii") as out:
                out.write("x")
        orders = [line.split()[1:] for line in query.text.splitlines() if line.startswith("FAKE ")]
        wanted: tuple[str, ...] = ()
        free: tuple[int, ...] = ()
        lines = ["model headline", f"memory fits {query.request.nodes} nodes on {self.cluster}"]
        for order in orders:
            match order:
                case ["sleep", seconds]:
                    time.sleep(float(seconds))
                case ["print"]:
                    print("a library's chatter")  # must not reach the advisor
                case ["crash"]:
                    os._exit(3)
                case ["raise"]:
                    raise ValueError("as ordered")
                case ["want", *paths]:
                    wanted = tuple(path for path in paths if path not in {*query.files, *query.unread})
                case ["then", *paths]:  # the first wanted, once it is read the next
                    known = {*query.files, *query.unread}
                    wanted = next(((path,) for path in paths if path not in known), ())
                case ["free", *numbers]:
                    free = tuple(map(int, numbers))
                case ["silent"]:
                    return Analysis(silent=True)
                case ["unknown"]:
                    return Analysis(verdict="unknown", lines=("cannot tell",), comment="opsk:v1 verdict=unknown")
                case ["oom", probability, *guessed]:
                    return Analysis(
                        verdict="oom",
                        lines=tuple(lines),
                        short_lines=tuple(lines[:2]),
                        comment="opsk:v1 verdict=oom",
                        oom_probability=float(probability),
                        guessed=tuple(guessed),
                        why="as ordered",
                    )
                case ["optout"]:
                    return Analysis(opted_out=True, verdict="fits", lines=("said nowhere",), comment="kept nowhere")
                case ["detail"]:
                    lines.append(f"detail {query.detail}")
                case ["lines", count]:
                    lines = [f"line {number} " + "x" * 3000 for number in range(int(count))]
        if wanted and query.may_want:
            return Analysis(missing_files=wanted)
        if query.is_hurried:
            lines.append("in a hurry")
        lines += [f"file {name} {len(text)}" for name, text in sorted(query.files.items())]
        return Analysis(
            verdict="fits",
            is_short=query.is_hurried,
            lines=tuple(lines),
            short_lines=tuple(f"short {line}"[:80] for line in lines[:2]),
            comment=f"opsk:v1 verdict=fits hash={short_hash(query.text)}" if free else "opsk:v1 verdict=fits",
            free=free,
        )


if __name__ == "__main__":
    serve({"worker": lambda _: run(OrderedThinker)})
