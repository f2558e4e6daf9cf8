"""Recovery of applications whose hosts die: the recovery state machine, connected with hosting, records and the ring.

`register_bootstrap` gives a run its register, `attempt_entry` and `hosted_run` enter a new attempt on one host,
`recovery_service` is
the machine's driver inside the node. The package imports hosting and packages below it.
"""
