#!/usr/bin/env bash
# All that must hold before a change lands: style, types, tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/lint.sh
if [ "$#" -gt 0 ]; then
  exec .venv/bin/pytest "$@"
fi

# Tests that compute run beside those that wait for Spark, and give way to them. What both need
# compiled is compiled first.
.venv/bin/python -c "from holdfast.shell.spark import task; task.warm_up()"
log=$(mktemp)
nice -n 10 .venv/bin/pytest -m "not slow" >"$log" 2>&1 &
computing=$!
trap 'kill "$computing" 2>/dev/null || true; rm -f "$log"' EXIT
status=0
.venv/bin/pytest -m slow || status=$?
wait "$computing" || status=$?
cat "$log"
exit "$status"
