#!/usr/bin/env bash
# Tests both ends of the dependencies' bounds: the lowest versions that pyproject.toml allows, and the
# newest. Each in an environment of its own below build/bounds, with the tests that need no Spark.
#
#   scripts/bounds.sh [lowest|highest] [PYTHON…]      # by default both ends, on each Python that is there
set -euo pipefail
cd "$(dirname "$0")/.."
ends=(lowest highest)
case ${1:-} in lowest | highest) ends=("$1") && shift ;; esac
pythons=("$@")
if [ "${#pythons[@]}" = 0 ]; then
  for python in python3.11 python3.12 python3.13 python3.14; do
    if "$python" -c '' 2>/dev/null; then pythons+=("$python"); else echo "no $python here"; fi
  done
fi
tests=(tests/core tests/planning tests/driver tests/view/test_metrics.py tests/view/test_traces.py
  tests/view/test_view_model.py tests/view/test_view_server.py)
python3 -m venv build/bounds/uv
build/bounds/uv/bin/python -m pip install --quiet uv
uv=build/bounds/uv/bin/uv
for python in "${pythons[@]}"; do
  for end in "${ends[@]}"; do
    place=build/bounds/$python-$end
    echo "== $("$python" --version), $end versions"
    "$uv" venv --quiet --clear --python "$(command -v "$python")" "$place"
    # The lowest of what pyproject.toml names; what these need in turn is as new as they take.
    resolution=highest
    if [ "$end" = lowest ]; then resolution=lowest-direct; fi
    "$uv" pip install --quiet --python "$place/bin/python" --resolution "$resolution" \
      ".[view,metrics,otel,s3]" "pytest>=8.3" "pytest-timeout>=2.3" "hypothesis>=6.120"
    "$uv" pip list --quiet --python "$place/bin/python" |
      grep -E '^(pyspark|pyarrow|numpy|numba|pyzmq|fsspec|pyyaml|xxhash|typer|rich|starlette|uvicorn|prometheus|opentelemetry-sdk|s3fs) ' || true
    "$place/bin/python" -m pytest -q -m "not slow" -p no:cacheprovider "${tests[@]}"
  done
done
