"""Wheel and sdist in dist/, built twice to the same bytes, with a bill of materials; the size of a core install is checked.

python -m tools.packages [OUT]
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tools.sbom import bill_of_materials

MAX_CORE_MB = 95


def build(out: Path) -> Path:
    """Build twice. Return the wheel. Raises SystemExit: the two differ."""
    with tempfile.TemporaryDirectory() as again:
        for folder in (out, Path(again)):
            subprocess.run(
                [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], check=True, capture_output=True
            )
        for second in sorted(Path(again).iterdir()):
            first = out / second.name
            if _digest(first) != _digest(second):
                raise SystemExit(f"{second.name} is not reproducible: two builds differ")
            print(f"{first}  sha256 {_digest(first)}, the same twice")
    (wheel,) = [path for path in out.glob("*.whl") if (Path(again) / path.name).name == path.name]
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel without extras in a new environment without pip. Return its `site-packages`."""
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", "--disable-pip-version-check", str(wheel)], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    return site


def disk_mb(folder: Path) -> float:
    """Return the disk space of a folder, MB."""
    blocks = sum(path.lstat().st_blocks for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return blocks * 512 / 1e6


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(out: Path) -> None:
    """Build, measure and describe."""
    commit = subprocess.run(["git", "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False)
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit.stdout.strip() or "0")
    out.mkdir(exist_ok=True)
    wheel = build(out)
    with tempfile.TemporaryDirectory() as folder:
        site = install(wheel, Path(folder))
        size = disk_mb(Path(folder))
        print(f"a core install takes {size:.1f} MB (at most {MAX_CORE_MB})")
        bill = out / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
        bill.write_text(json.dumps(bill_of_materials(site), indent=1) + "\n")
        print(bill)
    if size > MAX_CORE_MB:
        raise SystemExit(f"a core install takes more than {MAX_CORE_MB} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
