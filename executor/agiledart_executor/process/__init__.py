"""Settings that an executor makes for its own process: rare garbage collection, and short time slices from the kernel."""
