"""Experiments on scaling: how soon a policy finds the right number of instances, in the paper's phases and in closed loop.

`queue_model` is the model that the policies scale, and `noise` draws normal numbers. `closed_loop`, `secant_steps` and
`scaling_timeline` are the experiments; the other modules serve them.
"""
