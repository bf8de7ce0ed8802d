#!/bin/sh
# Prints how long locks have been held and how many wait for each, for node_exporter's textfile collector:
#
#   * * * * *  metrics.sh >/var/lib/node_exporter/dlock.prom.new && mv /var/lib/node_exporter/dlock.prom.new /var/lib/node_exporter/dlock.prom
#
# Needs jq. The right to read is enough at the backend.
set -eu
dlock list --json --limit 0 -b "${DLOCK_BACKEND:-redis://locks/}" | jq -r '
  "# TYPE dlock_held_seconds gauge",
  (.locks[] | select(.holder.held_ms) | "dlock_held_seconds{key=\(.key // .place | tojson)} \(.holder.held_ms / 1000)"),
  "# TYPE dlock_waiting gauge",
  (.locks[] | select(.waiting) | "dlock_waiting{key=\(.key // .place | tojson)} \(.waiting)")'
