"""Runs migrations on the connection, and in the transaction, that the store hands over."""

from alembic import context

from earshift.store.tables import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
