/*!
Checks whether a lock service keeps its promises: the findings, as data, and the trait that each backend implements.

A check needs only the rights of a user who may run locks, and changes nothing; it skips what such a user may not ask.
*/

use std::fmt::Write;
use std::time::Duration;

use crate::backend::error::{Error, ErrorKind};
use crate::backend::net::reaching::{Reached, reach};
use crate::backend::net::tls::Tls;
use crate::backend::net::wire::{Address, Wire};
use crate::clock::{wall_millis, within};
use crate::key::{Key, Namespace};

/// The prefix of keys under which checks try a lock.
pub(crate) const SCRATCH: &str = "dlock-check-";
/// The time limit of one probe.
pub(crate) const PROBE: Duration = Duration::from_secs(5);
/// The time before its end from which on a certificate is reported, in seconds.
const SOON: u64 = 14 * 86_400;
/// The first end of a certificate that counts as none, in seconds since 1970: the end of the year 9999.
const NEVER: u64 = 253_402_300_799;
/// The largest difference between a server's clock and this host's that is not reported, in milliseconds.
const FAR: u64 = 1000;

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All is well.
    Ok,
    /// Locks work, but something could make them unsafe.
    Warn,
    /// Locks do not work, as this kind of failure says.
    Fail(ErrorKind),
    /// It could not be determined.
    Skip,
}

impl Verdict {
    /// Returns its name in the output.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail(_) => "fail",
            Self::Skip => "skip",
        }
    }
}

/// The finding of one probe, at the service or at one of its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The name of the probe.
    pub probe: &'static str,
    /// The result of the probe.
    pub verdict: Verdict,
    /// The server, if the finding is about one.
    pub server: Option<String>,
    /// The finding in words.
    pub text: String,
    /// The remedy, if any.
    pub remedy: Option<String>,
}

impl Finding {
    /// Returns the finding of this probe, without a remedy.
    #[must_use]
    pub(crate) fn new(probe: &'static str, verdict: Verdict, text: impl Into<String>) -> Self {
        Self { probe, verdict, server: None, text: text.into(), remedy: None }
    }

    /// Returns the finding that all is well.
    #[must_use]
    pub(crate) fn ok(probe: &'static str, text: impl Into<String>) -> Self {
        Self::new(probe, Verdict::Ok, text)
    }

    /// Returns the finding that something could make locks unsafe.
    #[must_use]
    pub(crate) fn warn(probe: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(probe, Verdict::Warn, text).remedied(remedy)
    }

    /// Returns the finding that something could not be determined.
    #[must_use]
    pub(crate) fn skip(probe: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(probe, Verdict::Skip, text).remedied(remedy)
    }

    /// Returns the finding that locks do not work.
    #[must_use]
    pub(crate) fn fail(
        probe: &'static str,
        kind: ErrorKind,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(probe, Verdict::Fail(kind), text).remedied(remedy)
    }

    /// Returns the finding that locks do not work because of this error, whose last words are the remedy.
    #[must_use]
    pub(crate) fn failed(probe: &'static str, error: &Error) -> Self {
        Self::said(probe, Verdict::Fail(error.kind), &error.to_string())
    }

    /// Returns the finding that one sentence describes, whose last words are the remedy.
    #[must_use]
    pub(crate) fn said(probe: &'static str, verdict: Verdict, said: &str) -> Self {
        match said.rsplit_once("; ") {
            Some((text, remedy)) => Self::new(probe, verdict, text).remedied(remedy),
            None => Self::new(probe, verdict, said),
        }
    }

    /// Returns this finding, about one server.
    #[must_use]
    pub(crate) fn at(self, server: &impl ToString) -> Self {
        Self { server: Some(server.to_string()), ..self }
    }

    /// Returns this finding with a remedy.
    #[must_use]
    pub(crate) fn remedied(self, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into()).filter(|remedy| !remedy.is_empty());
        Self { remedy, ..self }
    }

    /// Returns this finding for a server that others can replace: a failure becomes a warning.
    #[must_use]
    pub(crate) fn borne(self) -> Self {
        let verdict = if matches!(self.verdict, Verdict::Fail(_)) { Verdict::Warn } else { self.verdict };
        Self { verdict, ..self }
    }
}

/// The parameters of a check, besides the service.
#[derive(Clone, Debug)]
pub(crate) struct CheckParameters {
    /// The prefix for every key on a server.
    pub namespace: Namespace,
    /// The lease that runs request.
    pub ttl: Duration,
}

/// The result of the first contact: the findings, and the kind of failure if the service cannot be used.
pub(crate) type Met = (Vec<Finding>, Option<ErrorKind>);

/// The probes of one service. Each request is bounded by [`PROBE`], and every future may be dropped at any point.
#[async_trait::async_trait(?Send)]
pub(crate) trait Probes {
    /// Reaches every server, and logs in.
    async fn meet(&mut self) -> Met;

