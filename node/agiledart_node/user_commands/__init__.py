"""Questions and orders that pass through a node: status of an application, taps, stopping. It imports records and the desk."""
