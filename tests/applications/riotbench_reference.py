"""RIoTBench computed anew from its formulas, message by message, without streams; the topologies must give the same."""

import gzip
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def settings(topologies: Path, name: str) -> dict[str, Any]:
    """The settings of a workload as the data folder has them; CITY are the percentile ranges."""
    key = {"city": "CITY percentile ranges"}.get(name, name.upper())
    chosen: dict[str, Any] = json.loads(topologies.read_text())["settings"][key]
    return chosen


def read_lines(path: Path) -> list[str]:
    """All lines of a plain or packed file."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return text.decode().splitlines()


def parsed(line: str, id_field: str) -> tuple[int, str, dict[str, str]]:
    """Time, sensor and fields of a message."""
    milliseconds, text = line.split(",", 1)
    fields = {entry["n"]: entry["v"] if "v" in entry else entry["sv"] for entry in json.loads(text)["e"]}
    return int(milliseconds), fields[id_field], fields


def etl(lines: Iterable[str], metadata: Iterable[str], chosen: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rows of the table."""
    annotations = {line.split(":")[0]: line.split(":")[1].split(",") for line in metadata}
    width = len(next(iter(annotations.values())))
    window = chosen["interpolation_window"]
    valid: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=window))
    rows = []
    for number, line in enumerate(lines):
        milliseconds, sensor, fields = parsed(line, chosen["id_field"])
        values: list[float | None] = []
        for name in chosen["fields"]:
            value: float | None = float(fields[name])
            low, high = chosen["range_filter"].get(name, (-np.inf, np.inf))
            if not low <= float(fields[name]) <= high or (chosen["bloom"] and sensor not in annotations):
                value = None
            if window:
                recent = valid[sensor, name]
                if value is None:
                    value = float(np.mean(recent)) if recent else 0.0
                else:
                    recent.append(value)
            values.append(value)
        rows.append((number, milliseconds, sensor, *values, *annotations.get(sensor, [None] * width)))
    return rows


def classified(node: dict[str, Any], inputs: Sequence[float]) -> int:
    """The class that a decoded tree gives."""
    if node["leaf"]:
        return int(node["class_index"])
    return classified(node["sons"][int(inputs[node["attr"]] > node["split"])], inputs)


def pred(
    lines: Iterable[str],
    chosen: dict[str, Any],
    models: dict[str, Any],
    prefix: str,
    inputs: Sequence[str],
    target: str,
) -> list[tuple[Any, ...]]:
    """Estimates of each message."""
    tree = next(model for name, model in models.items() if name.startswith(f"{prefix}-DTC-"))
    line_fit = next(model for name, model in models.items() if name.startswith(f"{prefix}-MLR-"))
    classes = tree["attributes"][tree["class_index_attr"]]["values"]
    blocks: dict[str, list[float]] = defaultdict(list)
    rows = []
    for number, line in enumerate(lines):
        _, sensor, fields = parsed(line, chosen["id_field"])
        values = [float(fields[name]) for name in inputs]
        used = [value for value, is_used in zip(values, line_fit["selected"], strict=True) if is_used]
        regression = float(np.dot(used, line_fit["coefficients"][:-1]) + line_fit["coefficients"][-1])
        observed = float(fields[target])
        blocks[sensor].append(observed)
        full = len(blocks[sensor]) // 10 * 10
        average = float(np.mean(blocks[sensor][full - 10 : full])) if full else None
        error = (observed - regression) / average if average else None
        index = classified(tree["tree"], values)
        rows.append((number, sensor, index, classes[index], regression, int(regression), average, error))
    return rows


def statistics(values: Sequence[float]) -> list[tuple[Any, ...]]:
    """n, Kalman, next value, mean of the next ten and block average of a series."""
    x, p = 0.0, 30.0
    estimates: list[float] = []
    rows: list[tuple[Any, ...]] = []
    for n, value in enumerate(values, 1):
        p += 0.125
        k = p / (p + 0.32)
        x, p = x + k * (value - x), (1 - k) * p
        estimates.append(x)
        predicted: tuple[float | None, float | None] = (None, None)
        if n > 10:
            slope, constant = np.polyfit(np.arange(n - 9, n + 1) - n, estimates[-10:], 1)
            ahead = constant + slope * np.arange(1, 11)
            predicted = (float(ahead[0]), float(ahead.mean()))
        rows.append((n, x, *predicted, float(np.mean(values[n - 10 : n])) if n % 10 == 0 else None))
    return rows


def is_close(left: Any, right: Any, tolerance: float = 1e-4) -> bool:
    """Whether two rows are equal, floats to a relative tolerance (absolute below 1)."""
    if isinstance(left, float) and isinstance(right, float | int):
        return abs(left - right) <= tolerance * max(1.0, abs(right))
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(is_close(a, b, tolerance) for a, b in zip(left, right, strict=True))
    return bool(left == right)


def assert_rows(rows: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise at the first row that differs."""
    assert len(rows) == len(expected)
    for number, (row, wanted) in enumerate(zip(rows, expected, strict=True)):
        assert is_close(tuple(row), tuple(wanted)), f"row {number}: {row} is not {wanted}"
