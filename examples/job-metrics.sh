#!/bin/sh
# Runs a job under its lock, and writes how it went for node_exporter's textfile collector:
#
#   17 2 * * *  job-metrics.sh backup -n -E 0 -- backup.sh
#
# A host that skips the job, because another one runs it, leaves its file as it is. Needs jq.
set -u
key=$1
shift
directory=${TEXTFILES:-/var/lib/node_exporter}
file=$directory/dlock_$(printf %s "$key" | tr -c 'A-Za-z0-9' _).prom
events=$(mktemp) || exit
trap 'rm -f "$events"' EXIT

dlock run -k "$key" --events "$events" "$@"
code=$?

jq -r 'select(.event == "end" and .ran_ms) | .key as $key | {
  exit_code: .exit, waited_seconds: (.waited_ms / 1000), run_seconds: (.ran_ms / 1000),
  end_timestamp_seconds: (.time | sub("[.][0-9]+"; "") | fromdate)
} | to_entries[] | "# TYPE dlock_job_\(.key) gauge", "dlock_job_\(.key){key=\($key | tojson)} \(.value)"
' "$events" >"$file.new" && if [ -s "$file.new" ]; then mv "$file.new" "$file"; else rm "$file.new"; fi
exit $code
