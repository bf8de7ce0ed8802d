/*!
Durations on the command line: a bare number is seconds, otherwise humantime; at most ten years.
*/

use std::time::Duration;

/// The longest duration that is accepted.
const MAX_DURATION: Duration = Duration::from_secs(315_576_000);

/// Reads a duration: a bare number is seconds, otherwise humantime.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const HINT: &str = "use seconds (10, 0.5) or units (500ms, 1m30s, 1d)";
    let is_number =
        text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && text.bytes().any(|b| b.is_ascii_digit());
    // Many people write M for minutes.
    if text.contains('M') {
        return Err("M would be months: use m for minutes, or write months".to_owned());
    }
    let duration = if is_number {
        text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    } else {
        humantime::parse_duration(text).ok()
    };
    match duration {
        Some(duration) if duration > MAX_DURATION => Err("it is longer than 10 years".to_owned()),
        Some(duration) => Ok(duration),
        None if is_number && text.bytes().filter(|&byte| byte == b'.').count() <= 1 => {
            Err("it is longer than 10 years".to_owned())
        }
        None => Err(format!("not a duration: {HINT}")),
    }
}

/// Reads a duration that is more than 0.
pub(super) fn positive(text: &str) -> Result<Duration, String> {
    duration(text)
        .and_then(|duration| if duration.is_zero() { Err("it must be more than 0".to_owned()) } else { Ok(duration) })
}

/// Reads the length of a lease: at least a second.
pub(super) fn ttl(text: &str) -> Result<Duration, String> {
    let shortest = Duration::from_secs(1);
    duration(text).and_then(|ttl| if ttl < shortest { Err("a lease lasts at least 1s".to_owned()) } else { Ok(ttl) })
}

/// Reads the length of the lease of a lock that nobody renews: from a second to a day.
pub(super) fn handle_ttl(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_secs(24 * 60 * 60);
    ttl(text).and_then(|ttl| {
        if ttl > longest { Err("a lock with a handle lasts at most 24h without a renewal".to_owned()) } else { Ok(ttl) }
    })
}

/// Reads the length of a period: at least a second.
pub(super) fn period(text: &str) -> Result<Duration, String> {
    let shortest = Duration::from_secs(1);
    let long = |length| if length < shortest { Err("a period lasts at least 1s".to_owned()) } else { Ok(length) };
    duration(text).and_then(long)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    #[test]
    fn durations() {
        for (text, expected) in [
            ("10", Some(Duration::from_secs(10))),
            ("0", Some(Duration::ZERO)),
            ("0.5", Some(Duration::from_millis(500))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("500ms", Some(Duration::from_millis(500))),
            ("10years", Some(MAX_DURATION)),
            ("1month", Some(Duration::from_secs(2_630_016))),
            ("1M", None),
            ("10years 1s", None),
            ("315576001", None),
            ("99999999999999999999999999", None),
            ("-1", None),
            ("-1s", None),
            ("NaN", None),
            ("inf", None),
            ("1e3", None),
            ("1.2.3", None),
            (".", None),
            ("", None),
            ("soon", None),
        ] {
            assert_eq!(duration(text).ok(), expected, "{text}");
        }
        assert!(ttl("0").is_err() && ttl("0.9").is_err() && ttl("1").is_ok());
        assert!(positive("0").is_err());
        assert!(period("0").is_err() && period("0.9").is_err() && period("1").is_ok());
    }

    #[test]
    fn any_text_is_a_duration_of_at_most_ten_years_or_none() {
        const PIECES: &str = "\
            1|10|0.5|.|-|+| |9999999999|18446744073709551616|315576000|ns|us|ms|s|m|min|h|d|days|w|M|months|y\
            |years|e3|inf|NaN|0x1|١";
        holds(3000, made_of(PIECES), |text| {
            let read = duration(&text);
            if let Ok(duration) = &read {
                prop_assert!(*duration <= MAX_DURATION, "{duration:?}");
            }
            prop_assert_eq!(positive(&text).is_ok(), read.as_ref().is_ok_and(|duration| !duration.is_zero()));
            prop_assert_eq!(ttl(&text).is_ok(), read.as_ref().is_ok_and(|duration| duration.as_secs() > 0));
            Ok(())
        });
    }

    #[test]
    fn a_duration_is_read_back_from_its_text_and_a_bare_number_is_seconds() {
        let limit = MAX_DURATION.as_secs();
        let seconds = prop_oneof![0..100_u64, 0..=limit, limit - 5..limit + 5, any::<u64>()];
        holds(2000, (seconds, 0..1_000_000_000_u32), |(seconds, nanos)| {
            let whole = Duration::from_secs(seconds);
            let fits = whole <= MAX_DURATION;
            prop_assert_eq!(duration(&seconds.to_string()).ok(), fits.then_some(whole));
            let precise = whole + Duration::from_nanos(nanos.into());
            let told = humantime::format_duration(precise).to_string();
            prop_assert_eq!(duration(&told).ok(), (precise <= MAX_DURATION).then_some(precise), "{}", told);
            if seconds < limit {
                let read = duration(&format!("{seconds}.{nanos:09}")).map_err(TestCaseError::fail)?;
                prop_assert!(read.abs_diff(precise) < Duration::from_micros(1), "{read:?}");
            }
            Ok(())
        });
    }
}
