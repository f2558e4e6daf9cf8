"""Which way rows take to another executor: circuits that are open to it, what they cost, and who decides; drivers beside them."""
