"""The store's tables; `migrations/` makes and changes them."""

from sqlalchemy import Boolean, Column, ForeignKey, Integer, MetaData, String, Table, Text

metadata = MetaData()

revisions = Table(
    "revisions",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("at", String(32), nullable=False),
    Column("actor", String(128), nullable=False),
    Column("note", Text, nullable=False),
    Column("services", Text, nullable=False),
)
"""All services as they were from that moment on: a revision is whole, or it is not there."""

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", String(32), nullable=False),
    Column("actor", String(128), nullable=False),
    Column("kind", String(64), nullable=False),
    Column("service", String(128), nullable=False, index=True),
    Column("text", Text, nullable=False),
    Column("data", Text, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("project", String(128), nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("created_at", String(32), nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("user", String(128), ForeignKey("users.name", ondelete="CASCADE"), nullable=False),
    Column("label", String(128), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("created_at", String(32), nullable=False),
    Column("expires_at", String(32), nullable=False),
)
"""Only the SHA-256 of a token is kept; it has 192 bits of chance."""

settings = Table(
    "settings",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)
