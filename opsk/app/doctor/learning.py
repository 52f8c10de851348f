"""Checks the folder of learning: whether the site's fit can be written, read, and is recent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from opsk.app.doctor.finding import Finding, Site, note, sound, wrong
from opsk.app.inputs.named_inputs import load_efficiency
from opsk.app.learning.fits import list_fits
from opsk.config import PUBLISHED_FIT
from opsk.errors import OpskError

CHECK, HOWTO = "learning", "docs/howto/learn-from-the-site.md"


def check_learning(site: Site) -> Iterator[Finding]:
    """Check what a site that learns depends on; nothing where it does not learn."""
    settings = site.config.learning
    if not settings.enabled:
        return
    folder = settings.folder
    if not folder.is_dir():
        hint = f"systemctl start opsk-learn makes it, for the advisor's user: {HOWTO}"
        yield wrong(CHECK, "the folder of learning does not exist", folder, hint)
        return
    if site.config.store.url is None:
        yield wrong(CHECK, "learning needs a store", site.config_path, "set url under [store], and run opsk-recorder")
    yield _check_fit(folder)


def _check_fit(folder: Path) -> Finding:
    """Check the published fit: one that is damaged stops every prediction."""
    path = folder / PUBLISHED_FIT
    if not path.is_file():
        return note(CHECK, "no fit is published yet: the efficiencies of the site are used", folder, HOWTO)
    if not os.access(path, os.R_OK):
        return wrong(CHECK, "the published fit cannot be read", path, f"chmod 644 {path}")
    try:
        load_efficiency(path)
    except OpskError as error:
        return wrong(CHECK, f"the published fit cannot be used: {error.message}", path, "opsk calibrate --undo")
    fits = list_fits(folder)
    made = f", the last of {fits[0].made_at:%Y-%m-%d}" if fits else ""
    return sound(CHECK, f"a fit is published; {len(fits)} with their evidence{made}", path)
