"""Writes the dashboards' files (``python -m deploy.grafana.generate``), or compares them (``--check``)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.dashboards import ALL

HERE = Path(__file__).resolve().parent


def render_dashboard(uid: str) -> str:
    """Return one dashboard as JSON."""
    return json.dumps(ALL[uid](), cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(arguments: Iterable[str]) -> int:
    """Write the files, or say which differ."""
    check = "--check" in tuple(arguments)
    files = {HERE / f"{uid}.json": render_dashboard(uid) for uid in ALL}
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.name} is not what the code makes: run python -m deploy.grafana.generate")
        else:
            path.write_text(files[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
