"""Locks that a program holds for as long as its command runs: the command waits until it is let go."""

import os
import subprocess

# What the command begins with: to open the pipe while we are there to keep that from waiting.
OPEN = 'exec 3< release'
# Until it is let go; then true. False when we are gone.
WAIT = 'read -r _ <&3'


class Holding:
    """A program that is given a command for `sh`, and what it says."""

    def __init__(self):
        self.child = None
        # With both ends here, neither side waits in open, and its reader goes when we do.
        os.mkfifo('release')
        self.gate = os.open('release', os.O_RDWR)

    def start(self, argv, command, **environment):
        """Runs `argv` with `command` for its shell, which says something when it begins."""
        # It must not outlive us.
        argv = ['setpriv', '--pdeathsig', 'KILL', *argv, 'sh', '-c', command]
        self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, **environment})

    def line(self):
        """Waits for the command to begin; what it says, or nothing when the program ends without it."""
        return self.child.stdout.readline().split()

    def ended(self):
        """Waits for the program to end; its exit code."""
        code = self.child.wait()
        self.child = None
        return code

    def release(self):
        os.write(self.gate, b'\n')
        if code := self.ended():
            raise RuntimeError(f'the program ended with {code}')

    def owned(self):
        return self.child is not None and self.child.poll() is None

    def close(self):
        if self.child is not None:
            self.release()
