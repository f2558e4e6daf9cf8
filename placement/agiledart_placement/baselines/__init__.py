"""Strategies that compute a placement in one pass: along recorded paths, in turn, Storm's, T-Storm's, at random."""
