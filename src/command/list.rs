/*!
`dlock list`: lists every lock in the namespace that is held or blocked.
*/

use crate::backend::survey::Names;
use crate::clock::wall_millis;
use crate::command::looking::{self, Session};
use crate::command::watch;
use crate::exit::{Exit, Failure};
use crate::key::Key;
use crate::output;
use crate::report;
use crate::report::event::{Event, Look};
use crate::report::picture::Table;
use crate::schema::listing::Listing;
use crate::settings::ListSettings;

/// Number of locks to read and print before asking for the next ones.
const TOGETHER: usize = 250;
/// The name of the lock that is looked at to find out whether the service answers.
const ANY: &str = "dlock";

/// Prints all locks that are held.
pub(crate) fn list(settings: &ListSettings) -> Result<Exit, Failure> {
    watch::check(&settings.look)?;
    looking::with(&settings.look, async |session| {
        if settings.look.watch {
            let look = async |session: &mut Session<'_>, width| {
                let mut text = String::new();
                let mut sink = |part: &str| {
                    text.push_str(part);
                    Ok(())
                };
                let remarks = draw(session, settings, width, &mut sink).await?;
                if text.is_empty()
                    && let Some(remark) = remarks.first()
                {
                    text = report::sentence(remark) + "\n";
                }
                Ok(text)
            };
            return watch::watch(session, &settings.look, None, look).await;
        }
        let remarks = draw(session, settings, watch::width(), &mut |part| output::print(part.as_bytes())).await?;
        for remark in &remarks {
            session.report.tell(remark);
        }
        Ok(Exit::Success)
    })
}

/// Draws the list into `sink`, in parts as it is read, and returns remarks about it.
async fn draw(
    session: &mut Session<'_>,
    settings: &ListSettings,
    width: Option<usize>,
    sink: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<Vec<Event>, Failure> {
    let (begun, what) =
        (wall_millis(), format!("the locks in the namespace '{}'", settings.look.connection.namespace.as_str()));
    // Gives up on a silent server in time: a list may take long, but one lock does not.
    if let Ok(key) = Key::parse(ANY.as_ref()) {
        session.look_at(&key).await.map_err(|error| looking::failed(&what, &error))?;
    }
    let names = session.look(async |survey| survey.names(&settings.prefix, settings.limit).await).await;
    let mut names = names.map_err(|error| looking::failed(&what, &error))?;
    let (mut listing, mut table, mut shown) = (Listing::new(begun), Table::new(width), 0);
    let found = std::mem::take(&mut names.found);
    for locations in found.chunks(TOGETHER) {
        let seen = session.look(async |survey| survey.look_at(locations).await).await;
        let mut locks = seen.map_err(|error| looking::failed(&what, &error))?;
        for seen in &mut locks {
            session.judge(seen);
        }
        shown += locks.len() as u64;
        if settings.look.json { sink(&listing.part(&locks, &session.place))? } else { sink(&table.part(&locks))? }
    }
    if settings.look.json {
        // Locks that were freed meanwhile are not mentioned.
        let total = if names.is_cut { names.total } else { Some(shown) };
        let successes = session.look(async |survey| survey.last_successes(&settings.prefix).await).await.ok();
        let met = session.look(async |survey| survey.meetings(&settings.prefix).await).await.ok();
        sink(&listing.end(&session.place, successes.as_ref(), met.as_ref(), total, names.is_cut))?;
    } else {
        sink(&table.end())?;
    }
    Ok(remarks(session, settings, &names, shown))
}

/// Returns remarks about the list as a whole.
fn remarks(session: &Session<'_>, settings: &ListSettings, names: &Names, shown: u64) -> Vec<Event> {
    let place = session.exact_place();
    let mut remarks = Vec::new();
    if names.is_cut {
        remarks.push(Look::MoreLocks { shown, total: names.total });
    }
    if names.only_own {
        remarks.push(Look::OnlyOwnLocks(place.clone()));
    }
    if names.is_partial {
        remarks.push(Look::OnlyThisNamespace);
    }
    if remarks.is_empty() && shown == 0 {
        // Lock files belong to a directory, not to a namespace.
        let is_of_files = session.place.backend.starts_with("file:");
        let namespace = settings.look.connection.namespace.as_str();
        let namespace = if is_of_files { String::new() } else { namespace.to_owned() };
        remarks.push(Look::NoLocks { namespace, place });
    }
    remarks.into_iter().map(Event::Look).chain(session.hidden()).collect()
}
