"""`kill -9` of a host of keyed state, ours and Flink alternately: seconds to the next result, duplicate rows, CPU.

`python -m benchmarks.engines.recovery` is the command. `flink_cluster` is a cluster of processes and its REST interface,
`flink_run` and `our_run` carry out one turn each with the same keys, bytes, rows and pace, `attempt_rows` reads the files of
Flink's sink, `usage` adds up CPU time of processes that come and go, `report` compares the results with the goals.
"""
