/*!
Notices changes in time: for a waiter, the end or the entering of those before it; for a holder, changes of its own key.
*/

use etcd_client::{Event, KeyValue, WatchFilterType, WatchOptions, WatchResponse};

use crate::backend::error::Error;
use crate::backend::etcd::contender::{EtcdContender, SIGN_ANSWERED, SIGNS_OF_LIFE, Watched};
use crate::backend::etcd::errors;
use crate::backend::etcd::names::{HOLD, prefix, stem, stop};
use crate::backend::etcd::own::OwnWatch;
use crate::clock::{Instant, before, sleep_until};
use crate::lock::admission::Watch;

/// The key to watch, and the options, for the awaited event after `revision`, in the lock whose keys begin with
/// `prefix`.
fn request(watch: &Watch, prefix: &str, revision: i64) -> (String, WatchOptions) {
    let options = WatchOptions::new().with_start_revision(revision + 1);
    let ends = [WatchFilterType::NoPut];
    match watch {
        Watch::Gone(entry) => (entry.name.clone(), options.with_filters(ends)),
        // Both keys of the entry: either may say that it has entered.
        Watch::Turn(entry) => {
            let own = stem(&entry.name);
            (own.to_owned(), options.with_range(format!("{own}{HOLD}\0")))
        }
        Watch::Any(_) => (prefix.to_owned(), options.with_prefix().with_filters(ends)),
    }
}

/// The revision at which the awaited event has happened, if `message` reports it. The watch on several entries reports
/// the end of every entry of the lock.
fn revision_of(watch: &Watch, message: &WatchResponse) -> Option<i64> {
    let is_about = |kv: &&KeyValue| match watch {
        Watch::Any(entries) => {
            let key = String::from_utf8_lossy(kv.key());
            entries.iter().any(|entry| stem(&entry.name) == stem(&key))
        }
        Watch::Gone(_) | Watch::Turn(_) => true,
    };
    message.events().iter().filter_map(Event::kv).filter(is_about).map(KeyValue::mod_revision).max()
}

impl EtcdContender {
    /// Opens the watch for the event that we wait for, unless there is one.
    async fn watch(&mut self) -> Result<Option<&mut Watched>, Error> {
        let Some(session) = &mut self.session else { return Ok(None) };
        let (Some((what, revision)), Some(ttl)) = (session.awaits.clone(), session.ttl) else {
            return Ok(None);
        };
        let link = self.cluster.links();
        let known = session.watch.take().filter(|watch| watch.what == what && watch.link == link);
        let watch = if let Some(watch) = known {
            watch
        } else {
            let (key, options) = request(&what, &prefix(&self.claim), revision);
            let opened = self.cluster.ask(|mut client| async move { client.watch(key, Some(options)).await });
            match before(Instant::now() + ttl / SIGN_ANSWERED, opened).await {
                Ok(stream) => Watched { what, link, stream: stream?, works: false },
                Err(_) => return Err(self.cluster.silence()),
            }
        };
        Ok(Some(session.watch.insert(watch)))
    }

    /// Resolves when a waiter has received a change, or when it is time to look for a new holder. Sends the waiter's
    /// heartbeats meanwhile.
    pub(super) async fn hear(&mut self) -> Result<(), Error> {
        if self.watch().await?.is_none() {
            return Ok(());
        }
        loop {
            let Some(session) = &mut self.session else { return Ok(()) };
            let (Some(watch), Some(ttl)) = (&mut session.watch, session.ttl) else { return Ok(()) };
            let every = ttl / SIGNS_OF_LIFE;
            let sign_of_life = session.sent + every;
            let message = tokio::select! {
                biased;
                message = watch.stream.message() => message,
                () = sleep_until(sign_of_life) => {
                    // An attempt counts as a heartbeat too.
                    if session.news_at < sign_of_life + every || !self.show_life().await? {
                        return Ok(());
                    }
                    continue;
                }
            };
            match message {
                Ok(Some(message)) if message.canceled() => {
                    session.watch = None;
                    self.cluster.drop_link();
                    return Ok(());
                }
                Ok(Some(message)) => {
                    if let Some(revision) = revision_of(&watch.what, &message) {
                        let known = session.awaits.as_ref().map_or(0, |(_, known)| *known);
                        session.told = Some(revision.max(known));
                        return Ok(());
                    }
                    watch.works = true;
                }
                // The member is gone: a look shows the current state.
                Ok(None) | Err(_) => {
                    let worked = watch.works;
                    session.watch = None;
                    self.cluster.drop_link();
                    // Look at once, unless no watch ever works on the way to the server.
                    return if worked { Ok(()) } else { Err(errors::no_watch()) };
                }
            }
        }
    }

