/*!
`dlock acquire`: takes a lock that outlives this process, and prints its handle.
*/

use std::time::Duration;

use crate::backend::contract::contender::{Grant, Lease, NO_HANDLES, Renewal, Used};
use crate::clock::{Instant, before};
use crate::command::gripping::lost;
use crate::command::keeping;
use crate::command::session::{play, refuse, told_to_stop};
use crate::command::taking::{Prepared, Taking, begin, prepare};
use crate::exit::{Exit, Failure};
use crate::handle::Handle;
use crate::lease::taking::{TAKE_BACK, give_back};
use crate::lease::timing::acquire_timeout;
use crate::output;
use crate::report::Report;
use crate::report::event::Event;
use crate::settings::AcquireSettings;

/// Takes the lock and prints its handle; returns dlock's exit.
pub(crate) fn acquire(settings: &AcquireSettings) -> Exit {
    if let Some(keeping) = &settings.keeping {
        return keeping::acquire(settings, keeping);
    }
    let mut report = Report::new(settings.verbosity);
    let prepared = begin(settings, &mut report).and_then(|owner| prepare(settings, &report, owner));
    let exit = perform(settings, &report, prepared);
    report.close_journal(exit.code());
    exit
}

fn perform(settings: &AcquireSettings, report: &Report, prepared: Result<Prepared, Failure>) -> Exit {
    match prepared {
        Ok(Prepared { signals, contender, handle, traces }) => play(report, signals, |mut signals| async move {
            let mut taking = Taking::new(settings, report, contender, traces);
            let outcome = tokio::select! {
                biased;
                signal = told_to_stop(&mut signals) => Ok(Err(signal)),
                taken = taking.take() => taken.map(Ok),
            };
            match outcome {
                Ok(Ok((grant, waited))) => hand_over(&mut taking, handle, &grant, waited).await,
                Ok(Err(signal)) => {
                    report.keep();
                    // The queue is left at once; what could not be taken back will expire.
                    let _ = give_back(taking.contender.as_mut(), Used::No, TAKE_BACK).await;
                    Ok(Exit::Signal(signal))
                }
                Err(failure) => Err(failure),
            }
        }),
        Err(failure) => refuse(report, &failure),
    }
}

/// Prints the handle, and gives the lock back if nobody reads it.
async fn hand_over(
    taking: &mut Taking<'_>,
    mut handle: Handle,
    grant: &Grant,
    waited: Duration,
) -> Result<Exit, Failure> {
    if matches!(grant.lease, Lease::Unlimited { .. }) {
        let _ = give_back(taking.contender.as_mut(), Used::No, TAKE_BACK).await;
        return Err(Failure::new(Exit::Usage, Event::Settings(NO_HANDLES.to_owned())));
    }
    let text = taking.granted(&mut handle, grant, waited);
    // After a wait, the service is told the holder and since when it holds the lock. That goes before this request, and
    // must not end with this process. A missing answer proves nothing.
    let renewed = before(Instant::now() + acquire_timeout(handle.ttl), taking.contender.renew()).await;
    if let Ok(Ok(Renewal::NotMine(why))) = renewed {
        return Err(lost(&handle, why));
    }
    if let Err(failure) = output::deliver(text.as_bytes()) {
        let _ = give_back(taking.contender.as_mut(), Used::No, TAKE_BACK).await;
        return Err(failure);
    }
    taking.tell_acquired(&handle, grant, waited);
    Ok(Exit::Success)
}
