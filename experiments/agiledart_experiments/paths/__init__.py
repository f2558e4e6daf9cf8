"""Which way packets take over links that lose some: the planner's policies on the same networks, beside the published figures.

`networks` makes the networks, `trial` sends packets over one of them, `figures` adds runs up; each other module is one experiment.
"""
