"""A process with one session of a pipeline project: `python -m tests.spark.pipeline_driver PROJECT`.

Each line of stdin is a JSON list: a verb and its arguments. Each answer is a line of JSON on stdout.
"""

import json
import os
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from agiledart.spark import follow
from agiledart_analytics.job_run import spark_errors
from agiledart_analytics.printable import printable
from agiledart_kernel.errors import AgileDartError
from agiledart_pipelines.backfill import replace_day
from agiledart_pipelines.file_merging import merge_small_files
from agiledart_pipelines.logs import time_field_of
from agiledart_pipelines.project import DEFAULT_DATABASE, open_project
from agiledart_pipelines.runner import PipelineRunner
from agiledart_pipelines.session import open_session


def answer(runner: PipelineRunner, verb: str, arguments: list[str]) -> Any:
    session, project = runner.session, runner.project
    if verb == "update":
        return runner.update(arguments).document()
    if verb == "backfill":
        day = date.fromisoformat(arguments[0])
        rows = replace_day(session, project, runner.definitions(), day, time_field_of(project.root))
        runner.update()
        return rows
    if verb == "merge":
        tables = runner.definitions().streaming_tables
        merged = merge_small_files(project, tables, most=1)
        for table in merged:
            session.catalog.refreshTable(f"`{project.database}`.`{table}`")
        return merged
    if verb == "publish":
        return publish(runner, *arguments)
    if verb == "export":
        runner.export(arguments[0], arguments[1])
        return None
    assert verb == "sql"
    session.catalog.setCurrentDatabase(project.database)
    try:
        return [printable(tuple(row)) for row in session.sql(arguments[0]).collect()]
    finally:
        session.catalog.setCurrentDatabase(DEFAULT_DATABASE)


def publish(runner: PipelineRunner, token: str) -> None:
    """Bring the rows of silver that the feed `model` lacks to it, by a query of its own."""
    session, project = runner.session, runner.project
    rows = session.readStream.table(f"`{project.database}`.`silver`")
    writer = rows.selectExpr("start_cell as route", "double(seconds) as seconds").writeStream.format("agiledart")
    writer = writer.options(feed="model", tokenFile=token, agentTimeout="120s")
    writer = writer.option("checkpointLocation", str(project.state / "feed-checkpoint")).trigger(availableNow=True)
    with spark_errors():
        follow(writer.start())


def main(folder: str) -> None:
    project = open_project(Path(folder))
    os.chdir(project.root)
    with project.locked(), open_session(project, short=True) as session:
        runner = PipelineRunner(session, project, wall_clock=time.time)
        for line in sys.stdin:
            verb, *arguments = json.loads(line)
            try:
                told = {"answer": answer(runner, verb, arguments)}
            except AgileDartError as error:
                told = {"error": str(error)}
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()
        runner.close()


if __name__ == "__main__":
    main(sys.argv[1])
