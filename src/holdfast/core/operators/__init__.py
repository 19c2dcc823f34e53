"""Operators: pure functions of totally ordered input, cut into passes. [HA §3.2]"""
