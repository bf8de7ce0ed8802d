#!/bin/sh
# Locks itself: whoever starts this script, and on whichever host, at most one of them runs at a time.
# The second line starts the script again, under the lock. Another run ends with 75 at once.
[ "${DLOCK_KEY-}" = nightly ] || exec dlock run -n -b "${DLOCK_BACKEND:-redis://locks/}" -k nightly -- "$0" "$@"

echo "running under the lock $DLOCK_KEY, token $DLOCK_TOKEN"