    /// Resolves when our key has changed or we were asked to stop; `None` if a watch cannot be opened or has ended.
    pub(super) async fn event_of_own(&mut self) -> Option<()> {
        let session = self.session.as_mut()?;
        let revision = session.renewed?;
        let link = self.cluster.links();
        let known = session.own_watch.take().filter(|watches| watches.iter().all(|watch| watch.link == link));
        let watches = if let Some(watches) = known {
            watches
        } else {
            let stop = stop(&self.claim.namespace.prefix('/'), session.lease);
            let own = OwnWatch::open(&self.cluster, &session.key, revision).await?;
            [own, OwnWatch::open(&self.cluster, &stop, revision).await?]
        };
        let [own, asked] = session.own_watch.insert(watches);
        let is_event = tokio::select! {
            is_event = own.event() => is_event,
            is_event = asked.event() => is_event,
        };
        if is_event {
            return Some(());
        }
        session.own_watch = None;
        None
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::{PbEvent, PbKeyValue, PbWatchResponse};

    use super::*;
    use crate::lock::admission::{Entry, Mode};

    fn entry(name: &str) -> Entry {
        Entry { order: 3, name: format!("dlock/a/{name}"), mode: Mode::Shared, slot: None }
    }

    /// A message that reports changes of these keys, at the revisions 7, 8 and so on.
    fn message(keys: &[&str]) -> WatchResponse {
        let event = |(key, revision): (&&str, i64)| {
            let kv =
                PbKeyValue { key: format!("dlock/a/{key}").into(), mod_revision: revision, ..PbKeyValue::default() };
            PbEvent { kv: Some(kv), ..PbEvent::default() }
        };
        WatchResponse(PbWatchResponse {
            events: keys.iter().zip(7..).map(event).collect(),
            ..PbWatchResponse::default()
        })
    }

    #[test]
    fn what_happens_to_entries_behind_ours_is_no_news() {
        let any = Watch::Any(vec![entry("6f.slots2"), entry("70.slots2.hold")]);
        for (watch, keys, expected) in [
            (&Watch::Gone(entry("6f")), &["6f"][..], Some(7)),
            (&Watch::Turn(entry("6f.slots2")), &["6f.slots2"], Some(7)),
            (&Watch::Gone(entry("6f")), &[], None),
            (&any, &[], None),
            (&any, &["6f.slots2"], Some(7)),
            // Either of its keys counts, because the other one may have ended earlier.
            (&any, &["70.slots2"], Some(7)),
            (&any, &["70.slots2.hold"], Some(7)),
            (&any, &["71.slots2", "6"], None),
            (&any, &["71.slots2", "6f.slots2", "72.slots2"], Some(8)),
        ] {
            assert_eq!(revision_of(watch, &message(keys)), expected, "{watch:?} {keys:?}");
        }
    }

    #[test]
    fn the_narrowest_range_is_watched() {
        for (watch, key) in [
            (Watch::Gone(entry("6f.hold")), "dlock/a/6f.hold"),
            (Watch::Turn(entry("6f.slots2.hold")), "dlock/a/6f.slots2"),
            (Watch::Any(vec![entry("6f.slots2")]), "dlock/a/"),
        ] {
            assert_eq!(request(&watch, "dlock/a/", 7).0, key, "{watch:?}");
        }
    }
}
