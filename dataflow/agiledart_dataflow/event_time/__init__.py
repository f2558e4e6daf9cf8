"""When things happened: watermarks, late records, pacing, the shapes of windows.

It imports data and the plan, never an operator.
"""
