#!/bin/sh
# Prints whether locks can be looked at, how long they have been held, how many wait for each, and when runs with --once-per last
# succeeded, for node_exporter's textfile collector:
#
#   * * * * *  metrics.sh >/var/lib/node_exporter/dlock.prom.new; mv /var/lib/node_exporter/dlock.prom.new /var/lib/node_exporter/dlock.prom
#
# Alert on dlock_up == 0, because then nothing else is known; see alerts.yml. Exits as dlock list does. Needs jq. Read access to the backend is enough.
set -u
locks=$(dlock list --json --limit 0 -b "${DLOCK_BACKEND:-redis://locks/}")
code=$?
echo '# HELP dlock_up Whether the backend could be asked for its locks.'
echo '# TYPE dlock_up gauge'
echo "dlock_up $((code == 0))"
[ "$code" -eq 0 ] || exit "$code"
printf '%s\n' "$locks" | jq -r '
  "# HELP dlock_held_seconds How long the lock has been held.",
  "# TYPE dlock_held_seconds gauge",
  (.locks[] | select(.holder.held_ms) | "dlock_held_seconds{key=\(.key // .place | tojson)} \(.holder.held_ms / 1000)"),
  "# HELP dlock_waiting How many wait for the lock.",
  "# TYPE dlock_waiting gauge",
  (.locks[] | select(.waiting) | "dlock_waiting{key=\(.key // .place | tojson)} \(.waiting)"),
  "# HELP dlock_last_success_seconds When a run with --once-per last succeeded, in seconds since 1970.",
  "# TYPE dlock_last_success_seconds gauge",
  (.last_successes[]? | select(.at) |
    "dlock_last_success_seconds{key=\(.key // .place | tojson)} \(.at | sub("[.][0-9]+"; "") | fromdate)")'
