"""The stream of events of a job and of servers: its kinds, its recorder, and what follows from it.

Whoever shows what a job does (the progress on a terminal, the page, the summary, a report) reads
this stream, or the `JobView` that is folded from it. Nothing else keeps counts of its own.
"""
