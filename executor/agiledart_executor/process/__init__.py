"""What an executor asks of its interpreter and of the kernel for itself: a resting garbage collector, short turns."""
