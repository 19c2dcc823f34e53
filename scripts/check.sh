#!/usr/bin/env bash
# All that must hold before a change lands: style, types, tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$#" -gt 0 ]; then
  scripts/lint.sh
  exec .venv/bin/pytest "$@"
fi

# Some tests look at pages in a browser, have a real Prometheus scrape metrics, or make disks and clocks fail.
lacking=
command -v chromium >/dev/null || lacking="$lacking chromium"
command -v promtool >/dev/null || lacking="$lacking prometheus"
[ -e /usr/lib/fiu/fiu_posix_preload.so ] || lacking="$lacking fiu-utils libfiu0"
dpkg -s libfaketime >/dev/null 2>&1 || lacking="$lacking libfaketime"
if [ -n "$lacking" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  # shellcheck disable=SC2086 # Each word is a package.
  (apt-get update && apt-get install -y --no-install-recommends $lacking) >/dev/null || true
fi

# Tests that compute run beside those that wait for Spark or for servers, and give way to them. Each
# part takes about as long as the others. Style and types are checked meanwhile.
# What all need compiled is compiled first, beside an archive of Spark's classes for all JVMs. A JVM
# lives for minutes here: it need not optimise as for days. That halves its CPU time.
# Python keeps what it compiles, too, even where it is told not to: hundreds of processes begin here.
unset PYTHONDONTWRITEBYTECODE
export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr}"
archive=$PWD/build/classes.jsa
[ -e "$archive" ] || .venv/bin/python scripts/class_archive.py "$archive" >/dev/null 2>&1 &
.venv/bin/python -c "from holdfast.shell.spark import task; task.warm_up()"
if wait $!; then
  SPARK_SUBMIT_OPTS="$SPARK_SUBMIT_OPTS -XX:SharedArchiveFile=$archive"
fi
logs=$(mktemp -d)
running=()
beside() { # LOG COMMAND...
  "${@:2}" >"$logs/$1" 2>&1 &
  running+=("$!")
}
export PYTEST_ADDOPTS="--durations=30 ${PYTEST_ADDOPTS:-}"
pytest=.venv/bin/pytest
in_session="slow and session"
with_servers="slow and not session"
# Where slow tests are: to read all others takes each run of pytest seconds of a processor.
slow="tests/bench tests/chaos tests/cluster tests/docs tests/shell tests/spark tests/view"
first() {
  local found=0
  # shellcheck disable=SC2086 # Each word is a folder.
  $pytest -m "$in_session" --ignore-glob="*/spark/test_[n-z]*" $slow || found=$?
  $pytest -m "$with_servers" tests/view || found=$?
  return $found
}
second() {
  local found=0
  $pytest -m "$in_session" tests/spark/test_[n-z]*.py || found=$?
  $pytest -m "$with_servers" tests/spark || found=$?
  return $found
}
beside lint scripts/lint.sh
beside simulation nice -n 10 $pytest -m "not slow" tests/simulation tests/bench
beside computing nice -n 10 $pytest -m "not slow" --ignore=tests/simulation --ignore=tests/bench
# shellcheck disable=SC2086 # Each word is a folder.
beside third $pytest -m "$with_servers" --ignore=tests/spark --ignore=tests/view $slow
beside second second
trap 'kill "${running[@]}" 2>/dev/null || true; rm -rf "$logs"' EXIT
status=0
first | tee "$logs/first" || status=$?
for each in "${running[@]}"; do
  wait "$each" || status=$?
done
cat "$logs"/{second,third,computing,simulation,lint}
# What failed, once more: its lines may be far up.
if [ "$status" != 0 ]; then
  grep -hE "^(FAILED|ERROR) |: error: | [0-9]+ failed" "$logs"/* || true
fi
exit "$status"
