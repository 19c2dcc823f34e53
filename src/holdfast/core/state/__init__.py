"""Memory management middleware: all operator state lives in pages. [SGuard §4]"""
