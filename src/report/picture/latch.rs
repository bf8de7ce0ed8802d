/*!
The output of `dlock latch show`.
*/

use crate::backend::meeting::Arrivals;
use crate::report::picture::{field, safe};

/// A latch: the number of names that are done, its failure, if any, and the names.
#[must_use]
pub(crate) fn latch(arrivals: &Arrivals, key: &str, place: &str) -> String {
    let state = match arrivals.count {
        0 => "nothing is done yet".to_owned(),
        1 => "1 is done".to_owned(),
        count => format!("{count} are done"),
    };
    // file: ends with a colon itself.
    let mut text = format!("{} at {}: {state}\n", safe(key), safe(place.strip_suffix(':').unwrap_or(place)));
    if let Some(failure) = &arrivals.failure {
        let by = if failure.by.is_empty() { "yes".to_owned() } else { format!("reported by {}", safe(&failure.by)) };
        let reason = if failure.reason.is_empty() { String::new() } else { format!(": {}", safe(&failure.reason)) };
        field(&mut text, "failed", &(by + &reason));
    }
    for name in &arrivals.names {
        field(&mut text, "done", &safe(name));
    }
    let more = arrivals.count.saturating_sub(arrivals.names.len().try_into().unwrap_or(u64::MAX));
    if more > 0 {
        field(&mut text, "", &format!("… and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::meeting::LatchFailure;

    #[test]
    fn a_latch_is_told_with_its_failure_and_its_names() {
        let names = ["lint", "unit"].map(str::to_owned).to_vec();
        let arrivals = Arrivals { count: 2, names: names.clone(), failure: None };
        assert_eq!(latch(&arrivals, "k", "file:"), "k at file: 2 are done\n  done     lint\n  done     unit\n");
        let failure = LatchFailure { by: "unit".to_owned(), reason: "3 tests red".to_owned() };
        let text = latch(&Arrivals { count: 1002, names, failure: Some(failure) }, "k", "x");
        assert!(text.starts_with("k at x: 1002 are done\n  failed   reported by unit: 3 tests red\n"), "{text}");
        assert!(text.ends_with("  done     unit\n           … and 1000 more\n"), "{text}");
        assert_eq!(latch(&Arrivals::default(), "k", "x"), "k at x: nothing is done yet\n");
    }
}
