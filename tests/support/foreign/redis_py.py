"""The `Lock` of redis-py."""

import sys

import redis

import driver


class Lock:
    def __init__(self, server, key, lease):
        self.connection = redis.Redis.from_url(server if '://' in server else f'redis://{server}')
        self.key, self.lease, self.lock = key, lease, None

    def take(self, blocking):
        timeout = None if self.lease == 'never' else float(self.lease)
        lock = self.connection.lock(self.key, timeout=timeout, sleep=0.01)
        # A late owner still has the lock object of its last lock, until it takes another.
        if not lock.acquire(blocking=blocking):
            return None
        self.lock = lock
        return lock.local.token.decode()

    def acquire(self):
        return self.take(True)

    def try_acquire(self):
        return self.take(False)

    def release(self):
        self.lock.release()

    def owned(self):
        return self.lock is not None and self.lock.owned()

    def close(self):
        self.connection.close()


driver.serve(Lock(*sys.argv[1:]))
