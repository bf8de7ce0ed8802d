"""Lets a test drive one lock of another library: requests on standard input, one a line, each answered by a line.

acquire         -> held TOKEN          waits for the lock as long as it takes
try             -> held TOKEN | busy   does not wait
release         -> released
owned           -> yes | no            whether the library says that it holds the lock
lease SECONDS   -> ok                  how long the next lock is held without a renewal, where that can be chosen
anything        -> error NAME: TEXT    when the library raises an exception

TOKEN orders the holders where the library has such a thing, and identifies this one elsewhere.
"""

import sys


def serve(lock):
    """Answers until the end of the input, then closes the lock's connections."""

    def answer(verb, *words):
        if verb == 'acquire':
            return f'held {lock.acquire()}'
        if verb == 'try':
            token = lock.try_acquire()
            return 'busy' if token is None else f'held {token}'
        if verb == 'release':
            lock.release()
            return 'released'
        if verb == 'owned':
            return 'yes' if lock.owned() else 'no'
        if verb == 'lease':
            lock.lease = words[0]
            return 'ok'
        raise ValueError(verb)

    print('ready', flush=True)
    for line in sys.stdin:
        try:
            print(answer(*line.split()), flush=True)
        except Exception as error:
            text = ' '.join(str(error).split())
            print(f'error {type(error).__name__}: {text}', flush=True)
    lock.close()
