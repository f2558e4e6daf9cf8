"""Experiments of the placement papers: optima, springs, MOPA, schedulers of Storm, hill climbing and ants, on one evaluator."""
