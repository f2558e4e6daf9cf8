"""Code that must and must not type-check, so that types of the public API stay useful."""
