"""The processes that a cluster keeps running: the metadata server and the data servers.

Each Flight handler decodes a request, calls an object that knows no sockets, and maps its errors.
"""
