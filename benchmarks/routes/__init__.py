"""What routes that learn do when links between emulated hosts lose, break, heal and thin out."""
