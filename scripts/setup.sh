#!/usr/bin/env bash
# Makes .venv with the locked dependencies and this package, and sees to Java. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=.venv/.holdfast-$(cat requirements.lock requirements-build.lock pyproject.toml | sha256sum | cut -c1-16)

find_python() {
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      echo "$candidate"
      return
    fi
  done
  echo "Holdfast needs Python 3.11 or newer; install it, or name it: PYTHON=/path/to/python make setup" >&2
  exit 1
}

if [ ! -e "$stamp" ]; then
  python=$(find_python)
  rm -rf .venv
  if ! "$python" -m venv .venv; then
    echo "Making a virtual environment failed; on Debian run: apt-get install -y python3-venv" >&2
    exit 1
  fi
  .venv/bin/python -m pip install --quiet --require-hashes -r requirements-build.lock
  .venv/bin/python -m pip install --quiet --require-hashes -r requirements.lock
  .venv/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
  touch "$stamp"
fi

has_java() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  command -v "$java" >/dev/null &&
    "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | awk '{exit !($1 >= 17)}'
}

if ! has_java; then
  install="apt-get update && apt-get install -y openjdk-17-jre-headless || apt-get install -y default-jre-headless"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    bash -c "$install" >/dev/null
    has_java || { echo "Installing Java failed; run: bash -c '$install'" >&2; exit 1; }
  else
    echo "Spark needs Java 17 or newer. On Debian or Ubuntu run: sudo bash -c '$install'" >&2
    exit 1
  fi
fi
