"""Can a store be used as it is, without reading what is kept in it: where it lies, and of which form its tables are?"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.store.database.engine import NOT_OPENED, connect
from opsk.store.database.errors import store_error
from opsk.store.database.network_files import Mount, network_mount
from opsk.store.database.schema import newest, revision_of, revisions
from opsk.store.database.urls import default_url, file_of, shown, store_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a store stands.

    Parameters
    ----------
    name
        Its URL without password.
    is_there
        ``False`` for a file that nobody has made yet.
    mount
        The network file system that its file is on.
    revision, newest
        Form of its tables, and the one that this opsk needs.
    is_known
        Whether this opsk knows that form.
    """

    name: str
    is_there: bool = True
    mount: Mount | None = None
    revision: str | None = None
    newest: str = ""
    is_known: bool = True


def standing(given: str | None) -> Standing:
    """Look at the store of a URL, or at that of this user; nothing is changed.

    Raises
    ------
    StoreError
        The URL is none, its driver is not installed, or the database does not answer.
    """
    url = store_url(given or default_url())
    path, name = file_of(url), shown(url)
    mount = network_mount(path) if path is not None else None
    if path is not None and not path.exists():
        return Standing(name=name, is_there=False, mount=mount, newest=newest())
    engine = connect(given or default_url(), writing=False)
    try:
        revision = revision_of(engine)
    except NOT_OPENED as error:
        raise store_error(error, engine.url) from error
    finally:
        engine.dispose()
    known = revision is None or revision in revisions()
    return Standing(name=name, mount=mount, revision=revision, newest=newest(), is_known=known)
