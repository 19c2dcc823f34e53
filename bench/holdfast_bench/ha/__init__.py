"""HA's experiments, the paper's figures beside ours. [HA §7]"""
