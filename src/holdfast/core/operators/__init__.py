"""Operators: pure functions of totally ordered input, cut into rounds. [HA §3.2]"""
