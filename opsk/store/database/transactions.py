"""Runs reads and writes in transactions, and retries a write that collides with another writer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from opsk.errors import StoreError
from opsk.store.database.errors import may_try_again, store_error

WRITING = "opsk_writing"
"""Execution option of a connection that will write: SQLite then takes its lock at once, not in the middle."""

_ATTEMPTS = 8
_BETWEEN_ATTEMPTS_S = 0.05
_PATIENCE_S = 20.0
"""After so long nothing is retried: the caller still has what was to be written."""

T = TypeVar("T")


def write(engine: Engine, work: Callable[[Session], T]) -> T:
    """Return the result of ``work`` after its writes are committed; retried where another writer was in the way.

    Raises
    ------
    StoreError
        The database does not accept it; nothing of it is stored.
    """
    started_s = time.monotonic()
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with Session(engine.execution_options(**{WRITING: True})) as session:
                done = work(session)
                session.commit()
                return done
        except SQLAlchemyError as error:
            late = attempt == _ATTEMPTS or time.monotonic() - started_s > _PATIENCE_S
            if late or not may_try_again(error):
                raise store_error(error, engine.url) from error
        time.sleep(_BETWEEN_ATTEMPTS_S * attempt * random.random())
    raise AssertionError("unreachable")


def read(engine: Engine, work: Callable[[Session], T]) -> T:
    """Return the result of ``work``.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    try:
        with Session(engine) as session:
            return work(session)
    except SQLAlchemyError as error:
        raise store_error(error, engine.url) from error
    except (ValueError, TypeError, AttributeError) as error:
        # SQLite keeps anything in any column: a value that is no time or number fails where it is converted.
        raise StoreError(f"a row of the store holds what no opsk wrote: {error}", hint="opsk store check") from error