    /// Looks for what could make locks unsafe; `warnings` is what a contender has noticed.
    async fn examine(&mut self, warnings: &[String]) -> Vec<Finding>;

    /// Returns the key to try a lock under: the `fresh` one, or one that an earlier check could not remove.
    async fn scratch(&mut self, fresh: Key) -> Key {
        fresh
    }

    /// Removes what a lock with this key leaves behind, if it does not vanish by itself.
    async fn clean(&mut self, _key: &Key) {}
}

/// Returns the result of `work`, which may take no longer than a probe. The error calls the silent side `name`.
pub(crate) async fn bounded<T>(name: &str, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let seconds = PROBE.as_secs();
    let silence = || {
        Error::unavailable(format!(
            "{name} did not answer within {seconds}s; is it stopped, or is something else listening there?"
        ))
    };
    within(PROBE, work).await.unwrap_or_else(|_| Err(silence()))
}

/// Connects to the server at `address`, which is called `name` in messages, and uses TLS if `tls` is given. Returns the
/// findings, and the connection if there is one.
pub(crate) async fn contact(name: &str, address: &Address, tls: Option<&Tls>) -> (Vec<Finding>, Option<Wire>) {
    let reached = within(PROBE, reach(&name, address, tls)).await;
    let Ok(Reached { wire, is_of_tls, ends }) = reached else {
        let (seconds, hint) = (PROBE.as_secs(), "is it stopped or out of reach, or does only one side speak TLS?");
        let text = format!("could not reach {name}: no answer within {seconds}s");
        return (vec![Finding::fail("reach", ErrorKind::Unreachable, text, hint).at(address)], None);
    };
    let (mut findings, wire) = match wire {
        Ok((wire, took, place)) => {
            let text = format!("{place}, connected in {}", length(took));
            (vec![Finding::ok("reach", text)], Some(wire))
        }
        Err(error) if is_of_tls => (vec![Finding::ok("reach", "connected"), Finding::failed("tls", &error)], None),
        Err(error) => (vec![Finding::failed("reach", &error)], None),
    };
    findings.extend(ends.map(|ends| certificate(ends, wall_millis() / 1000)));
    (findings.into_iter().map(|finding| finding.at(address)).collect(), wire)
}

/// Returns the finding on a certificate that ends at `ends`, at the time `now`, both in seconds since 1970.
#[must_use]
pub(crate) fn certificate(ends: u64, now: u64) -> Finding {
    let at = std::time::UNIX_EPOCH + Duration::from_secs(ends);
    let until = humantime::format_rfc3339_seconds(at);
    match ends.saturating_sub(now) {
        _ if ends >= NEVER => Finding::ok("tls", "the certificate has no end"),
        0..SOON => {
            let text = format!("the certificate ends on {until}, in {}", counted(days(ends, now), "day"));
            Finding::warn("tls", text, "renew it on the server")
        }
        _ => Finding::ok("tls", format!("the certificate is good until {until}")),
    }
}

fn days(ends: u64, now: u64) -> usize {
    usize::try_from(ends.saturating_sub(now) / 86_400).unwrap_or(usize::MAX)
}

/// Returns the findings of a login to a server that was `reached`: our identity there, or the reason why we have none.
#[must_use]
pub(crate) fn met(mut reached: Vec<Finding>, login: Result<Finding, Error>) -> Vec<Finding> {
    match login {
        Ok(identity) => reached.push(identity),
        Err(error) if error.kind == ErrorKind::Denied => reached.push(Finding::failed("identity", &error)),
        // Accepting connections proves nothing if the server does not answer.
        Err(error) => match reached.iter_mut().find(|finding| finding.probe == "reach") {
            Some(reach) => *reach = Finding { server: reach.server.take(), ..Finding::failed("reach", &error) },
            None => reached.push(Finding::failed("reach", &error)),
        },
    }
    reached
}

/// Returns the kind of failure that keeps a service from being used: the first one in the findings.
#[must_use]
pub(crate) fn kind_of(findings: &[Finding]) -> Option<ErrorKind> {
    findings.iter().find_map(|finding| match finding.verdict {
        Verdict::Fail(kind) => Some(kind),
        Verdict::Ok | Verdict::Warn | Verdict::Skip => None,
    })
}

/// Returns the finding on a server's clock that showed `now` when this host's showed `here` (milliseconds since 1970).
#[must_use]
pub(crate) fn clock(now: u64, here: u64) -> Finding {
    let side = if now < here { "behind" } else { "ahead of" };
    let text = match now.abs_diff(here) {
        0 => "the same as on this host".to_owned(),
        apart @ 1..10_000 => format!("{apart}ms {side} this host"),
        apart => format!("{}s {side} this host", apart / 1000),
    };
    if now.abs_diff(here) <= FAR {
        return Finding::ok("clock", text);
    }
    let remedy = "synchronize the clocks: times and tokens are by them, leases are not";
    Finding::warn("clock", text, remedy)
}

