"""A Spark driver of its own that copies a log into Parquet: `python -m tests.spark.driver FOLDER TOKEN SECONDS ROWS`."""

import sys
from pathlib import Path

from agiledart.spark import follow, spark_session
from agiledart_analytics.running import copy_live


def main(folder: str, token: str, seconds: str, rows: str) -> None:
    session = spark_session("driver", log_file=f"{folder}/spark.log")
    query = copy_live(
        session,
        {"sink": "clean-trips", "tokenFile": token, "maxRowsPerBatch": rows},
        Path(folder) / "copy",
        Path(folder) / "checkpoint",
        float(seconds),
    )
    batches, read = follow(query)
    print(f"{batches} {read}")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
