/*!
What the holder of a lock publishes about itself, and how it is read back.

The published text is JSON that begins with `{"v":1,"id":"…",`, or with `{"v":1,"hold":…,"id":"…",` where the lock is to be
held for so many milliseconds at least; ownership is compared by that beginning. A lock that is only kept for that time
and not used any more begins with `{"v":1,"done":true,` instead of `{"v":1,`. Readers take what they know and ignore the rest,
so that a newer dlock may say more.
*/

use std::fmt::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::printable::{MAX_SHOWN, shown};

/// How long [`About::rest`] may be: with the owner's id, the token and the time it stays within [`MAX_SHOWN`].
const MAX_REST: usize = MAX_SHOWN - 256;

/// What is appended to the name of a locked file that is not dlock's own, for the file beside it that has what the holder
/// publishes.
pub(crate) const BESIDE: &str = ".dlock";

/// How the text of a holder begins that does not use its lock any more.
const DONE: &str = "{\"v\":1,\"done\":true,";

/// The published `text`, as it is when its holder does not use the lock any more.
#[must_use]
pub(crate) fn finished(text: &str) -> String {
    text.replacen("{\"v\":1,", DONE, 1)
}

/// Whether this is the text of a holder that does not use its lock any more.
#[must_use]
pub(crate) fn is_finished(text: &[u8]) -> bool {
    text.starts_with(DONE.as_bytes())
}

/// The id of one acquisition: 128 random bits in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner(String);

impl Owner {
    /// A new id. Fails where the kernel gives no random numbers.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{:032x}", u128::from_ne_bytes(bytes))))
    }

    /// The id as text.
    #[must_use]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// How the published text of this owner begins, under a claim that holds the lock for `min_hold` at least; no other
    /// owner's does.
    #[must_use]
    pub(crate) fn prefix(&self, min_hold: Duration) -> String {
        let hold = if min_hold.is_zero() { String::new() } else { format!("\"hold\":{},", min_hold.as_millis()) };
        format!("{{\"v\":1,{hold}\"id\":\"{}\",", self.0)
    }
}

/// What a holder publishes about itself, without what the grant adds (token, time).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct About {
    /// The host's name.
    pub host: String,
    /// The user's name, or the number of one without a name.
    pub user: String,
    /// dlock's process id.
    pub pid: i32,
    /// The program's name, never its arguments.
    pub program: String,
    /// The lease in milliseconds; none for a lock without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// `--reason`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The CI job's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl About {
    /// Shortened until it can be read back as a whole: readers look at [`MAX_SHOWN`] bytes, and cannot find the owner
    /// in a truncated text.
    #[must_use]
    pub(crate) fn fitted(mut self) -> Self {
        while self.rest().len() > MAX_REST {
            if self.job.take().is_some() {
                continue;
            }
            let reason = self.reason.as_mut().filter(|reason| reason.len() >= self.program.len());
            let longest = reason.unwrap_or(&mut self.program);
            let mut cut = longest.len() / 4 * 3;
            while !longest.is_char_boundary(cut) {
                cut -= 1;
            }
            longest.truncate(cut);
            if cut == 0 {
                break;
            }
        }
        self
    }

    /// The published text after [`Owner::prefix`] and after what the grant adds: the rest of the JSON object.
    #[must_use]
    pub(crate) fn rest(&self) -> String {
        // A struct of texts and numbers always serializes; its first byte is the brace that the prefix has.
        let json = serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned());
        json[1..].to_owned()
    }
}

/// A dlock that holds a lock, as read back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Published {
    /// The format's version.
    pub v: u32,
    /// The owner's id.
    pub id: String,
    /// The fencing token.
    pub token: Option<u64>,
    /// When the lock was granted, in milliseconds since 1970.
    pub since: Option<u64>,
    /// For how many milliseconds it is held at least (`--min-hold`).
    pub hold: Option<u64>,
    /// Until when it stays taken at least (`--min-hold`), in milliseconds since 1970.
    pub until: Option<u64>,
    /// Whether its holder has finished, and it is only kept until then.
    pub done: bool,
    /// What the holder publishes about itself.
    #[serde(flatten)]
    pub about: About,
}

/// Who holds a lock, as far as can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A dlock.
    Dlock(Box<Published>),
    /// Another program, with the value that it wrote.
    Foreign(Vec<u8>),
    /// Another program on this host, by process id and name.
    Process(i32, String),
    /// Something that is not a lock occupies the name; a description of it.
    InTheWay(String),
    /// Nobody: the lock is free, and the first waiter is about to take it.
    Nobody,
    /// The service does not tell.
    Unknown,
}

impl Published {
    /// Until when the lock stays taken at least, in milliseconds since 1970; none without a minimum hold.
    fn kept_until(&self) -> Option<u64> {
        self.until.or_else(|| Some(self.since?.saturating_add(self.hold?)))
    }
}

