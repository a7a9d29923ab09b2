"""Alembic's scripts; `database.migrate` runs them at start, under a lock."""
