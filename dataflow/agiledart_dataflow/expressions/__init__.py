"""Expressions over the fields of a row: `col("tip") / col("fare")`, written once, run over rows or over whole columns.

`expression.py` is the users' interface, `binding.py` checks an expression against a row type, `python_text.py` makes it a piece of
a generated loop, `vectors.py` runs it with NumPy (texts with pyarrow). An expression means the same as the equal text in Python,
and None propagates as in SQL; both forms give the same results to the last bit. May import the kernel and the columns of this
package.
"""
