"""The three prototypes of a thesis, measured as it measured them.

A. Ferretti, "Distributed Arrow-based Shuffle Operation using Arrow Flight
RPC", Politecnico di Torino, 2023. Chapter 3 describes the prototypes, chapter
4 measures them. These are programs of our own after its description; section
numbers in the modules are the thesis's.
"""
