"""Plan of a topology before it runs: steps and their kinds, stages, edges, connectors, the deployment of each node."""
