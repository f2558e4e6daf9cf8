"""Virtual world: clock, queues, network, faults, nodes. It knows no scenario and no checker."""