/// Formats a short length of time for people.
#[must_use]
pub(crate) fn length(length: Duration) -> String {
    let micros = length.as_micros();
    match micros {
        0..10_000 => format!("{}.{}ms", micros / 1000, micros % 1000 / 100),
        10_000..10_000_000 => format!("{}ms", micros / 1000),
        _ => format!("{}s", micros / 1_000_000),
    }
}

/// Formats a number of things in words.
#[must_use]
pub(crate) fn counted(count: usize, thing: &str) -> String {
    let mut text = format!("{count} {thing}");
    if count != 1 {
        // Writing to a String cannot fail.
        let _ = write!(text, "s");
    }
    text
}

/// Returns the leading numbers of a version, at most three.
#[must_use]
pub(crate) fn version(text: &str) -> Vec<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].split('.').map_while(|part| part.parse().ok()).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_done_stands_last_in_an_error() {
        let error = Error::new(ErrorKind::Denied, "S refused: no; why not; allow it");
        let finding = Finding::failed("reach", &error);
        assert_eq!((finding.text.as_str(), finding.remedy.as_deref()), ("S refused: no; why not", Some("allow it")));
        assert_eq!(Finding::said("x", Verdict::Warn, "odd").remedy, None);
        assert_eq!(finding.borne().verdict, Verdict::Warn);
    }

    #[test]
    fn who_does_not_answer_is_not_reached_and_who_refuses_is() {
        let reached = || vec![Finding::ok("reach", "connected").at(&"S")];
        let verdicts = |findings: Vec<Finding>| -> Vec<(&str, Verdict)> {
            findings.iter().map(|finding| (finding.probe, finding.verdict)).collect()
        };
        for (login, expected) in [
            (Ok(Finding::ok("identity", "me")), vec![("reach", Verdict::Ok), ("identity", Verdict::Ok)]),
            (Err(ErrorKind::Denied), vec![("reach", Verdict::Ok), ("identity", Verdict::Fail(ErrorKind::Denied))]),
            (Err(ErrorKind::Unavailable), vec![("reach", Verdict::Fail(ErrorKind::Unavailable))]),
        ] {
            let login = login.map_err(|kind| Error::new(kind, "no"));
            assert_eq!(verdicts(met(reached(), login)), expected);
        }
    }

    #[test]
    fn a_clock_is_remarked_on_from_a_second_on() {
        for (now, here, verdict, text) in [
            (100_012, 100_000, Verdict::Ok, "12ms ahead of this host"),
            (100_000, 100_000, Verdict::Ok, "the same as on this host"),
            (100_000, 101_000, Verdict::Ok, "1000ms behind this host"),
            (100_000, 101_001, Verdict::Warn, "1001ms behind this host"),
            (3_700_000, 100_000, Verdict::Warn, "3600s ahead of this host"),
        ] {
            let finding = clock(now, here);
            assert_eq!((finding.verdict, finding.text.as_str()), (verdict, text));
        }
    }

    #[test]
    fn a_certificate_is_remarked_on_in_its_last_14_days() {
        const DAY: u64 = 86_400;
        for (ends, verdict, text) in [
            (1000 * DAY + 14 * DAY, Verdict::Ok, "the certificate is good until 1972-10-11T00:00:00Z"),
            (1000 * DAY + 14 * DAY - 1, Verdict::Warn, "the certificate ends on 1972-10-10T23:59:59Z, in 13 days"),
            (1001 * DAY, Verdict::Warn, "the certificate ends on 1972-09-28T00:00:00Z, in 1 day"),
            (NEVER, Verdict::Ok, "the certificate has no end"),
        ] {
            let finding = certificate(ends, 1000 * DAY);
            assert_eq!((finding.verdict, finding.text.as_str()), (verdict, text));
        }
    }

    #[test]
    fn lengths_counts_and_versions() {
        for (micros, text) in [(0, "0.0ms"), (340, "0.3ms"), (9_999, "9.9ms"), (12_345, "12ms"), (10_000_000, "10s")] {
            assert_eq!(length(Duration::from_micros(micros)), text);
        }
        assert_eq!(
            [counted(0, "server"), counted(1, "server"), counted(2, "server")],
            ["0 servers", "1 server", "2 servers"]
        );
        for (text, numbers) in [
            ("7.0.15", &[7, 0, 15][..]),
            ("3.5.0-rc.1", &[3, 5, 0]),
            ("10.11.19-MariaDB-ubu", &[10, 11, 19]),
            ("15.18 (Debian 15.18-0)", &[15, 18]),
            ("", &[]),
            ("new", &[]),
        ] {
            assert_eq!(version(text), numbers, "{text}");
        }
    }
}
