"""Places nodes, detects failures, decides recoveries, keeps the catalogue of restart points."""
