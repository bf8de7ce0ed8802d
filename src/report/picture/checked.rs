/*!
The output of `dlock check`: a line for each probe.
*/

use std::fmt::Write;
use std::time::Duration;

use crate::backend::contract::probing::{Finding, counted, length};
use crate::report::picture::safe;

/// Widths of the columns of results and of names.
const RESULTS: usize = 6;
const NAMES: usize = 13;
/// The bars of a picture of lengths, the shortest one first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The first line: the backend that is checked, and the origin of its URL.
#[must_use]
pub(crate) fn checking(place: &str, origin: &str) -> String {
    format!("{} (from {})\n", safe(place), safe(origin))
}

/// The line of one finding. It names the server if there are `several`.
#[must_use]
pub(crate) fn finding(finding: &Finding, several: bool) -> String {
    let Finding { probe, verdict, server, text, remedy } = finding;
    let mut line = format!("{:RESULTS$}{probe:NAMES$}", verdict.name());
    if let Some(server) = server.as_ref().filter(|server| several && !text.starts_with(server.as_str())) {
        // Writing to a String cannot fail.
        let _ = write!(line, "{}: ", safe(server));
    }
    line.push_str(&safe(text));
    if let Some(remedy) = remedy {
        let _ = write!(line, "; {}", safe(remedy));
    }
    line + "\n"
}

/// The times of the renewals in `samples`, by their median and their longest, in microseconds.
#[must_use]
pub(crate) fn latency(samples: &[u64], median: u64, worst: u64) -> String {
    let micros = |micros| length(Duration::from_micros(micros));
    format!("{} median, {} worst of {}", micros(median), micros(worst), counted(samples.len(), "renewal"))
}

/// The samples as bars; the longest one is full.
#[must_use]
pub(crate) fn bars(samples: &[u64]) -> String {
    let most = samples.iter().copied().max().unwrap_or_default().max(1);
    let highest = BARS.len() as u64 - 1;
    let bar = |sample: &u64| BARS[usize::try_from(sample * highest / most).unwrap_or_default()];
    samples.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_check_word_for_word() {
        let reach = Finding::ok("reach", "10.0.0.5:6379, connected in 0.4ms").at(&"locks:6379");
        let persistence =
            Finding::warn("persistence", "appendonly is off: \u{1b}[2J", "set appendonly yes, or use etcd");
        let text = checking("redis://locks:6379", "/etc/dlock/config.toml:1")
            + &finding(&reach, false)
            + &finding(&reach, true)
            + &finding(&Finding::ok("reach", "a:1, connected in 0.4ms").at(&"a:1"), true)
            + &finding(&persistence, true);
        let expected = "redis://locks:6379 (from /etc/dlock/config.toml:1)\n\
                        ok    reach        10.0.0.5:6379, connected in 0.4ms\n\
                        ok    reach        locks:6379: 10.0.0.5:6379, connected in 0.4ms\n\
                        ok    reach        a:1, connected in 0.4ms\n\
                        warn  persistence  appendonly is off: \\u{1b}[2J; set appendonly yes, or use etcd\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn bars_are_as_high_as_their_share_of_the_longest() {
        assert_eq!(latency(&[300, 2400], 300, 2400), "0.3ms median, 2.4ms worst of 2 renewals");
        for (samples, expected) in [(&[][..], ""), (&[0], "▁"), (&[300, 600, 2400], "▁▂█"), (&[7, 7], "██")]
        {
            assert_eq!(bars(samples), expected);
        }
        assert_eq!(bars(&[u64::MAX / 8, 1]), "█▁");
    }
}
