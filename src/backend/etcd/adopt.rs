/*!
Takes over another process's lease and key at the cluster, whose names are derived from the owner's id.
*/

use etcd_client::{GetOptions, KeyValue};

use crate::backend::contract::contender::token as valid_token;
use crate::backend::error::Error;
use crate::backend::etcd::contender::{EtcdContender, Session};

/// The create revision of our key if it is the key that was granted with `token`; 0, which no key has, if the key is
/// missing or was created later.
fn created(own: Option<&KeyValue>, token: u64) -> i64 {
    let granted = |kv: &&KeyValue| valid_token(kv.create_revision()).is_some_and(|created| created <= token);
    own.filter(granted).map_or(0, KeyValue::create_revision)
}

impl EtcdContender {
    /// Takes over the lock that was granted with `token`. Reads our key, and changes nothing at the cluster.
    pub(super) async fn adopt_session(&mut self, token: u64) -> Result<(), Error> {
        let mut session = Session::new(&self.claim);
        let (key, options) = (session.key.clone(), GetOptions::new().with_keys_only());
        let read = self.cluster.ask(|mut client| async move { client.get(key, Some(options)).await }).await?;
        // A lock is granted at or after its key's create revision, and the key keeps that revision.
        (session.created, session.ttl) = (Some(created(read.kvs().first(), token)), Some(self.claim.ttl));
        session.token = Some(token);
        self.session = Some(session);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::PbKeyValue;

    use super::*;

    #[test]
    fn a_key_that_was_made_after_the_grant_is_another_one() {
        let kv = |create_revision| KeyValue(PbKeyValue { create_revision, ..PbKeyValue::default() });
        assert_eq!(created(None, 7), 0);
        for (made, token, expected) in [(7, 7, 7), (6, 7, 6), (8, 7, 0), (0, 7, 0), (-1, 7, 0)] {
            assert_eq!(created(Some(&kv(made)), token), expected, "{made} {token}");
        }
    }
}
