"""flock(1) on a file, and nothing else: there are no servers and no leases."""

import sys

import driver
import holding

BUSY = 17


class Lock(holding.Holding):
    def __init__(self, _servers, path, _lease):
        super().__init__()
        self.path = path

    def take(self, *options):
        """The process that holds the lock; None if another one holds it."""
        self.start(['flock', '-E', str(BUSY), *options, self.path], f'{holding.OPEN}; echo held; {holding.WAIT}')
        if self.line():
            return self.child.pid
        code = self.ended()
        if code != BUSY:
            raise RuntimeError(f'flock ended with {code}')
        return None

    def acquire(self):
        return self.take()

    def try_acquire(self):
        return self.take('-n')


driver.serve(Lock(*sys.argv[1:]))
