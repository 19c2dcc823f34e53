"""Composes a node: input queues, SUnion, operators, output queues, restart points. [SGuard §3]"""
