"""Experiments on path planning over lossy links: the planner's policies on the same networks, beside the published figures.

`networks` makes the networks, `trial` sends packets over one network, and `figures` aggregates runs. `data`, `grenoble` and
`streets` read measured networks; each other module is one experiment.
"""
