"""Moving rows by key: the wire protocol, the state that servers keep, and what users hold.

The sub-rooms import in the order `wire`, then `metadata` and `store`, then `client`. The processes
themselves are in `mrflight.servers`.
"""
