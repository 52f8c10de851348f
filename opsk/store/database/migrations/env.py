"""Runs Alembic migrations on the connection that ``opsk.store.database.engine`` provides."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from opsk.store.database.engine import connect
from opsk.store.database.tables import METADATA


def run(connection: Connection) -> None:
    """Run the migrations, in one transaction; SQLite changes a table by copying it."""
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with connect(context.config.get_main_option("sqlalchemy.url") or "sqlite://").begin() as opened:
        run(opened)
