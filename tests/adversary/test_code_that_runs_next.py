"""Users' code changes nothing that runs next: Python's folders, the user's site, the agent's modules; it reads no token."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agiledart_agent.executors.isolated_python import isolated_command, isolated_environment, module_folders
from agiledart_executor.user_code import landlock
from tests.adversary.findings import probe, twin

needs_landlock = pytest.mark.skipif(
    not landlock.is_there(), reason="the kernel has no Landlock: users' code is not confined here"
)

CONFINED = """
import json, os, sys
from pathlib import Path
from agiledart_executor.user_code.confinement import Confinement

state, code, deeds = Path(sys.argv[1]), [Path(text) for text in json.loads(sys.argv[2])], json.loads(sys.argv[3])
closed = Confinement([state], [state / "work"], *([code] if code else []))
assert closed.enforce()
outcomes = []
for deed, path in deeds:
    try:
        if deed == "write":
            Path(path).write_text("import os")
        elif deed == "read":
            Path(path).read_bytes()
        elif deed == "folder":
            os.mkdir(path)
        elif deed == "open":
            os.close(os.open(path, os.O_RDWR))
        outcomes.append("done")
    except OSError as error:
        outcomes.append("refused" if error.errno in (1, 13, 18) else str(error))
print(json.dumps(outcomes))
"""


def tried(state: Path, code: list[Path], *deeds: tuple[str, Path], home: Path | None = None) -> list[str]:
    """Return what becomes of deeds in a confined process: `done` or `refused`."""
    (state / "work").mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **({"HOME": str(home)} if home is not None else {})}
    words = [
        str(state),
        json.dumps([str(path) for path in code]),
        json.dumps([(deed, str(path)) for deed, path in deeds]),
    ]
    ran = subprocess.run(
        [sys.executable, "-c", CONFINED, *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    outcomes: list[str] = json.loads(ran.stdout)
    return outcomes


@probe(1)
@needs_landlock
def test_code_writes_nothing_into_the_folders_of_the_interpreter(tmp_path: Path) -> None:
    import agiledart_kernel

    site_packages = next(Path(text) for text in sys.path if text.endswith("site-packages"))
    targets = [site_packages, Path(os.__file__).parent, Path(agiledart_kernel.__file__).parent]
    changeable = [target / "adversary_probe.pth" for target in targets if os.access(target, os.W_OK)]
    if not changeable:
        pytest.skip("this user cannot write in Python's folders, confined or not")
    try:
        outcomes = tried(tmp_path / "state", [], *(("write", path) for path in changeable))
    finally:
        for path in changeable:
            path.unlink(missing_ok=True)
    assert outcomes == ["refused"] * len(changeable)


@probe(1)
@needs_landlock
def test_code_makes_no_user_site_that_the_agent_would_load(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".local" / "lib").mkdir(parents=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    outcomes = tried(tmp_path / "elsewhere" / "state", [], ("folder", home / ".local" / "lib" / version), home=home)
    assert outcomes == ["refused"]


@probe(1)
@needs_landlock
def test_a_folder_that_holds_python_is_read_and_its_other_folders_are_written(tmp_path: Path) -> None:
    clone, python = tmp_path / "clone", tmp_path / "clone" / ".venv"
    (clone / "out").mkdir(parents=True)
    python.mkdir()
    (python / "module.py").write_text("x")
    (clone / "in.csv").write_text("1")
    outcomes = tried(
        tmp_path / "elsewhere" / "state", [python],
        ("read", python / "module.py"), ("write", python / "module.py"), ("write", python / "evil.pth"),
        ("folder", python / "evil"), ("read", clone / "in.csv"), ("write", clone / "in.csv"), ("write", clone / "out" / "rows.csv"),
    )  # fmt: skip
    assert outcomes == ["done", "refused", "refused", "refused", "done", "done", "done"]


@twin(1)
@needs_landlock
def test_code_reads_its_modules_and_writes_its_own_folder_and_others(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    outcomes = tried(
        tmp_path / "state", [],
        ("read", Path(os.__file__)), ("write", tmp_path / "state" / "work" / "mine"), ("write", tmp_path / "data" / "rows"),
    )  # fmt: skip
    assert outcomes == ["done", "done", "done"]


@probe(10)
@needs_landlock
def test_code_reads_no_token_beside_the_state_directory(tmp_path: Path) -> None:
    token = tmp_path / "agent.token"
    token.write_text("adart1" + "a" * 400 + "\n")
    token.chmod(0o600)
    (tmp_path / "notes.txt").write_text("adart1 is how tokens begin")
    assert tried(tmp_path / "state", [], ("read", token), ("read", tmp_path / "notes.txt")) == ["refused", "done"]


@twin(10)
@needs_landlock
def test_code_reads_other_private_files_beside_the_state_directory(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    (tmp_path / "model.bin").chmod(0o600)
    assert tried(tmp_path / "state", [], ("read", tmp_path / "model.bin")) == ["done"]


@probe(19)
@needs_landlock
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can open these files at all")
def test_code_of_root_opens_no_disk_and_no_setting_of_the_kernel(tmp_path: Path) -> None:
    disks = [path for path in Path("/dev").iterdir() if path.is_block_device()][:2]
    deeds = [("open", path) for path in (Path("/proc/sys/kernel/core_pattern"), *disks)]
    assert set(tried(tmp_path / "state", [], *deeds)) == {"refused"}


@twin(19)
@needs_landlock
def test_code_uses_the_devices_of_every_process(tmp_path: Path) -> None:
    deeds = [("open", Path("/dev/null")), ("read", Path("/proc/self/status")), ("read", Path("/proc/meminfo"))]
    assert tried(tmp_path / "state", [], *deeds) == ["done", "done", "done"]


@probe(1)
def test_an_executor_loads_no_module_of_its_working_directory_or_the_users_site(tmp_path: Path) -> None:
    user_base = tmp_path / "base"
    site = user_base / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    for folder in (site, tmp_path / "work"):
        folder.mkdir(exist_ok=True)
        (folder / "planted.py").write_text("raise SystemExit('planted')")
    (site / "planted.pth").write_text("import sys; sys.exit('planted')\n")
    inherited = {**os.environ, "PYTHONUSERBASE": str(user_base), "PYTHONPATH": str(tmp_path / "work")}
    ran = subprocess.run(
        [*isolated_command("planted")], env=isolated_environment(inherited), cwd=tmp_path / "work", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "No module named planted" in ran.stderr


@twin(1)
def test_an_executor_loads_the_agents_modules(tmp_path: Path) -> None:
    folders = module_folders()
    assert any((Path(folder) / "agiledart_executor").is_dir() for folder in folders)
    ran = subprocess.run(
        [*isolated_command("agiledart_executor.finalising"), "--help"], env=isolated_environment(os.environ), cwd=tmp_path,
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "No module named" not in ran.stderr
