"""The fault lab: real agents, a job with a plain reference, faults drawn from a seed, and judges.

    python -m benchmarks.faults --seed 7 [--class cut …] [--draws 200] [--minutes 60] [-o json]

`draws` what may happen · `job` what runs and what it must give · `hosts` emulated machines and their links · `lab` the agents ·
`strikes` how each fault is done and undone, `files` those of disks · `judges` what must hold afterwards · `campaign` draw after
draw.
"""
