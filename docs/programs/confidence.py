"""Draws how many of the causes that are named with some confidence are right: docs/images/postmortem-confidence.svg.

    python docs/programs/confidence.py [FOLDER OF LOGS]

Judged are generated logs of three kinds, and the open real logs of the folder (``train_log`` of the shared data) where
one is named: their causes are those that the tests state. Of a band of confidence the share of right classes is drawn,
with the interval that holds it with 95 % (Wilson).
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from opsk.postmortem.logs import LogFile, read_logs  # noqa: E402
from opsk.postmortem.reasoning import explain  # noqa: E402
from opsk.postmortem.values import JobFacts, Report  # noqa: E402
from tests.fakes.hard_logs.laying import lay_failure  # noqa: E402
from tests.fakes.hard_logs.open_logs import CAUSES  # noqa: E402
from tests.fakes.planted_failures import Planted, plant  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "postmortem-confidence.svg"
BANDS = (0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Below 25 % no cause is named."""
HARD, PLANTED = 1000, 150
FIRST_PLANTED = 5000
_Z = 1.96
_WIDTH, _HEIGHT, _MARGIN = 620, 400, 56
_COLOURS = ("#1f618d", "#b9770e", "#7d3c98", "#1e8449")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What was said of one failure: how sure, and whether the class was right."""

    kind: str
    confidence: float
    is_right: bool


def main(folder: str) -> None:
    """Judge all logs, print the table of the page, and draw the picture."""
    with tempfile.TemporaryDirectory() as scratch:
        judgements = [*judge_hard(Path(scratch)), *judge_planted(Path(scratch))]
    if folder:
        judgements += judge_open(Path(folder))
    else:
        print("no folder of real logs: the picture is of generated ones only", file=sys.stderr)
    print(render_table(judgements))
    PICTURE.write_text(render_svg(judgements), "utf-8")


def judge_hard(folder: Path) -> Iterator[Judgement]:
    """Judge generated hard logs."""
    for seed in range(HARD):
        laid = lay_failure(seed, folder / "hard" / str(seed))
        report = explain(read_logs([LogFile(path=path) for path in laid.paths], processes=1))
        yield from judge("hard logs (generated)", report, laid.failure)


def judge_planted(folder: Path) -> Iterator[Judgement]:
    """Judge planted failures, and those that lost what tells of the cause."""
    for name, how in (
        ("planted, words held out (generated)", {"held_out": True}),
        ("planted, cause lost (generated)", {"loses_cause": True}),
    ):
        for seed in range(FIRST_PLANTED, FIRST_PLANTED + PLANTED):
            planted = plant(seed, folder / name[:24] / str(seed), **how)
            if planted.truth is not None:
                yield from judge(name, explain_planted(planted), planted.truth.failure)


def explain_planted(planted: Planted) -> Report:
    """Explain a planted failure as the command does."""
    logs = [LogFile(path=path) for path in planted.logs]
    logs += [LogFile(path=path, kind="kernel", node=node) for node, path in planted.kernel_logs]
    evidence = read_logs(logs, processes=1)
    job = JobFacts(**planted.job) if planted.job is not None else None  # type: ignore[arg-type]
    return explain(replace(evidence, job=job))


def judge_open(folder: Path) -> Iterator[Judgement]:
    """Judge the real logs whose cause is known."""
    for name, failure in CAUSES.items():
        if (folder / name).is_file():
            yield from judge(
                "open logs (real)", explain(read_logs([LogFile(path=folder / name)], processes=1)), failure
            )


def judge(kind: str, report: Report, failure: str) -> Iterator[Judgement]:
    """Yield a judgement where a cause is named."""
    if report.root is not None:
        is_right = report.root.failure.value == failure
        yield Judgement(kind=kind, confidence=report.root.confidence, is_right=is_right)


def find_band(confidence: float) -> int:
    """Return the number of a confidence's band."""
    return max(0, sum(confidence >= edge for edge in BANDS[:-1]) - 1)


def group(judgements: Sequence[Judgement]) -> dict[int, list[Judgement]]:
    """Return judgements by band."""
    bands: dict[int, list[Judgement]] = defaultdict(list)
    for each in judgements:
        bands[find_band(each.confidence)].append(each)
    return bands


