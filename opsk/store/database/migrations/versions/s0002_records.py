"""Creates the tables of clusters, jobs, advice, measured intervals, failures, remaps with their journals, and reports.

Tables that exist already are not changed: MariaDB cannot roll back a migration that was interrupted.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "s0002"
down_revision: str | None = "s0001"
branch_labels: str | None = None
depends_on: str | None = None

_EXACT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_MARIADB = ("mysql", "mariadb")
_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *_MARIADB)
_BLOB = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *_MARIADB)
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(**_EXACT), *_MARIADB)
_AMOUNT: sa.types.TypeEngine[float] = sa.Double()


def _words(characters: int) -> sa.types.TypeEngine[str]:
    return sa.String(characters).with_variant(mysql.VARCHAR(characters, **_EXACT), *_MARIADB)


_NAME, _WORD = _words(255), _words(64)

_TABLES: dict[str, tuple[tuple[tuple[str, Any, bool], ...], tuple[tuple[str, ...], ...]]] = {
    "clusters": (
        (
            ("cluster", _NAME, False),
            ("since", _TIME, False),
            ("at", _TIME, False),
            ("slurm_version", _WORD, True),
            ("nodes", _BIG, True),
            ("gpus", _BIG, True),
        ),
        (),
    ),
    "jobs": (
        (
            ("cluster", _NAME, False),
            ("job", _WORD, False),
            ("submitted_at", _TIME, False),
            ("at", _TIME, False),
            ("sluid", _WORD, True),
            ("user", _NAME, True),
            ("account", _NAME, True),
            ("partition", _NAME, True),
            ("qos", _NAME, True),
            ("name", _NAME, True),
            ("state", _WORD, True),
            ("exit_code", _WORD, True),
            ("started_at", _TIME, True),
            ("ended_at", _TIME, True),
            ("node_list", _TEXT, True),
            ("nodes", _BIG, True),
            ("gpus", _BIG, True),
            ("script_hash", _WORD, True),
            ("fabric_hash", _WORD, True),
            ("framework", _WORD, True),
            ("model", _NAME, True),
            ("verdict", _WORD, True),
            ("predicted_step_s", _AMOUNT, True),
            ("predicted_tokens_per_s_per_gpu", _AMOUNT, True),
            ("predicted_tflops_per_gpu", _AMOUNT, True),
            ("predicted_mfu", _AMOUNT, True),
            ("predicted_memory_bytes", _AMOUNT, True),
            ("plan", _TEXT, True),
            ("prediction", _TEXT, True),
        ),
        (("cluster", "job"), ("submitted_at",), ("script_hash",)),
    ),
    "advice": (
        (
            ("cluster", _NAME, False),
            ("at", _TIME, False),
            ("uid", _BIG, False),
            ("user", _NAME, True),
            ("script_hash", _WORD, False),
            ("job", _WORD, True),
            ("verdict", _WORD, False),
            ("action", _WORD, True),
            ("shown", sa.Boolean(create_constraint=False), False),
            ("document", _TEXT, True),
        ),
        (("cluster", "at"), ("script_hash",)),
    ),
    "measured_intervals": (
        (
            ("cluster", _NAME, False),
            ("job", _WORD, False),
            ("source", _WORD, False),
            ("from_at", _TIME, False),
            ("until_at", _TIME, False),
            ("steps", _BIG, True),
            ("first_iteration", _BIG, True),
            ("last_iteration", _BIG, True),
            ("step_s", _AMOUNT, True),
            ("tokens_per_s", _AMOUNT, True),
            ("tokens_per_s_per_gpu", _AMOUNT, True),
            ("tflops_per_gpu", _AMOUNT, True),
            ("mfu", _AMOUNT, True),
            ("memory_peak_bytes", _BIG, True),
            ("loss", _AMOUNT, True),
        ),
        (("cluster", "job", "from_at"), ("until_at",)),
    ),
    "failures": (
        (
            ("cluster", _NAME, False),
            ("at", _TIME, False),
            ("failure", _WORD, False),
            ("what", _NAME, False),
            ("source", _WORD, False),
            ("node", _NAME, True),
            ("job", _WORD, True),
            ("code", _WORD, True),
            ("action", _WORD, True),
            ("text", _TEXT, True),
            ("cleared_at", _TIME, True),
            ("document", _TEXT, True),
        ),
        (("cluster", "at"), ("cluster", "job")),
    ),
    "remaps": (
        (
            ("cluster", _NAME, False),
            ("remap", _WORD, False),
            ("at", _TIME, False),
            ("by", _NAME, False),
            ("job", _WORD, False),
            ("failed", _NAME, False),
            ("option", _WORD, False),
            ("title", _TEXT, True),
            ("world", _WORD, True),
            ("document", _TEXT, True),
            ("state", _WORD, False),
            ("state_at", _TIME, False),
            ("state_by", _NAME, False),
        ),
        (("cluster", "at"), ("cluster", "job")),
    ),
    "remap_moves": (
        (
            ("cluster", _NAME, False),
            ("remap", _WORD, False),
            ("at", _TIME, False),
            ("state", _WORD, False),
            ("by", _NAME, False),
            ("text", _TEXT, True),
        ),
        (("cluster", "remap"),),
    ),
    "remap_steps": (
        (
            ("cluster", _NAME, False),
            ("remap", _WORD, False),
            ("number", sa.Integer(), False),
            ("state", _WORD, False),
            ("at", _TIME, False),
            ("command", _TEXT, False),
            ("said", _TEXT, True),
        ),
        (("cluster", "remap"),),
    ),
    "reports": (
        (
            ("cluster", _NAME, False),
            ("job", _WORD, False),
            ("at", _TIME, False),
            ("report", _WORD, False),
            ("form", _WORD, False),
            ("title", _TEXT, True),
            ("root_cause", _WORD, True),
            ("content", _BLOB, False),
        ),
        (("cluster", "job"), ("at",)),
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
    if op.get_bind().dialect.name in _MARIADB:
        # The first step left both to the server: names that differ in case were one, and seconds had no parts.
        op.execute("ALTER TABLE topology_snapshots CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        for name in ("taken_at", "last_seen_at"):
            op.alter_column("topology_snapshots", name, type_=mysql.DATETIME(fsp=6), existing_nullable=False)


def downgrade() -> None:
    """Take it back."""
    for table in reversed(_TABLES):
        op.drop_table(table)
