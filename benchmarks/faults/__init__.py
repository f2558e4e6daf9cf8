"""The fault lab: real agents, a job with a plain reference, faults drawn from a seed, and checks of the outcome.

    python -m benchmarks.faults --seed 7 [--class cut …] [--draws 200] [--minutes 60] [-o json]

`draws` has the faults and their parameters, `job` the job and its expected output, `hosts` emulated machines and their links,
`lab` the agents. `strikes` causes and ends each fault, `files` damages files, `invariants` checks the outcome, `campaign` carries
out the draws.
"""
