"""The real service around the stand-in for the analysis: ``advisor.py CONFIG.toml``."""

from __future__ import annotations

import sys
from pathlib import Path

from opsk.config import load_site
from opsk_jobcheck.service.service import serve

if __name__ == "__main__":
    config = Path(sys.argv[1])
    analyzers = (sys.executable, str(Path(__file__).with_name("analyzer.py")))
    serve(load_site(config), load=lambda: load_site(config), fork_command=analyzers)
