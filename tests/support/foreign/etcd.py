"""As much of etcd's API as the locks here need, by its JSON gateway."""

import base64
import json
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


def b64(text):
    return base64.b64encode(text.encode()).decode()


def below(prefix):
    """The range of all keys that begin with `prefix`."""
    return {'key': b64(prefix), 'range_end': b64(prefix[:-1] + chr(ord(prefix[-1]) + 1))}
