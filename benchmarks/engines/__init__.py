"""Our engine beside others: the same three jobs, the same tuples, paired repetitions in random order.

`python -m benchmarks.engines` is the command. `catalogue` says which engines there are and what each can do, `setup`
gets the others into environments of their own, `running` carries out one run and reads its CPU time, `pairing`
compares within rounds, `report` writes. The jobs as users of ours write them are in `ours`; what runs beside them, and inside
other engines' environments, is in `others`, and Flink's jobs in `java`. `recovery` is a comparison of its own.
"""
