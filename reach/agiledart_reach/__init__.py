"""Process that finds ways between nodes with py-libp2p: neighbours on the local network (mDNS) and the router's port (UPnP).

It holds no key and carries no rows. An agent starts it, and goes on without it. Of the product, this package alone may import
libp2p or trio, and only inside that process.
"""
