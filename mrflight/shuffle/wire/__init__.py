"""The wire contract between clients and servers: messages, tickets, blocks and their encoding.

`mrflight.ids` explains the identities in it: token, incarnation, attempt, writer id, epoch, version
and generation.
"""
