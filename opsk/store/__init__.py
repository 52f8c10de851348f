"""What does opsk remember? Rows in SQLite, PostgreSQL or MariaDB. Nothing else imports SQLModel, SQLAlchemy or Alembic.

Needs ``opsk[store]``. A table is a class in ``tables``; its first form and every change of it is a file in
``migrations/versions``; what is asked of it is a module of its own beside ``snapshots``.
"""
