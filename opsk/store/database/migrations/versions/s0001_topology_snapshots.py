"""Creates the table of fabric snapshots."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "s0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Take the step."""
    op.create_table(
        "topology_snapshots",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("taken_at", sa.DateTime(), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(), nullable=False),
        sa.Column("source", sa.String(length=255), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("switches", sa.Integer(), nullable=False),
        sa.Column("hcas", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("cables", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_topology_snapshots"),
    )
    op.create_index("ix_topology_snapshots_cluster_last_seen_at", "topology_snapshots", ["cluster", "last_seen_at"])
    op.create_index("ix_topology_snapshots_hash", "topology_snapshots", ["hash"])


def downgrade() -> None:
    """Take it back."""
    op.drop_index("ix_topology_snapshots_hash", table_name="topology_snapshots")
    op.drop_index("ix_topology_snapshots_cluster_last_seen_at", table_name="topology_snapshots")
    op.drop_table("topology_snapshots")
