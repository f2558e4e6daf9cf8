"""Databases, through SQLAlchemy (extra `[sql]`)."""
