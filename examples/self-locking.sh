#!/bin/sh
# Locks itself: whoever starts this script, and on whichever host, at most one of them runs at a time.
# The last of these lines starts the script again, under the lock. Another run exits with 75 at once.
DLOCK_BACKEND=${DLOCK_BACKEND:-redis://locks/}
export DLOCK_BACKEND
dlock held -k nightly || exec dlock run -n -k nightly -- "$0" "$@"

echo "running under the lock $DLOCK_KEY, token $DLOCK_TOKEN"
