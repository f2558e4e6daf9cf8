"""Five kinds of damage to any file of a state directory, and a restart afterwards as a user would do it."""

import re
import shutil
from glob import glob
from pathlib import Path
from typing import Final

from tests.e2e.mesh import AgentProcess

from benchmarks.faults.draws import Draw
from benchmarks.faults.lab import FaultLab, waited

DAMAGES: Final = ("flipped", "empty", "half", "missing", "another's")

ROWS: Final = ".segment"
"""Suffix of row files, which have no replica. Tests of the log reader check that it reports damaged rows and never returns them."""

REMEDY: Final = re.compile(r"\brm ((?:/\S+ ?)+)")
UP_SECONDS: Final = 60.0


def files_of(agent: AgentProcess) -> list[Path]:
    """Return all files that a node keeps, in order of name."""
    paths = (path for path in sorted(agent.state_dir.rglob("*")) if path.is_file() and not path.is_symlink())
    return [path for path in paths if path.suffix != ROWS and path.name != "ballast"]


def damage(path: Path, kind: str, bit: int, other: Path) -> None:
    """Damage a file.

    Args:
        kind: one of `DAMAGES`.
        bit: number of the bit that is inverted.
        other: the same file of another node; when it is missing, half of the file is lost.
    """
    content = path.read_bytes()
    if kind == "missing":
        path.unlink()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "flipped" and content:
        turned = bytearray(content)
        turned[bit // 8 % len(content)] ^= 1 << bit % 8
        path.write_bytes(bytes(turned))
    elif kind == "another's" and other.is_file():
        shutil.copyfile(other, path)
    else:
        path.write_bytes(content[: len(content) // 2])


def damage_one(lab: FaultLab, draw: Draw, agent: AgentProcess) -> None:
    """Damage one file of a stopped agent as drawn; note it in the agent's log for the analysis of a violation."""
    files = files_of(agent)
    # Files at the top are few and files of runs are many: choose either kind equally often.
    top = [path for path in files if path.parent == agent.state_dir]
    below = [path for path in files if path not in top]
    chosen = below if below and draw.detail % 2 else top
    path, kind = chosen[draw.detail // 2 % len(chosen)], DAMAGES[draw.detail // 64 % len(DAMAGES)]
    inner = path.relative_to(agent.state_dir)
    others = [
        other.state_dir / inner
        for other in lab.mesh.agents
        if other is not agent and (other.state_dir / inner).is_file()
    ]
    damage(path, kind, draw.detail // 512, others[0] if others else agent.state_dir / "nothing")
    with agent.log.open("a") as log:
        log.write(f"-- {inner} is {kind} now\n")


def restarted(agent: AgentProcess) -> None:
    """Start the agent. When it exits naming a file and a command, do as it says and start it again; `one_ring` checks the rest."""
    before = len(agent.log.read_text())
    agent.start()
    assert agent.process is not None
    waited(lambda: agent.description or agent.process is None or agent.process.poll() is not None, UP_SECONDS)
    if agent.process.poll() is None:
        return
    output = agent.log.read_text()[before:]
    for pattern in " ".join(REMEDY.findall(output)).split():
        assert pattern.startswith(str(agent.state_dir)), f"a remedy for another place: {output}"
        for damaged in glob(pattern):
            Path(damaged).unlink()
    agent.start()
