"""Our engine beside others: the same three jobs, the same tuples, paired repetitions in random order.

`python -m benchmarks.engines` is the command. `catalogue` says which engines there are and what each can do, `setup`
gets the others into environments of their own, `running` carries out one run and reads its CPU time, `pairing`
compares within rounds, `report` writes. `ours` has the jobs as our users write them. `others` has the
programs that run inside other engines' environments, and `java` Flink's jobs. `recovery` is a comparison of its own.
"""
