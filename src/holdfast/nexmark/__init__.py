"""NexMark: generator, queries, runs. [CheckMate §V]"""
