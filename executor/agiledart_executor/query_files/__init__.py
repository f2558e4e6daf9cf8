"""Applications in SQL or YAML: they become Python source, which travels as a user's own code does (decision 0038)."""
