"""The three prototypes of a thesis, measured as in the thesis.

A. Ferretti, "Distributed Arrow-based Shuffle Operation using Arrow Flight RPC", Politecnico di
Torino, 2023. Chapter 3 describes the prototypes, and chapter 4 measures them. These programs were
written after its description; section numbers in the modules are the thesis's.
"""
