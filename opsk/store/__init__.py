"""What does opsk remember? Rows in SQLite, PostgreSQL or MariaDB. Nothing else imports SQLModel, SQLAlchemy or Alembic.

Needs ``opsk[store]``. A table is a class in ``tables``; its first form and every change of it is a file in
``migrations/versions``. What is kept and asked of each kind is a module of its own: ``jobs``, ``measured``, ``remaps``.
Everybody writes through ``writing``; rows stay in here, what goes in and out are frozen dataclasses.
"""
