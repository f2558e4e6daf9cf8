"""Placement on live measures: predicted against measured response, and moves when a link turns slow."""
