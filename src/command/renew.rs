/*!
`dlock renew`: extends a lock by its handle.
*/

use crate::backend::contract::contender::{Lease, Renewal};
use crate::command::gripping::{self, held, lost};
use crate::command::session::exit_of;
use crate::exit::{Exit, Failure};
use crate::lease::adopting;
use crate::lease::waiting::Wait;
use crate::report::event::Event;
use crate::report::event::handle::HandleEvent;
use crate::settings::HandleSettings;

/// Extends the lock; returns dlock's exit.
pub(crate) fn renew(settings: &HandleSettings) -> Result<Exit, Failure> {
    let empty = |_: &_| {
        let what = "the handle is empty: the lock was not acquired";
        Err(Failure::new(Exit::Usage, Event::Settings(what.to_owned())))
    };
    gripping::with(settings, empty, async |grip| {
        let (key, connect) = (grip.handle.key.clone(), grip.connection.connect_timeout);
        let renewed = adopting::renew(grip.contender.as_mut(), &held(grip.handle), connect, Wait::No).await;
        match renewed {
            Ok(Renewal::Extended(lease) | Renewal::Asked(lease, _)) => {
                let ttl = match lease {
                    Lease::Until { ttl, .. } => ttl,
                    Lease::Unlimited { .. } => grip.handle.ttl,
                };
                grip.report.tell(&Event::Handle(HandleEvent::Renewed { key, ttl }));
                Ok(Exit::Success)
            }
            Ok(Renewal::NotMine(why)) => Err(lost(grip.handle, why)),
            Err(failed) => {
                let (place, ttl) = (grip.place(), grip.handle.lasts());
                let event = HandleEvent::NotRenewed { key, place, reason: failed.trouble, ttl };
                Err(Failure::new(exit_of(failed.kind), Event::Handle(event)))
            }
        }
    })
}
