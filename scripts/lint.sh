#!/usr/bin/env bash
# Style and types.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/ruff check src bench chaos tests
.venv/bin/ruff format --check src bench chaos tests
.venv/bin/mypy
