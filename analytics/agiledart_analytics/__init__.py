"""PySpark jobs on sink logs, for `agiledart analytics list|run` and for the end of the demo.

Each job is a function from DataFrames to a DataFrame, so that it runs on a log, on Parquet files and in tests. May import
the public `agiledart`, the kernel and pyspark (inside functions: the list of jobs needs no Spark).
"""