def render_table(judgements: Sequence[Judgement]) -> str:
    """Return the table of the page: reports and right ones, by band and kind."""
    kinds = list(dict.fromkeys(each.kind for each in judgements))
    rows = [f"| Said | {' | '.join(kinds)} | All |", f"|---|{'---|' * (len(kinds) + 1)}"]
    for number in reversed(range(len(BANDS) - 1)):
        cells = []
        for kind in (*kinds, ""):
            those = [each for each in judgements if find_band(each.confidence) == number and kind in ("", each.kind)]
            right = sum(each.is_right for each in those)
            cells.append(f"{right} of {len(those)}" + (f" ({right / len(those):.0%})" if those else ""))
        rows.append(f"| {BANDS[number]:.0%} to {BANDS[number + 1]:.0%} | {' | '.join(cells)} |")
    return "\n".join(rows)


def interval(right: int, count: int) -> tuple[float, float]:
    """Return the interval that holds a share with 95 % (Wilson, 1927)."""
    share, square = right / count, _Z * _Z
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _Z / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def render_svg(judgements: Sequence[Judgement]) -> str:
    """Return the reliability diagram."""
    kinds = ["all", *dict.fromkeys(each.kind for each in judgements)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 340} {_HEIGHT}" role="img" '
        'aria-label="confidence said and share right" font-family="system-ui, sans-serif" font-size="12" '
        'fill="#5d6d7e">',
        f'<path d="M{to_x(0.2)} {to_y(0.2)}L{to_x(1)} {to_y(1)}" stroke="#aeb6bf" stroke-dasharray="4 4" fill="none"/>',
        *render_axes(),
    ]
    for number, kind in enumerate(kinds):
        colour = ("#2c3e50", *_COLOURS)[number % (len(_COLOURS) + 1)]
        those = [each for each in judgements if kind in ("all", each.kind)]
        parts += render_series(those, colour, shift=4 * (number - 2), is_main=kind == "all")
        y = _MARGIN + 20 * number
        count = f"{kind}: {len(those)} named"
        parts.append(f'<circle cx="{_WIDTH}" cy="{y}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{_WIDTH + 10}" y="{y + 4}">{count}</text>')
    return "".join([*parts, "</svg>\n"])


def render_axes() -> Iterator[str]:
    """Yield both axes with their ticks."""
    for tick in (0.2, 0.4, 0.6, 0.8, 1.0):
        yield f'<path d="M{to_x(tick)} {to_y(0.0)}v5M{to_x(0.2)} {to_y(tick)}h-5" stroke="#aeb6bf" fill="none"/>'
        yield f'<text x="{to_x(tick)}" y="{to_y(0.0) + 18}" text-anchor="middle">{tick:.0%}</text>'
        yield f'<text x="{to_x(0.2) - 9}" y="{to_y(tick) + 4}" text-anchor="end">{tick:.0%}</text>'
    yield f'<path d="M{to_x(0.2)} {to_y(1.0)}V{to_y(0.0)}H{to_x(1.0)}" stroke="#aeb6bf" fill="none"/>'
    middle = (to_x(0.2) + to_x(1)) / 2
    yield f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">said: confidence of the cause</text>'
    yield f'<text x="{to_x(0.2) - 40}" y="{to_y(1.0) - 14}">right: share of causes whose class is right</text>'


def render_series(judgements: Sequence[Judgement], colour: str, *, shift: float, is_main: bool) -> Iterator[str]:
    """Yield the bands of one kind of logs: a circle at the mean confidence, and its interval."""
    for those in group(judgements).values():
        right, count = sum(each.is_right for each in those), len(those)
        x = to_x(sum(each.confidence for each in those) / count) + shift
        low, high = interval(right, count)
        radius = 6 if is_main else 3.5
        label = f"{right} of {count} right"
        yield f'<path d="M{x:.1f} {to_y(low):.1f}V{to_y(high):.1f}" stroke="{colour}" stroke-opacity="0.5"/>'
        y = to_y(right / count)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"><title>{label}</title></circle>'


def to_x(confidence: float) -> float:
    """Return where a confidence is drawn."""
    return round(_MARGIN + (confidence - 0.2) / 0.8 * (_WIDTH - 2 * _MARGIN), 1)


def to_y(share: float) -> float:
    """Return where a share is drawn."""
    return round(_HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN), 1)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
