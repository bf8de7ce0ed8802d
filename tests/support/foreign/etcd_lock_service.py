"""etcd's own lock service (`v3lock`), with a lease for each acquisition: the same lease would be the same lock."""

import http.client
import json
import sys
import time

import driver
import etcd
from etcd import b64


class Lock:
    def __init__(self, servers, name, lease):
        self.etcd = etcd.Etcd(servers)
        self.name, self.lease = name, lease
        self.session, self.key = None, None

    def ask(self, session):
        """Asks for the lock; returns the connection over which the answer will come."""
        connection = http.client.HTTPConnection(self.etcd.server)
        connection.request('POST', '/v3/lock/lock', json.dumps({'name': b64(self.name), 'lease': session.id}))
        return connection

    def hear(self, session, connection):
        """Waits for the lock; returns the revision."""
        answer = json.load(connection.getresponse())
        connection.close()
        self.key, self.session = answer['key'], session
        return int(answer['header']['revision'])

    def acquire(self):
        session = etcd.Session(self.etcd, self.lease)
        return self.hear(session, self.ask(session))

    def try_acquire(self):
        """Not part of the service: the request is dropped once its key is in the queue behind another one."""
        session = etcd.Session(self.etcd, self.lease)
        connection = self.ask(session)
        own = f'{self.name}/{session.id:x}'
        while own not in (queue := [key for key, _ in self.etcd.range(f'{self.name}/')]):
            time.sleep(0.002)
        if queue[0] == own:
            return self.hear(session, connection)
        connection.close()
        session.close()
        return None

    def release(self):
        key, session, self.key, self.session = self.key, self.session, None, None
        self.etcd.call('lock/unlock', key=key)
        session.close()

    def owned(self):
        return self.key is not None and bool(self.etcd.call('kv/range', key=self.key).get('kvs'))

    def close(self):
        if self.key is not None:
            self.release()


driver.serve(Lock(*sys.argv[1:]))