impl Holder {
    /// Reads what a holder published.
    #[must_use]
    pub(crate) fn read(text: &[u8]) -> Self {
        match serde_json::from_slice::<Published>(text) {
            Ok(published) if published.v >= 1 && !published.id.is_empty() => Self::Dlock(Box::new(published)),
            _ => Self::Foreign(text.to_vec()),
        }
    }

    /// This holder as one that has finished: it does not use the lock any more, which only stays taken.
    #[must_use]
    pub(crate) fn finished(mut self) -> Self {
        if let Self::Dlock(published) = &mut self {
            published.done = true;
        }
        self
    }

    /// The owner's id, when it is a dlock.
    #[must_use]
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::Dlock(published) => Some(&published.id),
            _ => None,
        }
    }

    /// The holder in words: `held by …`, safe for a terminal and at most 4 KiB long. `now` is the time in
    /// milliseconds since 1970 by the clock that granted the lock.
    #[must_use]
    pub(crate) fn describe(&self, now: u64) -> String {
        let line = match self {
            Self::Dlock(published) => describe(published, now),
            Self::Foreign(text) if text.is_empty() => "held by another program".to_owned(),
            Self::Foreign(text) => format!("held by another program: {}", shown(text)),
            Self::Process(pid, name) => format!("held by {} (pid {pid})", shown(name.as_bytes())),
            Self::InTheWay(what) => format!("blocked by {}", shown(what.as_bytes())),
            Self::Nobody => "free, and the next in line is about to take it".to_owned(),
            Self::Unknown => "held".to_owned(),
        };
        shown(line.as_bytes()).to_string()
    }
}

fn describe(published: &Published, now: u64) -> String {
    let about = &published.about;
    let text = |text: &str| shown(text.as_bytes()).to_string();
    let mut line = format!("held by {}@{}, pid {}", text(&about.user), text(&about.host), about.pid);
    if !about.program.is_empty() {
        let _ = write!(line, " ({})", text(&about.program));
    }
    let seconds = |millis: u64| humantime::format_duration(Duration::from_secs(millis / 1000));
    // By a clock that is not known, nothing is left of it or over.
    let kept = published.kept_until().filter(|&until| now > 0 && until > now);
    if published.done {
        line.push_str(", finished");
        if let (Some(until), Some(at)) = (kept, kept.and_then(moment)) {
            let _ = write!(line, "; kept until {at} (another {}, --min-hold)", seconds(until - now));
        }
    } else if let Some(since) = published.since {
        if let Some(at) = moment(since) {
            let _ = write!(line, ", since {at} ({})", seconds(now.saturating_sub(since)));
        }
        if let Some(at) = kept.and_then(moment) {
            let _ = write!(line, ", at least until {at} (--min-hold)");
        }
    }
    if let Some(reason) = &about.reason {
        let _ = write!(line, ", reason: {}", text(reason));
    }
    if let Some(job) = &about.job {
        let _ = write!(line, ", {}", text(job));
    }
    line
}

