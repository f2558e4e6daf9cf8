"""Event time: watermarks, late records, pacing, the shapes of windows.

The package imports data and the plan, never an operator.
"""
