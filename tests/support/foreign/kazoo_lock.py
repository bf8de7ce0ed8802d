"""The `Lock`, `ReadLock` or `WriteLock` of kazoo, whichever is named first."""

import logging
import sys

import kazoo.client

import driver

logging.basicConfig()


class Lock:
    def __init__(self, kind, servers, path, lease):
        self.client = kazoo.client.KazooClient(hosts=servers, timeout=float(lease))
        self.client.start()
        self.path = path
        self.lock = getattr(self.client, kind)(path, identifier='kazoo')

    def take(self, blocking):
        if not self.lock.acquire(blocking=blocking):
            return None
        return self.client.exists(f'{self.path}/{self.lock.node}').czxid

    def acquire(self):
        return self.take(True)

    def try_acquire(self):
        return self.take(False)

    def release(self):
        self.lock.release()

    def owned(self):
        return self.lock.is_acquired

    def close(self):
        self.client.stop()
        self.client.close()


driver.serve(Lock(*sys.argv[1:]))
