"""Distribution of tests over workers (`-n`): which tests stay together, and in which order they begin.

Tests that start agents wait more than they compute, and fail when too many of them run at once. So their files form a few chains,
a worker each, which begin first; the other workers compute meanwhile. Spark takes every core, so its tests begin later, one at a
time. Short tests come last, so that all workers end together.
"""

from collections import Counter

import pytest

CORES_OF_A_CHAIN = 2
"""Cores for each chain of files with agents, beside the chain `plug`, which takes such files, too, until all have as many tests."""

WEIGHT_OF_PLUG = 2
"""Tests with kills and power cuts take twice as long as others with agents."""

PLUG, AGENTS, SPARK = "plug", "agents", "spark"
SHORT = ("simulation", "tidy", "unit")


def group_of(item: pytest.Item) -> str:
    """Return the name of the test's group; empty: any worker may run it."""
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark is not None else ""


def has_agents(item: pytest.Item) -> bool:
    """Return whether the test starts agents and its file names no group."""
    return item.get_closest_marker("e2e") is not None and not group_of(item)


def is_soak(item: pytest.Item) -> bool:
    """Return whether the test runs in soaks only."""
    return item.get_closest_marker("soak") is not None


def rank(item: pytest.Item) -> int:
    """Return 0 for tests that begin first, 4 for those that begin last.

    Pages' tests come last in Spark's chain: by then a Spark that ended has left the archive of its classes, which halves a start.
    """
    group, folder = group_of(item), item.nodeid.split("/")[1]
    if group.startswith((PLUG, AGENTS)):
        return 0
    if group == SPARK:
        return 3 if folder == "docs" else 2
    return 4 if folder in SHORT else 1


def distribute(items: list[pytest.Item], cores: int) -> None:
    """Mark each file with agents as part of a chain, and put the tests in the order in which they should begin."""
    tests_of_files = Counter(item.path for item in items if has_agents(item) and not is_soak(item))
    tests_of_chains = dict.fromkeys(
        [PLUG, *(f"{AGENTS} {number}" for number in range(max(1, cores // CORES_OF_A_CHAIN)))], 0
    )
    tests_of_chains[PLUG] = WEIGHT_OF_PLUG * sum(group_of(item) == PLUG and not is_soak(item) for item in items)
    chain_of = {}
    for file, tests in tests_of_files.items():
        chain = chain_of[file] = min(tests_of_chains, key=tests_of_chains.__getitem__)
        tests_of_chains[chain] += tests
    for item in filter(has_agents, items):
        item.add_marker(pytest.mark.xdist_group(chain_of.get(item.path, PLUG)))
    items.sort(key=rank)
