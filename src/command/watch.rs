/*!
Keeps a picture of locks up to date until Ctrl-C: in place on a terminal, as lines of JSON elsewhere.
*/

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use unicode_width::UnicodeWidthStr;

use crate::clock::{Instant, pause, sleep_until, wall_millis};
use crate::command::looking::Session;
use crate::exit::{Exit, Failure};
use crate::key::Key;
use crate::output;
use crate::printable::{moment, shortened, shown};
use crate::report;
use crate::report::event::{Event, Look};
use crate::report::picture::NEXT;
use crate::schema;
use crate::settings::LookSettings;

/// Interval between looks at one lock, unless the service says that it has changed.
const ONE: Duration = Duration::from_secs(1);
/// The least interval between looks at a list, and the interval as a multiple of the last look's duration.
const LIST: Duration = Duration::from_secs(2);
const TIMES: u32 = 8;
/// The least time from one look to the next.
const BETWEEN: Duration = Duration::from_millis(50);
/// Interval of the checks whether the reader of standard output has gone.
const GLANCE: Duration = Duration::from_millis(500);

/// Returns the width of the terminal at standard output; `None` if it is no terminal.
pub(super) fn width() -> Option<usize> {
    output::terminal().map(|(columns, _)| columns)
}

/// Refuses `--watch` if nobody could see the updates.
pub(super) fn check(settings: &LookSettings) -> Result<(), Failure> {
    let is_drawable = output::terminal().is_some() && !output::is_dumb();
    if settings.watch && !settings.json && !is_drawable {
        return Err(Failure::new(Exit::Usage, Event::Settings("--watch needs a terminal or --json".to_owned())));
    }
    Ok(())
}

/// Shows what `look` draws, and again whenever that changes, until dlock is told to stop.
pub(super) async fn watch<'a>(
    session: &mut Session<'a>,
    settings: &LookSettings,
    key: Option<&Key>,
    look: impl AsyncFn(&mut Session<'a>, Option<usize>) -> Result<String, Failure>,
) -> Result<Exit, Failure> {
    let stop = Arc::new(Notify::new());
    let told = Arc::clone(&stop);
    // Fails only if there is a handler already.
    let _ = ctrlc::set_handler(move || told.notify_one());
    let mut screen = Screen::new(settings.json, if key.is_some() { ONE } else { LIST })?;
    let watched = tokio::select! {
        biased;
        () = stop.notified() => Ok(()),
        () = closed() => Ok(()),
        watched = follow(session, key, &mut screen, look) => watched,
    };
    screen.leave()?;
    watched.map(|()| Exit::Success)
}

/// Resolves when nobody can read the output any more.
async fn closed() {
    while !output::is_closed() {
        pause(GLANCE).await;
    }
}

async fn follow<'a>(
    session: &mut Session<'a>,
    key: Option<&Key>,
    screen: &mut Screen,
    look: impl AsyncFn(&mut Session<'a>, Option<usize>) -> Result<String, Failure>,
) -> Result<(), Failure> {
    loop {
        let begun = Instant::now();
        // One column less than the terminal has: a full line drawn in place would wrap.
        match look(session, width().map(|columns| columns.saturating_sub(1))).await {
            Ok(picture) => screen.show(picture)?,
            // A failure that another look cannot mend ends this.
            Err(failure) if failure.exit != Exit::Unavailable => return Err(failure),
            Err(failure) => screen.trouble(failure.event.as_deref())?,
        }
        let now = Instant::now();
        match key {
            Some(key) => {
                tokio::select! {
                    () = session.changed(key) => sleep_until(begun + BETWEEN).await,
                    () = sleep_until(now + ONE) => {}
                }
            }
            None => sleep_until(now + LIST.max(now.since(begun) * TIMES)).await,
        }
    }
}

/// The current output.
struct Screen {
    json: bool,
    /// The last document, without its counters.
    last: Option<serde_json::Value>,
    /// The longest interval between looks.
    every: Duration,
    /// The last picture, and the time of that look.
    seen: Option<(String, Instant)>,
    /// Number of lines on the terminal.
    lines: usize,
    /// The last reported trouble.
    trouble: Option<String>,
}

impl Screen {
    fn new(json: bool, every: Duration) -> Result<Self, Failure> {
        if !json {
            output::print(b"\x1b[?25l")?;
        }
        Ok(Self { json, last: None, every, seen: None, lines: 0, trouble: None })
    }

    fn show(&mut self, picture: String) -> Result<(), Failure> {
        self.trouble = None;
        if self.json {
            let news = schema::news(&picture);
            if self.last.as_ref() == Some(&news) {
                return Ok(());
            }
            self.last = Some(news);
            return output::print(picture.as_bytes());
        }
        self.seen = Some((picture, Instant::now()));
        self.draw("")
    }

