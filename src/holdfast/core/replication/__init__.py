"""Replicas that agree without talking to each other. [DPC]"""
