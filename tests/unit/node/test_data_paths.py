"""The ways that rows take, as people read them."""

from agiledart_node.records.data_paths import data_paths_of

KINDS = ["source", "stage", "stage", "sink"]
CHAIN = [(0, 1), (1, 2), (2, 3)]


def test_local_rows_take_no_hop_and_returning_rows_take_two() -> None:
    assert data_paths_of(KINDS, CHAIN, [["a1"]] * 4) == [["a1"]]
    assert data_paths_of(KINDS, CHAIN, [["a1"], ["a2"], ["a2"], ["a1"]]) == [["a1", "a2", "a1"]]


def test_instances_of_one_stage_count_as_one_place() -> None:
    assert data_paths_of(KINDS, CHAIN, [["a1"], ["a2", "a3", "a2"], ["a3"], ["a1"]]) == [["a1", "a2,a3", "a3", "a1"]]


def test_each_source_and_reachable_sink_get_their_longest_path() -> None:
    kinds = ["source", "source", "stage", "stage", "sink", "sink"]
    edges = [(0, 2), (2, 3), (0, 3), (1, 5), (3, 4), (3, 5)]
    hosts = [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]
    assert data_paths_of(kinds, edges, hosts) == [["a", "c", "d", "e"], ["a", "c", "d", "f"], ["b", "f"]]
