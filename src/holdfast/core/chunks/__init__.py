"""The embedded chunk store: its master, its data nodes, and what its clients do. [SGuard §5]"""
