"""How soon a policy finds the right number of instances: the paper's phases, and policies in closed loop with queues.

`queue_model` is the model that they steer, `noise` draws normal numbers; each other module is one experiment.
"""
