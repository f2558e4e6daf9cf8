"""The shipped applications, held against references of their own."""
