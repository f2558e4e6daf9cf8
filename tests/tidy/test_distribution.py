"""Tests that start agents are distributed over workers by whole files, whose fixtures they share."""

from collections import defaultdict

import pytest

from tests.distribution import PLUG, group_of, rank


def test_a_file_with_agents_belongs_to_one_group(request: pytest.FixtureRequest) -> None:
    groups: dict[str, set[str]] = defaultdict(set)
    for item in request.session.items:
        if item.get_closest_marker("e2e") is not None:
            groups[str(item.path)].add(group_of(item))
    assert not {file: names for file, names in groups.items() if len(names) != 1 or "" in names}


def test_chains_begin_before_all_other_tests(request: pytest.FixtureRequest) -> None:
    ranks = [rank(item) for item in request.session.items]
    assert ranks == sorted(ranks)
    assert all(rank(item) == 0 for item in request.session.items if group_of(item) == PLUG)


@pytest.mark.xdist_group("distribution")
def test_workers_know_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    """xdist appends the group to the name of a test; a version of pytest that ignores this would scatter all groups."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("without workers (-n) there is nothing to distribute")
    assert request.node.nodeid.endswith("@distribution")
