"""What `concurrency.Mutex` of etcd's Go client does, request by request (client/v3/concurrency)."""

import json
import sys

import driver
import etcd
from etcd import b64


class Lock:
    def __init__(self, servers, name, lease):
        self.etcd = etcd.Etcd(servers)
        self.prefix, self.session = f'{name}/', etcd.Session(self.etcd, lease)
        self.id, self.key, self.revision = self.session.id, None, None

    def try_enter(self):
        """The transaction that both begin with; returns the owner's create revision, and the header's."""
        key = f'{self.prefix}{self.id:x}'
        owner = {'request_range': {**etcd.below(self.prefix), 'sort_order': 'ASCEND', 'sort_target': 'CREATE', 'limit': 1}}
        put = {'request_put': {'key': b64(key), 'value': '', 'lease': self.id}}
        get = {'request_range': {'key': b64(key)}}
        is_new = {'key': b64(key), 'target': 'CREATE', 'result': 'EQUAL', 'create_revision': 0}
        answer = self.etcd.call('kv/txn', compare=[is_new], success=[put, owner], failure=[get, owner])
        header = int(answer['header']['revision'])
        first, second = answer['responses']
        own = header if answer.get('succeeded') else int(first['response_range']['kvs'][0]['create_revision'])
        self.key, self.revision = key, own
        return int(second['response_range']['kvs'][0]['create_revision']), header

    def acquire(self):
        owner, header = self.try_enter()
        if owner == self.revision:
            return header
        self.wait_deletes()
        # The answer counts, and not the wait: the lease may have expired.
        answer = self.etcd.call('kv/range', key=b64(self.key))
        if not answer.get('kvs'):
            raise RuntimeError('session expired')
        return answer['header']['revision']

    def wait_deletes(self):
        """Waits until no key before its own is left, and watches only the last of them."""
        while True:
            options = {'sort_order': 'DESCEND', 'sort_target': 'CREATE', 'limit': 1}
            answer = self.etcd.call('kv/range', **etcd.below(self.prefix), **options,
                                    max_create_revision=self.revision - 1)
            if not answer.get('kvs'):
                return
            last, start = answer['kvs'][0]['key'], answer['header']['revision']
            request = {'create_request': {'key': last, 'start_revision': start}}
            with self.etcd.open('watch', request) as stream:
                for line in stream:
                    events = json.loads(line)['result'].get('events', [])
                    if any(event.get('type') == 'DELETE' for event in events):
                        break

    def try_acquire(self):
        owner, header = self.try_enter()
        if owner == self.revision:
            return header
        self.release()
        return None

    def release(self):
        self.etcd.call('kv/deleterange', key=b64(self.key))
        self.key = None

    def owned(self):
        """As `IsOwner` compares it."""
        if self.key is None:
            return False
        kvs = self.etcd.call('kv/range', key=b64(self.key)).get('kvs', [])
        return any(int(kv['create_revision']) == self.revision for kv in kvs)

    def close(self):
        self.session.close()


driver.serve(Lock(*sys.argv[1:]))
