"""Reports whether a store can be used, without reading its records: its location and the revision of its tables."""

from __future__ import annotations

from dataclasses import dataclass

from opsk.store.database.engine import OPEN_ERRORS, connect
from opsk.store.database.errors import store_error
from opsk.store.database.network_files import Mount, network_mount
from opsk.store.database.schema import list_revisions, newest_revision, read_revision
from opsk.store.database.urls import default_url, find_sqlite_file, format_url, store_url


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """The status of a store.

    Parameters
    ----------
    name
        Its URL without password.
    is_there
        ``False`` for a file that does not exist yet.
    mount
        The network file system that its file is on.
    revision, newest
        Revision of its tables, and the one that this opsk needs.
    is_known
        Whether this opsk knows that revision.
    """

    name: str
    is_there: bool = True
    mount: Mount | None = None
    revision: str | None = None
    newest: str = ""
    is_known: bool = True


def inspect_store(given: str | None) -> StoreStatus:
    """Look at the store of a URL, or at that of this user; nothing is changed.

    Raises
    ------
    StoreError
        The URL is none, its driver is not installed, or the database does not answer.
    """
    url = store_url(given or default_url())
    path, name = find_sqlite_file(url), format_url(url)
    mount = network_mount(path) if path is not None else None
    if path is not None and not path.exists():
        return StoreStatus(name=name, is_there=False, mount=mount, newest=newest_revision())
    engine = connect(given or default_url(), writing=False)
    try:
        revision = read_revision(engine)
    except OPEN_ERRORS as error:
        raise store_error(error, engine.url) from error
    finally:
        engine.dispose()
    known = revision is None or revision in list_revisions()
    return StoreStatus(name=name, mount=mount, revision=revision, newest=newest_revision(), is_known=known)
