"""Autoscaling: decisions from the measures of a run, requested as changes from the run's coordinator."""
