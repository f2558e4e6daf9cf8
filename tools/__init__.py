"""Tools for working on the project; not shipped."""
