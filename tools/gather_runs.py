"""Makes one JSON document of the campaigns of `tools/simulate.sh`: sums first, then one line for each run.

    tools/gather_runs.py DIRECTORY PART…

Each PART is what `agiledart simulate --keep` wrote; they are removed, and DIRECTORY/simulate.json is written.
"""

import json
import sys
from pathlib import Path
from typing import Any

SUMMED = ("runs", "failed", "events", "messages", "virtual_hours", "lookups", "cpu_seconds")


def gathered(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over all parts; the parts without their runs; faults of each kind over all."""
    faults: dict[str, int] = {}
    for part in parts:
        for kind, count in part["faults"].items():
            faults[kind] = faults.get(kind, 0) + count
    return {
        "version": parts[0]["version"],
        "python": parts[0]["python"],
        **{name: round(sum(part[name] for part in parts), 3) for name in SUMMED},
        "faults": dict(sorted(faults.items())),
        "scenarios": [{name: value for name, value in part.items() if name != "seeds"} for part in parts],
    }


def text_of(parts: list[dict[str, Any]]) -> str:
    """The document; runs are one to a line, so that it stays readable and differences of two of them are small."""
    head = json.dumps(gathered(parts), indent=1).removesuffix("\n}")
    blocks = []
    for part in parts:
        lines = ",\n".join("   " + json.dumps(run, separators=(",", ":")) for run in part["seeds"])
        blocks.append(f"  {json.dumps(part['scenario'])}: [\n{lines}\n  ]")
    return head + ',\n "seeds": {\n' + ",\n".join(blocks) + "\n }\n}\n"


def main() -> None:
    """Read, write, remove."""
    directory, paths = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    (directory / "simulate.json").write_text(text_of(parts), encoding="utf-8")
    for path in paths:
        path.unlink()


if __name__ == "__main__":
    main()
