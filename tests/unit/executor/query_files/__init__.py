"""Applications in SQL and YAML."""
