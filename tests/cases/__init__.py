"""Small inputs from public reports of faults, played by the command line."""
