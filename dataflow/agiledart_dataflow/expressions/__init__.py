"""Expressions over the fields of a row: `col("tip") / col("fare")`, written once, run over rows or over whole columns.

`expression.py` is what users write, `binding.py` checks it against a row type, `python_text.py` makes it a piece of a
generated loop, `vectors.py` runs it with NumPy (texts with pyarrow). An expression means what the same words mean in
Python, None goes through as in SQL; both ways give the same results to the last bit. May import the kernel and the columns
of this package.
"""
