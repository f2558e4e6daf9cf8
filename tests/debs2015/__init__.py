"""The shipped DEBS 2015 queries against the independent reference, and the taxi generator against measured figures."""
