"""Shipped provisioning policies, one file each: `hosts` (the default on meshes), `btu` and `threshold`."""
