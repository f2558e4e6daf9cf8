"""Tables of databases as source and sink, through SQLAlchemy (extra `[sql]`), which nothing outside this room imports."""
