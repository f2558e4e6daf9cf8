"""Providers of leased machines: their contract, and a simulated cloud. They know the gate's messages, and no gate."""
