#!/usr/bin/env bash
# Builds deploy/Dockerfile and runs a query in the image, where there is neither Docker nor Spark's own
# image: with buildah, on a base of Debian's packages and PySpark's files, laid out as Spark's image is.
# As root on Debian. In the image a node is killed, results are compared with Spark SQL's, and two
# executors are started by a Spark master.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! { command -v buildah && command -v debootstrap; } >/dev/null; then
  (apt-get update && apt-get install -y --no-install-recommends buildah debootstrap) >/dev/null
fi
export BUILDAH_ISOLATION=chroot
base=holdfast-spark-base image=holdfast-spark
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== the base"
debootstrap --variant=minbase \
  --include=bash,ca-certificates,openjdk-17-jre-headless,procps,python3,python3-pip,tini \
  "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$work/root" >"$work/said" || { tail "$work/said"; exit 1; }
pyspark=$(.venv/bin/python -c 'import pyspark; print(pyspark.__path__[0])')
mkdir -p "$work/root/opt/spark/python" "$work/root/opt/spark/work-dir"
cp -r "$pyspark"/{bin,jars,sbin} "$work/root/opt/spark/"
cp -r "$pyspark/python/lib" "$work/root/opt/spark/python/"
chroot "$work/root" useradd --system --uid 185 --home /opt/spark/work-dir spark
chroot "$work/root" chown -R spark /opt/spark/work-dir
made=$(buildah from scratch)
buildah add -q "$made" "$work/root" / >/dev/null
buildah config --env SPARK_HOME=/opt/spark --workingdir /opt/spark/work-dir "$made"
buildah commit -q --rm "$made" "$base" >/dev/null

echo "== the image"
buildah bud -q --volume /etc/ssl/certs:/etc/ssl/certs:ro --build-arg "SPARK_IMAGE=localhost/$base" \
  -f deploy/Dockerfile -t "$image" .
buildah images --format '{{.Name}} {{.Size}}' "$image"

echo "== a query in it"
made=$(buildah from "$image")
trap 'buildah rm "$made" >/dev/null; rm -rf "$work"' EXIT
# shellcheck disable=SC2016 # The image's shell reads these.
buildah run --user spark "$made" -- bash -c '
  set -euo pipefail
  main=$(python3 -c "import holdfast.cli.main as m; print(m.__file__)")
  export SPARK_NO_DAEMONIZE=1 SPARK_LOCAL_IP=127.0.0.1
  submit() { /opt/spark/bin/spark-submit --conf spark.python.daemon.module=holdfast.shell.spark.daemon "$@"; }
  submit --master "local[8,8]" "$main" nexmark q12 --seconds 8 --kill counts@3s --verify
  /opt/spark/bin/spark-class org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 7077 --webui-port 0 2>/dev/null &
  for _ in 1 2; do
    /opt/spark/bin/spark-class org.apache.spark.deploy.worker.Worker --cores 4 --memory 2g --webui-port 0 \
      -d /tmp/worker spark://127.0.0.1:7077 2>/dev/null &
  done
  trap "kill \$(jobs -p)" EXIT
  submit --master spark://127.0.0.1:7077 --conf spark.holdfast.allowInsecureCluster=true \
    --conf spark.executor.memory=1g --conf spark.executor.cores=4 \
    "$main" nexmark q12 --seconds 8 --kill counts@3s --verify --location /tmp/tried
'