    /// Draws the last picture below the clock, and below the trouble since then.
    fn draw(&mut self, trouble: &str) -> Result<(), Failure> {
        let every = humantime::format_duration(self.every);
        let mut text = format!("{}  every {every}  Ctrl-C to leave\n", clock_at(wall_millis()));
        let age = |at| humantime::format_duration(Duration::from_secs(Instant::now().since(at).as_secs()));
        match &self.seen {
            Some((picture, _)) if trouble.is_empty() => text += picture,
            Some((picture, at)) => text = format!("{text}seen {} ago; {trouble}\n{picture}", age(*at)),
            None => text = format!("{text}{trouble}\n"),
        }
        let (text, lines) = fitted(&text, output::terminal().unwrap_or((80, 24)));
        let drawn = format!("{}{text}", self.home());
        self.lines = lines;
        output::print(drawn.as_bytes())
    }

    /// Goes back to the first line, and removes what is on the terminal.
    fn home(&self) -> String {
        if self.lines == 0 { "\r\x1b[J".to_owned() } else { format!("\x1b[{}F\x1b[J", self.lines) }
    }

    fn trouble(&mut self, event: Option<&Event>) -> Result<(), Failure> {
        let Some(event) = event else { return Ok(()) };
        if !self.json {
            return self.draw(&shown(report::sentence(event).as_bytes()).to_string());
        }
        let text = if let Event::Look(Look::Failed { reason, .. }) = event { reason.clone() } else { String::new() };
        if self.trouble.as_ref() == Some(&text) {
            return Ok(());
        }
        // The next document is news again.
        self.last = None;
        output::print(schema::trouble(&text, Exit::Unavailable.code()).as_bytes())?;
        self.trouble = Some(text);
        Ok(())
    }

    fn leave(&self) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        // The terminal may have written ^C.
        output::print(b"\r\x1b[K\x1b[?25h")
    }
}

/// Returns the time of day, as shown to people.
fn clock_at(millis: u64) -> String {
    let time = moment(millis).unwrap_or_default();
    let zone = if time.ends_with('Z') { "Z" } else { "" };
    format!("{}{zone}", time.get(11..19).unwrap_or_default())
}

/// Returns as much of the text as fits on a terminal of this size without scrolling, and the number of lines that it
/// takes there. The line to type is kept whole, and wrapped by the terminal, so that it can be copied.
fn fitted(text: &str, (columns, rows): (usize, usize)) -> (String, usize) {
    let room = rows.saturating_sub(1).max(1);
    let mut all: Vec<&str> = text.lines().collect();
    let next = all.pop_if(|line| NEXT.iter().any(|begins| line.starts_with(begins)));
    let taken = next.map_or(0, |line| line.width().div_ceil(columns.max(1)));
    let room_above = room.saturating_sub(taken);
    let kept = if all.len() > room_above { room_above.saturating_sub(1) } else { all.len() };
    let mut lines: Vec<String> = all[..kept].iter().map(|line| shortened(line, columns.saturating_sub(1))).collect();
    if all.len() > kept && room_above > 0 {
        lines.push(format!("… {} more", all.len() - kept));
    }
    let count = lines.len() + taken;
    lines.extend(next.map(str::to_owned));
    (lines.into_iter().map(|line| line + "\n").collect(), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_never_scrolls() {
        let text = "line 1\nline 2\nline 3\nline 4\nline 5\n";
        assert_eq!(fitted(text, (80, 6)), (text.to_owned(), 5));
        assert_eq!(fitted(text, (80, 5)), ("line 1\nline 2\nline 3\n… 2 more\n".to_owned(), 4));
        assert_eq!(fitted(text, (5, 24)).0, "lin…\n".repeat(5));
        assert_eq!(fitted(text, (80, 0)), ("… 5 more\n".to_owned(), 1));
        assert_eq!(fitted("", (80, 24)), (String::new(), 0));
    }

    #[test]
    fn the_line_to_type_is_never_cut() {
        let next = "  stop it  dlock break --key a-name-that-is-rather-long-for-a-lock --owner e457f1b7a38ab51a\n";
        let text = format!("line 1\nline 2\nline 3\nline 4\n{next}");
        for (size, above, lines) in [
            ((200, 24), "line 1\nline 2\nline 3\nline 4\n", 5),
            ((80, 24), "line 1\nline 2\nline 3\nline 4\n", 6),
            ((40, 24), "line 1\nline 2\nline 3\nline 4\n", 7),
            ((40, 6), "line 1\n… 3 more\n", 5),
            ((40, 3), "", 3),
        ] {
            assert_eq!(fitted(&text, size), (format!("{above}{next}"), lines), "{size:?}");
        }
    }
}
