"""What users install: the wheel holds every package and nothing else, and works in an empty environment."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]


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


def test_holds_every_package_and_nothing_else(wheel: Path):
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


def test_works_in_an_empty_environment(wheel: Path, tmp_path: Path):
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if installed.returncode:
        pytest.skip(f"the package index cannot be reached: {installed.stderr.strip()[-200:]}")
    command = home / "bin" / "agiledart"
    ran = subprocess.run(
        [command, "run", "agiledart_examples.debs2015:frequent_routes", "--set", "trips=taxi:?count=500",
         "--set", "report=csv:out.csv"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "out.csv").stat().st_size > 0
    ran = subprocess.run(
        [command, "demo", "--no-spark", "--agents", "2", "--duration", "2", "--results", "r", "-o", "json"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
