"""Our engine beside others: the same three jobs, the same tuples, paired repetitions in random order.

`python -m benchmarks.engines` is the command. `catalogue` says which engines there are and what each can do, `setup`
gets the others into environments of their own, `running` carries out one run and reads its CPU time, `pairing`
compares within rounds, `report` writes. The modules that run inside another engine's environment (`plain`,
`columnar`, `bytewax_job`, `flink_job`, `zenoh_node`, `dora_node`) import nothing of ours but `jobs`.
"""
