"""Input of a strategy: the request, its links, the objective, the order of operators, and the request as arrays."""
