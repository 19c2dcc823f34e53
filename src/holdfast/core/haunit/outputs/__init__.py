"""The outputs of a node: edges to other nodes, sinks, and the gate before them. [HA §5.2]"""
