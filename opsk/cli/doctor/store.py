"""Can the store be used: on a disk of this machine, answering, and with tables of the form that this opsk needs?"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from opsk.app.doctor.finding import Finding, Site, note, sound, wrong
from opsk.errors import StoreError


def store_checks(site: Site) -> Iterator[Finding]:
    """Look at the store without changing it."""
    if find_spec("sqlmodel") is None or find_spec("alembic") is None:
        yield note("store", "not installed here: nothing is remembered", hint='pip install "opsk[store]"')
        return
    from opsk.store.database.standing import standing

    try:
        found = standing(site.config.store.url)
    except StoreError as error:
        yield wrong("store", error.message, hint=error.hint)
        return
    if found.mount is not None:
        hint = "SQLite's locks do not hold there: url under [store] names a disk of this machine, or a server"
        what = f"is on a network file system ({found.mount.kind} at {found.mount.point})"
        yield wrong("store", what, found.name, hint)
    if not found.is_there:
        yield note("store", "nothing is kept yet", found.name)
    elif found.revision == found.newest:
        yield sound("store", f"answers, its tables are of revision {found.revision}", found.name)
    elif found.revision is None:
        yield wrong("store", "has no tables yet", found.name, "opsk store upgrade")
    elif found.is_known:
        what = f"its tables are of revision {found.revision}, and this opsk needs {found.newest}"
        yield wrong("store", what, found.name, "opsk store upgrade, once all that write to it are of this version")
    else:
        what = f"a newer opsk has changed its tables (revision {found.revision[:40]})"
        yield wrong("store", what, found.name, "update opsk")
