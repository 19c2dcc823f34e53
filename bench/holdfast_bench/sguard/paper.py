"""What the paper printed. [SGuard §6]"""

from __future__ import annotations

from typing import Final

JOIN_US: Final = (
    (256, 592.1, 605.0, 604.8),
    (512, 1144.0, 1175.0, 1179.0),
    (1024, 2109.0, 2158.0, 2161.0),
)
"""Table 5: window in KB; per tuple in us: ordinary containers, pages of 8 KB, of 64 KB."""

AGGREGATE_US: Final = {
    1: (18.82, 21.25, 19.97),
    10: (24.93, 24.60, 23.18),
    100: (47.73, 31.54, 29.78),
}
"""Table 6: state in MB; per tuple in us: ordinary containers, pages of 8 KB, of 64 KB."""

LATENCY_MS: Final = {
    "none": {1: 21.6, 4: 21.8, 64: 22.7},
    "pages": {1: 202.0, 4: 22.2, 64: 22.8},
    "synchronous": {1: 617.0, 4: 157.0, 64: 30.2},
    "asynchronous": {1: 302.0, 4: 100.0, 64: 26.6},
}
"""Table 7: mean latency by technique and number of parts, at 2,000 tuples/s."""

DATA_NODE_MB_PER_S: Final = (
    (1, 60.5, 63.7, 42.7, 30.0),
    (2, 56.3, 91.3, 6.16, 22.5),
    (4, 95.3, 102.0, 3.04, 9.90),
    (8, 105.0, 104.0, 1.29, 6.03),
    (16, 110.0, 105.0, 0.63, 2.57),
)
"""Table 8: streams at once; a client's read and write, a data node's read and write per client."""
PAGE_TABLES_MS: Final = 60
"""Figure 9: rebuilding the page table of 512 MB takes less."""
