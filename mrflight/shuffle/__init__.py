"""The shuffle: the wire protocol, the state and blocks that servers keep, and the client.

The folders import in the order `wire`, `metadata`, `store`, `client`. The server processes are in
`mrflight.servers`.
"""
