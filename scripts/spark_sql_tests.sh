#!/usr/bin/env bash
# Fetches Spark's golden SQL files, which its test jar holds, from Maven. Safe to run again.
set -euo pipefail
version=4.2.0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/spark-sql-tests-$version
jar=spark-sql_2.13-$version-tests.jar
[ -e "$folder/complete" ] && { echo "$folder/$jar"; exit 0; }
if ! command -v mvn >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    (apt-get update && apt-get install -y maven) >/dev/null
  else
    echo "Spark's test jar comes by Maven; on Debian or Ubuntu run: sudo apt-get install -y maven" >&2
    exit 1
  fi
fi
mkdir -p "$folder"
if ! mvn -q -B -C dependency:copy "-DoutputDirectory=$folder" \
  "-Dartifact=org.apache.spark:spark-sql_2.13:$version:jar:tests" >"$folder/maven.log" 2>&1; then
  echo "Maven could not fetch $jar; its log is $folder/maven.log:" >&2
  head -n 3 "$folder/maven.log" >&2
  exit 1
fi
touch "$folder/complete"
echo "$folder/$jar"
