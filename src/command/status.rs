/*!
`dlock status`: shows who holds a lock, and who waits for it.
*/

use std::time::Duration;

use crate::backend::survey::{Snapshot, State};
use crate::command::looking::{self, Session};
use crate::command::watch;
use crate::exit::{CONFLICT, Exit, Failure};
use crate::output;
use crate::report::picture;
use crate::schema;
use crate::settings::StatusSettings;

/// Prints who holds the lock; returns the exit for its state.
pub(crate) fn status(settings: &StatusSettings) -> Result<Exit, Failure> {
    watch::check(&settings.look)?;
    looking::with(&settings.look, async |session| {
        if settings.look.watch {
            return watch::watch(session, &settings.look, Some(&settings.key), async |session, width| {
                let seen = look(session, settings).await?;
                Ok(match width.filter(|_| !settings.look.json) {
                    Some(columns) => {
                        picture::watched(&seen, &session.exact_place(), Some(&settings.look.connection.flags), columns)
                    }
                    None => draw(session, settings, &seen),
                })
            })
            .await;
        }
        let seen = look(session, settings).await?;
        if let Some(length) = settings.done_within {
            return tell(session, settings, &seen, length);
        }
        if let Some(hidden) = session.hidden() {
            session.report.tell(&hidden);
        }
        if settings.look.json || !settings.look.is_silent {
            output::print(draw(session, settings, &seen).as_bytes())?;
        }
        Ok(exit(&seen.state))
    })
}

async fn look(session: &mut Session<'_>, settings: &StatusSettings) -> Result<Snapshot, Failure> {
    let failed = |error| looking::failed(&settings.key.to_string(), &error);
    let mut seen = session.look_at(&settings.key).await.map_err(failed)?;
    session.judge(&mut seen);
    let last_break = session.last_break(&settings.key).await;
    let last_success = match session.last_success(&settings.key).await {
        // Only `--done-within` depends on it.
        Err(error) if settings.done_within.is_some() => return Err(failed(error)),
        last => last.ok().flatten(),
    };
    Ok(Snapshot { last_success, ..seen.broken_by(last_break) })
}

/// Prints whether a run has succeeded within `length`; returns the exit for that.
fn tell(session: &Session<'_>, settings: &StatusSettings, seen: &Snapshot, length: Duration) -> Result<Exit, Failure> {
    let is_done = seen.last_success.as_ref().is_some_and(|done| done.is_within(length, seen.now));
    if settings.look.json {
        output::print(draw(session, settings, seen).as_bytes())?;
    } else if !settings.look.is_silent {
        output::print(picture::success(seen, &session.exact_place(), length, is_done).as_bytes())?;
    }
    Ok(if is_done { Exit::Success } else { Exit::NotAcquired(CONFLICT) })
}

fn draw(session: &Session<'_>, settings: &StatusSettings, seen: &Snapshot) -> String {
    if settings.look.json {
        schema::status(seen, &session.place)
    } else {
        picture::status(seen, &session.exact_place(), Some(&settings.look.connection.flags))
    }
}

fn exit(state: &State) -> Exit {
    match state {
        State::Free => Exit::Success,
        State::Held | State::Blocked(_) | State::Contested => Exit::NotAcquired(CONFLICT),
        State::Unknown => Exit::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_not_free_is_told_by_the_exit_code() {
        for (state, code) in [
            (State::Free, 0),
            (State::Held, 75),
            (State::Blocked("x".to_owned()), 75),
            (State::Contested, 75),
            (State::Unknown, 69),
        ] {
            assert_eq!(exit(&state).code(), code, "{state:?}");
        }
    }
}
