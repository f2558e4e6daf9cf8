"""Gate: opens, extends and ends leases of machines at one provider within limits of its own. Machines only: no I/O, no clock."""
