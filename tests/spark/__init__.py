"""The PySpark source, sessions and analytics; most of it without a JVM."""
