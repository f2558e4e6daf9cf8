"""Experiments on provisioning by billing time units. Source: [Hochreiner 2017]."""
