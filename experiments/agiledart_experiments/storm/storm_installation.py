"""Apache Storm's jars from Maven Central and the compiled topologies, in a folder of the user's cache; made on first use."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agiledart_kernel.errors import ConfigurationError, OperationFailed

VERSION: Final = "2.6.4"
HERE: Final = Path(__file__).resolve().parent
SOURCE: Final = HERE / "StormApplications.java"
BUILD_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class StormInstallation:
    """Files and program that start a node of Storm.

    Attributes:
        jars: folder of Storm and its dependencies.
        topologies: jar of the compiled applications.
        java: the virtual machine.
    """

    jars: Path
    topologies: Path
    java: str


def storm_installation(progress: Callable[[str], None]) -> StormInstallation:
    """Return the installation; download and compile what is missing.

    Raises:
        ConfigurationError: a program is missing here.
        OperationFailed: the download or the compilation failed.
    """
    home = os.environ.get("JAVA_HOME", "")
    programs = {name: _program(name, home) for name in ("java", "javac", "jar")}
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agiledart" / f"storm-{VERSION}"
    jars, topologies = cache / "jars", cache / "topologies.jar"
    if not (cache / "complete").exists():
        progress(f"Storm {VERSION} is downloaded from Maven Central, about 100 MB")
        options = (f"-DoutputDirectory={jars}", "-DincludeScope=runtime")
        _run(_program("mvn", ""), "-q", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies", *options)
        (cache / "complete").touch()
    if not topologies.exists() or topologies.stat().st_mtime < SOURCE.stat().st_mtime:
        classes = cache / "classes"
        shutil.rmtree(classes, ignore_errors=True)
        _run(programs["javac"], "-nowarn", "-d", str(classes), "-cp", f"{jars}/*", str(SOURCE))
        _run(programs["jar"], "cf", str(topologies), "-C", str(classes), ".")
    return StormInstallation(jars, topologies, programs["java"])


def _program(name: str, home: str) -> str:
    path = str(Path(home) / "bin" / name) if home else shutil.which(name)
    if path is None or not Path(path).exists():
        raise ConfigurationError(
            f"--beside storm needs {name}: install a JDK (11 or later) and Maven (Debian: default-jdk-headless maven)"
        )
    return path


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    if done.returncode:
        text = (done.stdout + done.stderr).strip()[-2000:]
        raise OperationFailed(f"{Path(words[0]).name} failed with exit code {done.returncode}:\n{text}")
