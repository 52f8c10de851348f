"""Which lines does slurm.conf of a release need? Those of the newest ``deploy/slurm/opsk-<release>.conf`` up to it."""

from __future__ import annotations

import re
from pathlib import Path

from opsk.lab.slurm_files import deploy_folder
from opsk.slurm.topology.release import Release

_NAME = re.compile(r"opsk-(\d{2})\.(\d{2})\.conf")


def snippets(folder: Path | None = None) -> dict[Release, Path]:
    """Return the files by the first release that each is for, the oldest first."""
    place = folder or deploy_folder() / "slurm"
    found = ((_NAME.fullmatch(path.name), path) for path in place.iterdir())
    return dict(sorted(((int(name[1]), int(name[2])), path) for name, path in found if name is not None))


def slurm_lines(release: Release) -> tuple[str, ...]:
    """Return the lines for a release; an older Slurm than any gets those of the oldest."""
    known = snippets()
    fit = [path for since, path in known.items() if since <= release]
    return tuple((fit[-1] if fit else next(iter(known.values()))).read_text(encoding="utf-8").splitlines())
