"""Placement of what runs, on live measures: the problem out of reports and loads, what other hosts would change."""
