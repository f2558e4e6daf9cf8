"""PySpark jobs on sink logs: what `agiledart analytics list|run` offers, and what the demo shows at its end.

Each job is a function from DataFrames to a DataFrame, so that it runs on a log, on Parquet files and in tests alike. May import
the public `agiledart`, the kernel and pyspark (inside functions: the list of jobs needs no Spark).
"""
