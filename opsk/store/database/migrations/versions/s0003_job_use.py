"""Creates the tables of submissions that request GPUs, and of what their jobs used.

Tables that exist already are not changed: MariaDB cannot roll back a migration that was interrupted.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "s0003"
down_revision: str | None = "s0002"
branch_labels: str | None = None
depends_on: str | None = None

_EXACT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_MARIADB = ("mysql", "mariadb")
_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *_MARIADB)
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(**_EXACT), *_MARIADB)
_AMOUNT: sa.types.TypeEngine[float] = sa.Double()


def _words(characters: int) -> sa.types.TypeEngine[str]:
    return sa.String(characters).with_variant(mysql.VARCHAR(characters, **_EXACT), *_MARIADB)


_NAME, _WORD = _words(255), _words(64)
_PROGRAM = (("script_key", _WORD, False), ("command_key", _WORD, False), ("command", _NAME, True))

_TABLES: dict[str, tuple[tuple[tuple[str, Any, bool], ...], tuple[tuple[str, ...], ...]]] = {
    "submissions": (
        (
            ("cluster", _NAME, False),
            ("at", _TIME, False),
            ("uid", _BIG, False),
            ("name", _NAME, True),
            *_PROGRAM,
            ("settings", _TEXT, True),
            ("gpus", _BIG, True),
        ),
        (("cluster", "at"),),
    ),
    "job_use": (
        (
            ("cluster", _NAME, False),
            ("job", _WORD, False),
            ("submitted_at", _TIME, False),
            ("at", _TIME, False),
            ("uid", _BIG, False),
            ("user", _NAME, True),
            ("account", _NAME, True),
            *_PROGRAM,
            ("settings", _TEXT, True),
            ("gpu_type", _WORD, True),
            ("gpus", _BIG, True),
            ("nodes", _BIG, True),
            ("started_at", _TIME, True),
            ("ended_at", _TIME, True),
            ("time_limit_s", _AMOUNT, True),
            ("state", _WORD, True),
            ("observed_s", _AMOUNT, True),
            ("capacity_bytes", _AMOUNT, True),
            ("memory_peak_bytes", _AMOUNT, True),
            ("memory_peaks", _TEXT, True),
            ("activity", _AMOUNT, True),
            ("idle_gpus", _BIG, True),
            ("power_w", _AMOUNT, True),
            ("host_memory_peak_bytes", _AMOUNT, True),
        ),
        (("cluster", "job"), ("at",), ("uid", "script_key")),
    ),
}


def upgrade() -> None:
    """Take the step."""
    inspector = sa.inspect(op.get_bind())
    there = set(inspector.get_table_names())
    for table, (columns, indexes) in _TABLES.items():
        if table not in there:
            op.create_table(
                table,
                sa.Column("id", _BIG, nullable=False, autoincrement=True),
                sa.Column("key", _WORD, nullable=False),
                *(sa.Column(name, kind, nullable=empty) for name, kind, empty in columns),
                sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
                sa.UniqueConstraint("key", name=f"uq_{table}_key"),
            )
        made = {index["name"] for index in inspector.get_indexes(table)} if table in there else set()
        for names in indexes:
            index = f"ix_{table}_{'_'.join(names)}"
            if index not in made:
                op.create_index(index, table, list(names))


def downgrade() -> None:
    """Take it back."""
    for table in reversed(_TABLES):
        op.drop_table(table)
