"""Training of small models from a batch of rows, in plain Python: least squares, and a decision tree by information gain."""

from collections import Counter
from collections.abc import Sequence
from math import fsum, log2
from statistics import quantiles
from typing import Any

CLASSES = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")
MIN_LEAF = 2
"""Fewest rows in a leaf, as in the benchmark's trees."""

MAX_DEPTH = 8


def least_squares(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float]:
    """Return the factors of the columns and the constant that minimise the sum of squared errors.

    A column that depends on those before it gets the factor 0.
    """
    count, width = len(rows), len(rows[0])
    means = [fsum(row[i] for row in rows) / count for i in range(width)]
    middle = fsum(targets) / count
    columns = [[row[i] - means[i] for row in rows] for i in range(width)]
    rest = [target - middle for target in targets]
    # Modified Gram-Schmidt: stable where normal equations would square the condition number.
    triangle = [[0.0] * width for _ in range(width)]
    projected = [0.0] * width
    used = []
    for i in range(width):
        column = columns[i]
        full = fsum((row[i] - means[i]) ** 2 for row in rows)
        norm = fsum(x * x for x in column)
        if norm <= 1e-12 * full or norm == 0.0:
            continue
        used.append(i)
        projected[i] = fsum(x * y for x, y in zip(column, rest, strict=True)) / norm
        rest = [y - projected[i] * x for x, y in zip(column, rest, strict=True)]
        for j in range(i + 1, width):
            triangle[i][j] = fsum(x * y for x, y in zip(column, columns[j], strict=True)) / norm
            columns[j] = [y - triangle[i][j] * x for x, y in zip(column, columns[j], strict=True)]
    factors = [0.0] * width
    for i in reversed(used):
        factors[i] = projected[i] - fsum(triangle[i][j] * factors[j] for j in used if j > i)
    return [*factors, middle - fsum(f * m for f, m in zip(factors, means, strict=True))]


def quartile_classes(values: Sequence[float]) -> list[int]:
    """Return the class of each value: the number of the largest quartile point that is not above it.

    The points are those of 25, 50, 75 and 100 %; a value below the first has class 0, BAD.
    """
    points = [*quantiles(values, n=4, method="inclusive"), max(values)]
    return [max((i for i, point in enumerate(points) if point <= value), default=0) for value in values]


def decision_tree(rows: Sequence[Sequence[float]], classes: Sequence[int], depth: int = 0) -> dict[str, Any]:
    """Return a tree that splits by the greatest information gain, in the form of the benchmark's decoded trees.

    A value that is at most `split` goes to the first son. Equal gains take the first attribute, then the least split.
    """
    counts = Counter(classes)
    leaf = {"leaf": True, "class_index": min(counts, key=lambda kind: (-counts[kind], kind))}
    if len(counts) == 1 or len(rows) < 2 * MIN_LEAF or depth == MAX_DEPTH:
        return leaf
    best = max((_best_split(rows, classes, attr) for attr in range(len(rows[0]))), key=lambda split: split[0])
    gain, attr, split = best
    if gain <= 1e-9:
        return leaf
    sides: tuple[list[int], list[int]] = ([], [])
    for number, row in enumerate(rows):
        sides[row[attr] > split].append(number)
    sons = [decision_tree([rows[i] for i in side], [classes[i] for i in side], depth + 1) for side in sides]
    return {"leaf": False, "attr": attr, "split": split, "sons": sons}


def _best_split(rows: Sequence[Sequence[float]], classes: Sequence[int], attr: int) -> tuple[float, int, float]:
    """Return gain, attribute and value of the best split of an attribute; a gain of 0 when there is none."""
    order = sorted(range(len(rows)), key=lambda i: rows[i][attr])
    before, after = Counter[int](), Counter(classes)
    whole, count = _entropy(after, len(rows)), len(rows)
    best = (0.0, attr, 0.0)
    for place, number in enumerate(order[:-1], 1):
        before[classes[number]] += 1
        after[classes[number]] -= 1
        value = rows[number][attr]
        if value == rows[order[place]][attr] or place < MIN_LEAF or count - place < MIN_LEAF:
            continue
        parted = (place * _entropy(before, place) + (count - place) * _entropy(after, count - place)) / count
        if whole - parted > best[0] + 1e-12:
            best = (whole - parted, attr, value)
    return best


def _entropy(counts: Counter[int], total: int) -> float:
    return -fsum(n / total * log2(n / total) for n in counts.values() if n)
