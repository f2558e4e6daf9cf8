"""`kill -9` of a host of keyed state, ours beside Flink, in turns: seconds to the next result, rows repeated, CPU.

`python -m benchmarks.engines.recovery` is the command. `flink_cluster` is a cluster of processes and its REST interface,
`flink_turn` and `our_turn` carry out one turn each with the same keys, bytes, rows and pace, `lives` reads what Flink's sink
wrote, `usage` adds up CPU time of processes that come and go, `report` says what was found beside the goal.
"""
