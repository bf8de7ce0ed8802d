"""`etcdctl lock`: a command that says the key and the revision under which it runs, and waits until it is let go."""

import os
import signal
import subprocess
import sys
import time

import driver
import etcd

# When we are killed, etcdctl has to die with the lock in its hands, and not to see a command that has ended.
COMMAND = 'echo "$ETCD_LOCK_KEY $ETCD_LOCK_REV"; read -r _ < release || kill -KILL "$PPID"'


class Lock:
    def __init__(self, servers, name, lease):
        self.servers, self.name, self.lease, self.child = servers, name, lease, None
        self.etcd = etcd.Etcd(servers)
        # With both ends here, neither side waits in open, and its reader goes when we do.
        os.mkfifo('release')
        self.gate = os.open('release', os.O_RDWR)

    def start(self):
        etcdctl = ['etcdctl', f'--endpoints={self.servers}', 'lock', f'--ttl={int(float(self.lease))}', self.name]
        # It must not outlive us.
        command = ['setpriv', '--pdeathsig', 'KILL', *etcdctl, '--', 'sh', '-c', COMMAND]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, 'ETCDCTL_API': '3'})

    def held(self):
        """Waits for the command to run; the revision."""
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f'etcdctl ended with {self.child.wait()}')
        return line.split()[1]

    def acquire(self):
        self.start()
        return self.held()

    def try_acquire(self):
        """There is no such thing in etcdctl: it is stopped when it stands in the queue behind somebody."""
        known = {key for key, _ in self.etcd.range(f'{self.name}/')}
        self.start()
        while True:
            queue = [key for key, _ in self.etcd.range(f'{self.name}/')]
            ours = [key for key in queue if key not in known]
            if ours and ours[0] == queue[0]:
                return self.held()
            if ours:
                break
            if self.child.poll() is not None:
                raise RuntimeError(f'etcdctl ended with {self.child.returncode}')
            time.sleep(0.002)
        self.child.send_signal(signal.SIGINT)
        self.child.wait()
        self.child = None
        return None

    def release(self):
        os.write(self.gate, b'\n')
        code = self.child.wait()
        self.child = None
        if code:
            raise RuntimeError(f'etcdctl ended with {code}')

    def owned(self):
        return self.child is not None and self.child.poll() is None

    def close(self):
        if self.child is not None:
            self.release()


driver.serve(Lock(*sys.argv[1:]))
