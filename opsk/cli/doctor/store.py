"""Checks that the store is on a local disk, answers, and has tables of the current revision."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from opsk.app.doctor.finding import Finding, Site, note, sound, wrong
from opsk.errors import StoreError


def check_store(site: Site) -> Iterator[Finding]:
    """Check the store without changing it."""
    if find_spec("sqlmodel") is None or find_spec("alembic") is None:
        yield note("store", "not installed here: nothing is remembered", hint='pip install "opsk[store]"')
        return
    from opsk.store.database.status import inspect_store

    try:
        state = inspect_store(site.config.store.url)
    except StoreError as error:
        yield wrong("store", error.message, hint=error.hint)
        return
    if state.mount is not None:
        hint = "SQLite's locks do not hold there: url under [store] names a disk of this machine, or a server"
        what = f"is on a network file system ({state.mount.kind} at {state.mount.point})"
        yield wrong("store", what, state.name, hint)
    if not state.is_there:
        yield note("store", "nothing is kept yet", state.name)
    elif state.revision == state.newest:
        yield sound("store", f"answers, its tables are of revision {state.revision}", state.name)
    elif state.revision is None:
        yield wrong("store", "has no tables yet", state.name, "opsk store upgrade")
    elif state.is_known:
        what = f"its tables are of revision {state.revision}, and this opsk needs {state.newest}"
        yield wrong("store", what, state.name, "opsk store upgrade, once all that write to it are of this version")
    else:
        what = f"a newer opsk has changed its tables (revision {state.revision[:40]})"
        yield wrong("store", what, state.name, "update opsk")
