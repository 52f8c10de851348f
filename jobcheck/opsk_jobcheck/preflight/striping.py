"""Checks how Lustre spreads the files of a checkpoint.

Source: NERSC, file striping recommendations (a file for each process: the default of one target up to 1 TB a file), and
the Lustre wiki, striping best practices (4 to 8 targets for a large file of one client).
"""

from __future__ import annotations

from opsk_jobcheck.preflight.facts import JobFacts, PreflightFinding, report
from opsk_jobcheck.scripts.checkpoint_stripes import ALL_TARGETS
from opsk_jobcheck.scripts.run_facts import STRIPES

MIN_RANKS = 64
"""The files of fewer ranks may not keep all targets busy."""
MAX_STRIPES = 8
"""Targets of a file that one client writes: more gain nothing."""


def check_stripes(facts: JobFacts) -> PreflightFinding | None:
    """Return that each rank's own file is spread over more storage targets than one client can use."""
    entry, count = facts.stated.get(STRIPES), facts.find_count(STRIPES)
    if entry is None or count is None or facts.gpus < MIN_RANKS or ALL_TARGETS < count <= MAX_STRIPES:
        return None
    targets = "all storage targets" if count == ALL_TARGETS else f"{count} storage targets"
    what = f"{entry.text} spreads each file of {facts.gpus} ranks over {targets}"
    return report(entry, what, "take -c 1: so many files keep all of them busy")