/// This time in milliseconds since 1970, to the second; none beyond the year 9999, which the formatter refuses: such a time
/// is nonsense anyway.
fn moment(millis: u64) -> Option<humantime::Rfc3339Timestamp> {
    let at = std::time::UNIX_EPOCH.checked_add(Duration::from_millis(millis));
    at.filter(|_| millis < 253_402_300_800_000).map(humantime::format_rfc3339_seconds)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    /// What a foreign client, a newer dlock or a hostile one may have written.
    fn any_mark() -> impl Strategy<Value = Vec<u8>> {
        const PIECES: &str = "\
            {|}|[|]|:|,|\"|\"v\":1,|\"v\":2,|\"id\":\"x\",|\"token\":9,|\"since\":|\"user\":\"u\"|\"pid\":\
            |\"ttl\":|\\u001b[2J|\u{202e}|\n|\0|18446744073709551615|-1|1e300|null|true";
        let long = (any::<Vec<u8>>(), 0..3000_usize).prop_map(|(bytes, times)| bytes.repeat(times));
        let published = (any_about(), any::<u32>(), any::<String>(), any::<u64>(), any::<u64>()).prop_map(
            |(about, v, id, token, since)| {
                let id = serde_json::to_string(&id).expect("text");
                format!("{{\"v\":{v},\"id\":{id},\"token\":{token},\"since\":{since},{}", about.rest()).into_bytes()
            },
        );
        prop_oneof![2 => any::<Vec<u8>>(), 2 => made_of(PIECES).prop_map(String::into_bytes), 1 => long, 4 => published]
    }

    /// What a dlock may publish: only the names of host and user are bounded, by the system.
    fn any_about() -> impl Strategy<Value = About> {
        let text =
            || prop_oneof![any::<String>(), ("[ -~]|\\PC|[\\x00-\\x1f]", 0..6000_usize).prop_map(|(c, n)| c.repeat(n))];
        let name = || vec(any::<char>(), 0..64).prop_map(String::from_iter);
        let rest = (any::<i32>(), option::of(any::<u64>()), option::of(text()), option::of(text()));
        (name(), name(), text(), rest).prop_map(|(host, user, program, (pid, ttl, reason, job))| About {
            host,
            user,
            pid,
            program,
            ttl,
            reason,
            job,
        })
    }

    #[test]
    fn whatever_is_at_the_key_is_described_in_a_short_line_that_upsets_no_terminal() {
        holds(1500, (any_mark(), any::<u64>(), any::<i32>()), |(mark, now, pid)| {
            let text = String::from_utf8_lossy(&mark).into_owned();
            let holders = [
                Holder::read(&mark),
                Holder::Foreign(mark),
                Holder::Process(pid, text.clone()),
                Holder::InTheWay(text),
            ];
            for line in holders.map(|holder| holder.describe(now)) {
                prop_assert!(!line.contains(char::is_control), "{line:?}");
                prop_assert!(!line.contains(['\u{200f}', '\u{2028}', '\u{202e}', '\u{2066}', '\u{feff}']), "{line:?}");
                prop_assert!(line.len() <= MAX_SHOWN, "{}", line.len());
            }
            Ok(())
        });
    }

    /// The whole published text.
    fn text(about: &About, owner: &Owner, min_hold: Duration, token: u64, since: u64) -> String {
        format!("{}\"token\":{token},\"since\":{since},{}", owner.prefix(min_hold), about.rest())
    }

    #[test]
    fn what_anybody_publishes_fits_begins_with_its_owner_and_is_read_back() {
        holds(1000, (any_about(), any::<u64>(), any::<u64>(), 0..2_u64), |(about, token, since, hold)| {
            let (owner, about) = (Owner::random().expect("random"), about.fitted());
            let text = text(&about, &owner, Duration::from_millis(hold), token, since);
            let hold = Some(hold).filter(|&hold| hold > 0);
            let beginning = hold.map(|hold| format!(r#"{{"v":1,"hold":{hold},"id":""#));
            let beginning = beginning.unwrap_or_else(|| r#"{"v":1,"id":""#.to_owned()) + owner.as_str() + r#"","#;
            prop_assert!(text.starts_with(&beginning));
            prop_assert!(text.len() <= MAX_SHOWN && !text.bytes().any(|byte| byte < b' '));
            let id = owner.as_str().to_owned();
            let (token, since) = (Some(token), Some(since));
            let published = Published { v: 1, id, token, since, hold, about, ..Published::default() };
            prop_assert_eq!(Holder::read(text.as_bytes()), Holder::Dlock(Box::new(published)));
            Ok(())
        });
    }

    fn about() -> About {
        About {
            host: "web1".to_owned(),
            user: "deploy".to_owned(),
            pid: 4711,
            program: "backup.sh".to_owned(),
            ttl: Some(30_000),
            ..About::default()
        }
    }

    #[test]
    fn what_is_published_is_read_back() {
        let owner = Owner::random().expect("random");
        let text = text(&about(), &owner, Duration::ZERO, 17, 1_000);
        assert!(text.starts_with(&owner.prefix(Duration::ZERO)));
        let holder = Holder::read(text.as_bytes());
        assert_eq!(holder.id(), Some(owner.as_str()));
        let line = holder.describe(124_000);
        assert_eq!(line, "held by deploy@web1, pid 4711 (backup.sh), since 1970-01-01T00:00:01Z (2m 3s)");
        let Holder::Dlock(published) = holder else { panic!("a dlock") };
        let kept = Holder::Dlock(Box::new(Published { hold: Some(60_000), ..(*published).clone() }));
        assert!(
            kept.describe(31_000)
                .ends_with("since 1970-01-01T00:00:01Z (30s), at least until 1970-01-01T00:01:01Z (--min-hold)")
        );
        assert!(kept.describe(61_000).ends_with("since 1970-01-01T00:00:01Z (1m)"));
        let finished = Published { done: true, until: Some(60_000), ..*published };
        let line = Holder::Dlock(Box::new(finished)).describe(30_000);
        let until = "1970-01-01T00:01:00Z";
        assert_eq!(
            line,
            format!(
                "held by deploy@web1, pid 4711 (backup.sh), finished; kept until {until} (another 30s, --min-hold)"
            )
        );
    }

    #[test]
    fn a_newer_dlock_may_say_more_and_a_liar_cannot_upset_the_terminal() {
        let newer = br#"{"v":2,"id":"x","shiny":[1],"user":"a\u001b[2J","host":"h","since":99999999999999999}"#;
        assert_eq!(Holder::read(newer).describe(0), "held by a\\u{1b}[2J@h, pid 0");
        assert_eq!(Holder::read(b"\xff\n").describe(0), "held by another program: \\xff\\n");
        assert_eq!(Holder::read(b"{\"v\":1}").id(), None);
    }

    #[test]
    fn a_long_mark_makes_no_longer_line_than_any_text() {
        let mark = "x".repeat(2 * MAX_SHOWN);
        for holder in
            [Holder::Foreign(mark.clone().into_bytes()), Holder::InTheWay(mark.clone()), Holder::Process(1, mark)]
        {
            assert!(holder.describe(0).len() <= MAX_SHOWN);
        }
    }
}
