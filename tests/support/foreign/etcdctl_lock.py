"""`etcdctl lock`: a command that prints its key and revision, and waits until it is let go."""

import signal
import sys
import time

import driver
import etcd
import holding

# When this program is killed, etcdctl has to die while it holds the lock, and must not see its command end.
COMMAND = f'{holding.OPEN}; echo "$ETCD_LOCK_KEY $ETCD_LOCK_REV"; {holding.WAIT} || kill -KILL "$PPID"'


class Lock(holding.Holding):
    def __init__(self, servers, name, lease):
        super().__init__()
        self.servers, self.name, self.lease = servers, name, lease
        self.etcd = etcd.Etcd(servers)

    def begin(self):
        lock = ['lock', f'--ttl={int(float(self.lease))}', self.name]
        self.start(['etcdctl', f'--endpoints={self.servers}', *lock, '--'], COMMAND, ETCDCTL_API='3')

    def held(self):
        """Waits for the command to run; returns the revision."""
        words = self.line()
        if not words:
            raise RuntimeError(f'etcdctl ended with {self.ended()}')
        return words[1]

    def acquire(self):
        self.begin()
        return self.held()

    def try_acquire(self):
        """Not an option of etcdctl: it is stopped once it is in the queue behind another contender."""
        known = {key for key, _ in self.etcd.range(f'{self.name}/')}
        self.begin()
        while True:
            queue = [key for key, _ in self.etcd.range(f'{self.name}/')]
            ours = [key for key in queue if key not in known]
            if ours and ours[0] == queue[0]:
                return self.held()
            if ours:
                break
            if self.child.poll() is not None:
                raise RuntimeError(f'etcdctl ended with {self.ended()}')
            time.sleep(0.002)
        self.child.send_signal(signal.SIGINT)
        self.ended()
        return None


driver.serve(Lock(*sys.argv[1:]))
