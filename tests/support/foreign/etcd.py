"""As much of etcd's API as the locks here need, by its JSON gateway."""

import base64
import json
import threading
import urllib.error
import urllib.request


class Etcd:
    def __init__(self, servers):
        self.server = servers.split(',')[0]

    def open(self, path, body, timeout=None):
        """The answer as a stream of JSON lines."""
        url = f'http://{self.server}/v3/{path}'
        request = urllib.request.Request(url, json.dumps(body).encode(), {'Content-Type': 'application/json'})
        return urllib.request.urlopen(request, timeout=timeout)

    def call(self, path, **body):
        with self.open(path, body, timeout=10) as answer:
            return json.load(answer)

    def range(self, prefix, **options):
        """The keys below `prefix` as pairs of name and create revision, the oldest first."""
        answer = self.call('kv/range', **below(prefix), **options)
        keys = [(base64.b64decode(kv['key']).decode(), int(kv['create_revision'])) for kv in answer.get('kvs', [])]
        return sorted(keys, key=lambda pair: pair[1])


class Session:
    """A lease that is kept alive until it is closed; `NewSession` of the Go client."""

    def __init__(self, etcd, lease):
        self.etcd = etcd
        grant = etcd.call('lease/grant', TTL=int(float(lease)))
        self.id = int(grant['ID'])
        self.over = threading.Event()
        threading.Thread(target=self.keep_alive, args=[int(grant['TTL'])], daemon=True).start()

    def keep_alive(self, ttl):
        while not self.over.wait(ttl / 3):
            self.etcd.call('lease/keepalive', ID=self.id)

    def close(self):
        """Ends the lease, if it has not expired on its own."""
        self.over.set()
        try:
            self.etcd.call('lease/revoke', ID=self.id)
        except urllib.error.HTTPError as error:
            if 'lease not found' not in error.read().decode():
                raise


def b64(text):
    return base64.b64encode(text.encode()).decode()


def below(prefix):
    """The range of all keys that begin with `prefix`."""
    return {'key': b64(prefix), 'range_end': b64(prefix[:-1] + chr(ord(prefix[-1]) + 1))}
