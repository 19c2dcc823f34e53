"""SGuard's experiments, the paper's figures beside ours. [SGuard §6]"""
