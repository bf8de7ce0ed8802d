"""Locks that a program holds for as long as its command runs: the command waits until it is let go."""

import os
import subprocess

# The beginning of the command: it opens the pipe while this program has it open too, so that it need not wait.
OPEN = 'exec 3< release'
# Waits until it is let go, and is true then; false if this program is gone.
WAIT = 'read -r _ <&3'


class Holding:
    """A program that runs a command by `sh`, and its output."""

    def __init__(self):
        self.child = None
        # With both ends open here, neither side waits in open, and the reader ends with this program.
        os.mkfifo('release')
        self.gate = os.open('release', os.O_RDWR)

    def start(self, argv, command, **environment):
        """Runs `argv` with `command` for its shell, which prints something when it begins."""
        # It must not outlive this program.
        argv = ['setpriv', '--pdeathsig', 'KILL', *argv, 'sh', '-c', command]
        self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, **environment})

    def line(self):
        """Waits for the command to begin, and returns its words; none if the program ends without it."""
        return self.child.stdout.readline().split()

    def ended(self):
        """Waits for the program to end; returns its exit code."""
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
