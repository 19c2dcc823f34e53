#!/usr/bin/env bash
# Fetches HDFS from Maven for tests and `holdfast bench hdfs`. Safe to run again.
set -euo pipefail
version=3.5.0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/hdfs-$version
[ -e "$folder/complete" ] && exit 0
if ! command -v mvn >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    (apt-get update && apt-get install -y maven) >/dev/null
  else
    echo "HDFS comes by Maven; on Debian or Ubuntu run: sudo apt-get install -y maven" >&2
    exit 1
  fi
fi
mkdir -p "$folder"
cat >"$folder/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast</groupId><artifactId>hdfs</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-minicluster</artifactId>
    <version>$version</version>
  </dependency></dependencies>
</project>
POM
mvn -q -B -C -f "$folder/pom.xml" dependency:copy-dependencies -DoutputDirectory="$folder"
touch "$folder/complete"
