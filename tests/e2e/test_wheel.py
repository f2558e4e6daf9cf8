"""The package that users install: the wheel holds every package and nothing else, and works in an empty environment."""

import json
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.stranger import BUSY, Background
from tests.ports import lasting_port

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True,
        capture_output=True,
    )  # fmt: skip
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_every_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if ".dist-info/" not in name}
    wanted = {
        str(path.relative_to(package.parent))
        for package in (*ROOT.glob("*/agiledart*"), *ROOT.glob("*/pyspark_agiledart"))
        if package.is_dir()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == wanted
    assert not any(name.startswith(("tests", "docs", "tools", "benchmarks")) for name in names)


def test_two_builds_are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True,
        capture_output=True,
    )  # fmt: skip
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def _installed(wheel: Path, home: Path, extra: str = "") -> Path:
    """The folder of commands of a new environment that holds the wheel; skips where there is no package index."""
    venv.create(home, with_pip=True)
    done = subprocess.run(
        [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}{extra}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip()[-200:]}")
    return home / "bin"


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    command = _installed(wheel, tmp_path / "env") / "agiledart"
    ran = subprocess.run(
        [command, "run", "agiledart_examples.debs2015:frequent_routes", "--set", "trips=taxi:?count=500",
         "--set", "report=csv:out.csv"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "out.csv").stat().st_size > 0
    ran = subprocess.run(
        [command, "demo", "--agents", "2", "--duration", "2", "--results", "r", "-o", "json"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    skipped = json.loads(ran.stdout)["spark"]["skipped"]
    assert skipped.startswith("pyspark, pyarrow, pandas not installed:")
    assert skipped.endswith("pip install 'agiledart[spark]'")


COPY = """
from agiledart.spark import spark_session
spark = spark_session()
trips = spark.readStream.format("agiledart").option("sink", "clean-trips").option("tokenFile", "reader.token").load()

def keep(batch, number):
    batch.write.mode("overwrite").parquet(f"trips/batch={number}")

query = (
    trips.writeStream.foreachBatch(keep).option("checkpointLocation", "trips-checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
print("rows", spark.read.parquet("trips").count())
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A home whose path is as short as those of people: the control socket below it may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="adh-", dir="/tmp") as name:
        yield Path(name)


@pytest.mark.needs_spark
@pytest.mark.soak  # downloads and installs all of Spark
@pytest.mark.timeout(1800)
def test_a_new_user_succeeds_within_half_an_hour(wheel: Path, tmp_path: Path, home: Path) -> None:
    """Agent, submit, top, tap, metrics, the log with Spark twice (the second time goes on where the first ended), stop, restart."""
    binaries = _installed(wheel, tmp_path / "env", "[spark]")
    links, metrics = (f"127.0.0.1:{lasting_port()}" for _ in range(2))
    environment = {
        "PATH": f"{binaries}:/usr/bin:/bin",
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "AGILEDART_AGENT__LISTEN": links,
        "AGILEDART_AGENT__METRICS": metrics,
        **({"AGILEDART_AGENT__ALLOW_ROOT": "true"} if os.geteuid() == 0 else {}),  # tests may run as root
    }

    def shell(line: str, tries: int = 3) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if BUSY in done.stderr and tries > 1:
            return shell(line, tries - 1)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def agent() -> Background:
        begun = Background(["agiledart", "agent"], tmp_path, environment, is_terminal=True)
        begun.wait_for(re.compile(r"metrics http"), 120)
        return begun

    running = agent()
    try:
        shell('agiledart submit agiledart_examples.clean_trips:clean_trips --set "trips=taxi:?speed=300"')
        assert "clean-trips v1" in shell("agiledart top --once")
        assert len(shell("agiledart tap clean-trips clean --limit 3").splitlines()) == 3
        assert "agiledart_build_info{" in shell(f"curl -s http://{metrics}/metrics")
        shell("agiledart token create --role reader --scope sink:clean-trips --output reader.token")
        (tmp_path / "copy_trips.py").write_text(COPY)
        first = int(shell("python copy_trips.py").split()[-1])
        assert first > 0
        shell("agiledart stop clean-trips")
        assert running.stop() in (0, 130)
        running = agent()  # the log outlives its application and its agent
        assert int(shell("python copy_trips.py").split()[-1]) >= first
        found = json.loads(shell("agiledart analytics run busiest-routes --token-file reader.token -o json"))
        assert found["rows"]
    finally:
        running.stop()
