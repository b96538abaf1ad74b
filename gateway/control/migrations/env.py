"""Alembic's entry: the caller brings the connection."""

from alembic import context

from gateway.control.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
