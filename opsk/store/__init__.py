"""Stores records in SQLite, PostgreSQL or MariaDB; nothing else imports SQLModel, SQLAlchemy or Alembic.

It requires ``opsk[store]``. A table is a class in ``tables``; its first form and every change of it is a file in
``migrations/versions``. Each kind of record has a module that writes and queries it (``jobs``, ``measured``, ...). All
programs write through ``writing``; rows stay in this package, and callers exchange frozen dataclasses with it.
"""
