"""Other engines, each in an environment of its own under a folder that is not committed; installed on first use.

    python -m benchmarks.engines.setup [NAME …]

The folder is `.benchmarks/engines` of this checkout, or `AGILEDART_ENGINES`. An engine that cannot be installed here
is named with the reason and left out of the comparison.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = Path(os.environ.get("AGILEDART_ENGINES", ROOT / ".benchmarks" / "engines")).resolve()

ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "columnar": ("numpy==2.4.6", "pyarrow==26.0.1", "polars==2.1.0"),
    "bytewax": ("bytewax==0.21.1",),
    "flink": ("apache-flink-libraries==2.3.0",),
    "zenoh": ("eclipse-zenoh==1.10.2", "msgspec==0.22.0"),
    "dora": ("dora-rs==1.1.0", "dora-rs-cli==1.1.0", "msgspec==0.22.0"),
    "profile": ("py-spy==0.4.3",),
}


class MissingError(Exception):
    """An environment is not available here; the message says why."""


def python_of(name: str) -> Path:
    """The Python of an environment."""
    return FOLDER / name / "bin" / "python"


def prepare(name: str) -> None:
    """Make an environment ready; raises `MissingError`."""
    marker = FOLDER / name / "installed.txt"
    wanted = "\n".join(ENVIRONMENTS[name])
    if not marker.exists() or marker.read_text() != wanted:
        _install(name, wanted, marker)
    if name == "flink":
        _compile()


def _install(name: str, wanted: str, marker: Path) -> None:
    print(f"installing {', '.join(wanted.splitlines())} …", file=sys.stderr, flush=True)
    began = time.monotonic()
    marker.parent.mkdir(parents=True, exist_ok=True)
    steps = [[sys.executable, "-m", "venv", str(FOLDER / name)]] if not python_of(name).exists() else []
    pip = [str(python_of(name)), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    for command in [*steps, [*pip, *wanted.splitlines()]]:
        with (FOLDER / f"{name}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            while True:
                try:
                    code = process.wait(10)
                    break
                except subprocess.TimeoutExpired:
                    print(f"  {time.monotonic() - began:4.0f} s  {name}", file=sys.stderr, flush=True)
        if code:
            last = (FOLDER / f"{name}.log").read_text().strip().splitlines()[-1:]
            raise MissingError(f"{name} could not be installed: {' '.join(last)}")
    marker.write_text(wanted)


def flink_classpath() -> str:
    """The jars of Flink and our compiled jobs."""
    jars = sorted(FOLDER.glob("flink/lib/python3*/site-packages/pyflink/lib/*.jar"))
    if not jars:
        raise MissingError(f"no jars of Flink under {FOLDER / 'flink'}")
    return ":".join([str(FOLDER / "flink" / "classes"), *map(str, jars)])


def _compile() -> None:
    sources, classes = sorted((HERE / "java").glob("*.java")), FOLDER / "flink" / "classes"
    if shutil.which("javac") is None or shutil.which("java") is None:
        raise MissingError("Flink needs java and javac, 11 or later")
    if all(_is_newer(classes / f"{source.stem}.class", source) for source in sources):
        return
    classes.mkdir(exist_ok=True)
    done = subprocess.run(
        ["javac", "-cp", flink_classpath(), "-d", str(classes), *map(str, sources)], capture_output=True, text=True
    )
    if done.returncode:
        raise MissingError(f"Flink's jobs do not compile: {done.stderr.strip().splitlines()[:1]}")


def _is_newer(compiled: Path, source: Path) -> bool:
    return compiled.exists() and compiled.stat().st_mtime > source.stat().st_mtime


if __name__ == "__main__":
    for chosen in sys.argv[1:] or list(ENVIRONMENTS):
        try:
            prepare(chosen)
            print(f"{chosen}: ready")
        except MissingError as error:
            print(f"{chosen}: {error}")
