#!/usr/bin/env bash
# All that must hold before a change lands: style, types, tests.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/lint.sh
.venv/bin/pytest "$@"
