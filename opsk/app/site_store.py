"""Opens the site's store; SQLModel and Alembic are imported only when it is used."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from opsk.config import load_site
from opsk.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy import Engine


def find_store_url() -> str:
    """Return the URL of the store that the site names.

    Raises
    ------
    StoreError
        The store is not installed.
    """
    if find_spec("sqlmodel") is None or find_spec("alembic") is None:
        raise StoreError("the store is not installed here", hint='install it with: pip install "opsk[store]"')
    from opsk.store.database.urls import default_url

    return load_site().store.url or default_url()


def open_site_store(*, writing: bool = True) -> Engine:
    """Open the store that the site names.

    Raises
    ------
    StoreError
        It is not installed, or cannot be opened.
    """
    url = find_store_url()
    from opsk.store.database.engine import open_store

    return open_store(url, writing=writing)
