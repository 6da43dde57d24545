"""The state of a metadata server: data servers, shuffles, commits and leases, and their journal.

`registry` is where to begin: its methods are what clients and data servers ask for. A change is an
event (`events`), which is written to the journal before it is applied to the state. Everything here
runs without sockets and gets the time from its caller; the Flight server around it is in
`mrflight.servers`, and the rows are in `mrflight.shuffle.store`.
"""
