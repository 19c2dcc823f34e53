#!/usr/bin/env bash
# Tests both ends of the dependencies' bounds: the lowest versions that pyproject.toml allows, and the
# newest. Each in an environment of its own below build/bounds, with the tests that need no Spark, and a
# query on Spark of which a node is killed and whose results are compared with Spark SQL's. For a Python
# that is not there it looks which versions would be taken, and that all of them have wheels.
#
#   scripts/bounds.sh [lowest|highest] [PYTHON…]      # by default both ends, Python 3.11 to 3.14
set -euo pipefail
cd "$(dirname "$0")/.."
ends=(lowest highest)
case ${1:-} in lowest | highest) ends=("$1") && shift ;; esac
pythons=("$@")
[ "${#pythons[@]}" != 0 ] || pythons=(python3.11 python3.12 python3.13 python3.14)
named='^(pyspark|pyarrow|numpy|pandas|numba|pyzmq|fsspec|pyyaml|xxhash|typer|rich|starlette|uvicorn|prometheus-client|opentelemetry-sdk|s3fs|confluent-kafka|deltalake|pyiceberg)[ =]'
# Tests that reach what comes from elsewhere. Of the rest of tests/core nothing depends on a version.
tests=(tests/core/{model,operators,state,wire} tests/api tests/planning tests/driver
  tests/shell/test_{exact_parquet,ingest_log,journal,stream_reads,user_files}.py
  tests/view/test_{metrics,traces,view_model,view_server}.py)
python3 -m venv build/bounds/uv
build/bounds/uv/bin/python -m pip install --quiet uv
uv=build/bounds/uv/bin/uv
for python in "${pythons[@]}"; do
  for end in "${ends[@]}"; do
    place=build/bounds/$python-$end
    # The lowest of what pyproject.toml names; what these need in turn is as new as they take.
    resolution=highest
    if [ "$end" = lowest ]; then resolution=lowest-direct; fi
    if ! "$python" -c '' 2>/dev/null; then
      echo "== no $python here; its $end versions would be"
      "$uv" pip compile --quiet --no-annotate --no-header --python-version "${python#python}" \
        --resolution "$resolution" --only-binary :all: --no-binary pyspark pyproject.toml \
        --extra view --extra metrics --extra otel --extra s3 --extra kafka --extra avro --extra delta --extra iceberg |
        grep -E "$named"
      continue
    fi
    echo "== $("$python" --version), $end versions"
    "$uv" venv --quiet --clear --python "$(command -v "$python")" "$place"
    "$uv" pip install --quiet --python "$place/bin/python" --resolution "$resolution" \
      ".[view,metrics,otel,s3,kafka]" "pytest>=8.3" "pytest-timeout>=2.3" "hypothesis>=6.120" "cryptography>=44"
    "$uv" pip list --quiet --python "$place/bin/python" | grep -E "$named"
    # Spark 4.1 does not have the tester that one test compares with. Older typers use what click will drop.
    "$place/bin/python" -c 'import pyspark.sql.streaming.tws_tester' 2>/dev/null ||
      tests+=(--ignore tests/core/operators/test_process.py)
    PYTHONPATH=src "$place/bin/python" -m pytest -q -m "not slow" -p no:cacheprovider \
      -W "ignore:'click:DeprecationWarning" "${tests[@]}"
    "$place/bin/holdfast" nexmark q12 --seconds 8 --kill counts@3s --verify
  done
done
