"""Schedulers: which nodes plan applications, how an application finds one, and how schedulers start and resign.

No node appoints a scheduler. Nodes gossip the advertisements of schedulers (`advertisements`, `gossip`). A submission looks for a
scheduler with capacity (`scheduler_lookup`); without one it elects a node for a free scheduler slot (`election`, `claims`). Then
it
hands its application over (`submission_dispatcher`). `scheduler_role` is the scheduler itself; `scheduler_renewals` is an
application's side of the lease between the two. The package imports what the node imports; the node composes it through
`node_scheduling`.
"""
