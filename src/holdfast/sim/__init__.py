"""The same cores under one seeded scheduler and a virtual clock."""
