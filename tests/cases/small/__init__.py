"""Cases of this project's own making."""
