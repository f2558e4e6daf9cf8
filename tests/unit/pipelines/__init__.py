"""Data pipelines, as far as they need no Spark."""
