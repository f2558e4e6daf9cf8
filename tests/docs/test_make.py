"""`make install`: the choice about Spark is carried out, remembered and undone.

A set-up that writes down its arguments stands in.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

STANDS_IN = """#!/bin/sh
mkdir -p "$1"
echo "$2" >> asked
if [ "$2" = no ]; then touch "$1/.without-spark"; else rm -f "$1/.without-spark"; fi
"""

HERE = {
    name: value
    for name, value in os.environ.items()
    if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SPARK", "ARGS")
}
"""The tests themselves run under make, whose words must not reach these."""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "tools" / "constraints.txt", tmp_path / "tools")
    script = tmp_path / "tools" / "setup.sh"
    script.write_text(STANDS_IN)
    script.chmod(0o755)
    return tmp_path


def _asked(clone: Path, *words: str) -> list[str]:
    """Arguments of the set-up, in order, after one more `make install`."""
    subprocess.run(["make", "install", *words], cwd=clone, env=HERE, check=True, capture_output=True)
    return (clone / "asked").read_text().split()


def test_spark_is_installed_once_unless_declined(clone: Path) -> None:
    assert _asked(clone) == ["yes"]
    assert _asked(clone) == ["yes"]
    assert _asked(clone, "SPARK=no") == ["yes"], "an existing installation stays"


def test_without_spark_holds_until_spark_is_requested(clone: Path) -> None:
    assert _asked(clone, "SPARK=no") == ["no"]
    assert _asked(clone) == ["no"]
    assert _asked(clone, "SPARK=yes") == ["no", "yes"]
    assert _asked(clone) == ["no", "yes"]


def test_changed_requirements_are_detected_for_each_choice(clone: Path) -> None:
    assert _asked(clone, "SPARK=no") == ["no"]
    stamp = clone / ".venv" / ".installed"
    later = stamp.stat().st_mtime_ns + 1_000_000_000
    os.utime(clone / "pyproject.toml", ns=(later, later))
    assert _asked(clone) == ["no", "no"]


@pytest.mark.parametrize(
    ("words", "wanted"), [((), "demo"), (("SPARK=no",), "demo --no-spark"), (("ARGS=-o json",), "demo -o json")]
)
def test_the_demo_omits_spark_when_declined(clone: Path, words: tuple[str, ...], wanted: str) -> None:
    _asked(clone)
    done = subprocess.run(
        ["make", "-n", "demo", *words], cwd=clone, env=HERE, check=True, capture_output=True, text=True
    )
    assert " ".join(done.stdout.split()).endswith(wanted)


def test_a_value_other_than_yes_or_no_is_refused(tmp_path: Path) -> None:
    setup = ROOT / "tools" / "setup.sh"
    done = subprocess.run([setup, ".venv", "perhaps"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "SPARK=perhaps: it is yes or no.\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("has_spark", "word", "said"),
    [
        (True, "yes", "Bringing .venv (Python 3.12.0) up to date, as pyproject.toml says …"),
        (False, "no", "Bringing .venv (Python 3.12.0) up to date, as pyproject.toml says …"),
        (False, "yes", "Adding Spark to .venv (Python 3.12.0; downloads about "),
    ],
)
def test_an_existing_environment_is_kept_and_reported(tmp_path: Path, has_spark: bool, word: str, said: str) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f"""#!/bin/sh
case "$1" in
    --version) echo "Python 3.12.0" ;;
    -c) exit {0 if has_spark else 1} ;;
esac
"""
    )
    python.chmod(0o755)
    setup = ROOT / "tools" / "setup.sh"
    done = subprocess.run([setup, ".venv", word], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.startswith(said)
    assert python.read_text().startswith("#!/bin/sh"), "left as it was"
