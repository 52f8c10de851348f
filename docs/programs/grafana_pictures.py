"""Draws the dashboards that the pages show; needs Prometheus."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "exporters")]

from deploy.grafana.sketch import draw  # noqa: E402
from deploy.grafana.sketch_data import Source  # noqa: E402
from tests.fakes.lab_node import TRAINING  # noqa: E402
from tests.fakes.prometheus_server import lab_prometheus  # noqa: E402

PICTURES = ("opsk-cluster", "opsk-job")
CHOSEN = {"$cluster": ".*", "$node": ".*", "$job": TRAINING}


def main() -> None:
    """Draw dashboards with half an hour of the made-up cluster of the tests."""
    rules = (ROOT / "deploy" / "prometheus" / "opsk-rules.yml",)
    with tempfile.TemporaryDirectory() as folder, lab_prometheus(Path(folder), rules) as lab:
        source = Source(lab.url, lab.start_unix_s, lab.end_unix_s, step_s=60.0, variables=CHOSEN)
        for uid in PICTURES:
            dashboard = json.loads((ROOT / "deploy" / "grafana" / f"{uid}.json").read_text(encoding="utf-8"))
            name = f"grafana-{uid.removeprefix('opsk-')}.svg"
            (ROOT / "docs" / "images" / name).write_text(draw(dashboard, source), encoding="utf-8")
            print(f"wrote docs/images/{name}")


if __name__ == "__main__":
    main()
