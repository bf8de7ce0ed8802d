"""The `Redlock` of redlock-py."""

import random
import sys
import time

import redlock

import driver


class Lock:
    def __init__(self, servers, key, lease):
        places = [server.split(':') for server in servers.split(',')]
        options = {'socket_timeout': 0.5, 'socket_connect_timeout': 0.5}
        self.servers = [{'host': host, 'port': int(port), **options} for host, port in places]
        # A single attempt, so that this program decides whether to wait; the library pauses after a failed one.
        self.manager = redlock.Redlock(self.servers, retry_count=1, retry_delay=0.001)
        self.key, self.lease, self.lock = key, lease, None

    def try_acquire(self):
        lock = self.manager.lock(self.key, int(float(self.lease) * 1000))
        if not lock:
            return None
        self.lock = lock
        return lock.key.decode()

    def acquire(self):
        while True:
            token = self.try_acquire()
            if token is not None:
                return token
            # Otherwise two of them would split the vote forever.
            time.sleep(random.uniform(0.01, 0.05))

    def release(self):
        self.manager.unlock(self.lock)

    def owned(self):
        if self.lock is None:
            return False
        values = [server.get(self.key) for server in self.manager.servers]
        return values.count(self.lock.key) >= self.manager.quorum

    def close(self):
        for server in self.manager.servers:
            server.close()


driver.serve(Lock(*sys.argv[1:]))
