"""CheckMate's experiments, the paper's figures beside ours. [CheckMate §VII]"""
