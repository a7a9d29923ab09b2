"""Alembic's entry: runs the migrations inside the transaction that the caller opened and locked."""

from alembic import context

from bench_proxy.ledger.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
