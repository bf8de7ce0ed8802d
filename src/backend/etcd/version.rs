/*!
The known problems of etcd versions, such as ending leases that were renewed.
*/

/// The first releases of 3.4 and 3.5 whose leaders do not revoke leases by outdated knowledge after a stall.
const MENDED: [(u64, u64, u64); 2] = [(3, 4, 31), (3, 5, 13)];

/// The oldest version that is supported.
const OLDEST: (u64, u64, u64) = (3, 4, 0);
/// The first release of 3.5 whose data stay consistent when a server is killed.
const KEPT_CONSISTENT: (u64, u64, u64) = (3, 5, 6);

/// A warning if a server of this version is unsafe.
pub(super) fn warning(version: &str) -> Option<String> {
    is_affected(version).then(|| {
        let version = crate::printable::shown(version.as_bytes());
        format!(
            "etcd {version} can revoke a renewed lease after its leader has stalled \
             (etcd#15247): use 3.4.31, 3.5.13 or newer"
        )
    })
}

/// A problem of servers of this version with its remedy, and `true` if such a server must not be used; `None` if no
/// problem is known.
pub(super) fn objection(version: &str) -> Option<(bool, String)> {
    let numbers = numbers(version)?;
    let old = numbers < OLDEST;
    if !old && !((3, 5, 0)..KEPT_CONSISTENT).contains(&numbers) {
        return warning(version).map(|warning| (false, warning));
    }
    let shown = crate::printable::shown(version.as_bytes());
    let said = if old {
        format!("etcd {shown} is too old; use version 3.4 or newer")
    } else {
        format!("etcd {shown} can lose and contradict what it has confirmed when it is killed; use 3.5.13 or newer")
    };
    Some((old, said))
}

/// Returns `true` if this version has etcd#15247; a version that cannot be parsed counts as fixed.
fn is_affected(version: &str) -> bool {
    let Some(version) = numbers(version) else { return false };
    let [first, second] = MENDED;
    version < first || ((3, 5, 0)..second).contains(&version)
}

/// The numbers of a version; `None` if it cannot be parsed.
fn numbers(version: &str) -> Option<(u64, u64, u64)> {
    let mut numbers = version.split('.').map(|part| {
        // `0-rc.1` counts as `0`, which it precedes: it has no fix that `0` lacks.
        part.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse::<u64>().ok())
    });
    let mut next = || numbers.next().flatten();
    Some((next()?, next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaders_that_revoke_renewed_leases_are_told_by_their_version() {
        for (version, expected) in [
            ("3.3.27", true),
            ("3.4.23", true),
            ("3.4.30", true),
            ("3.4.31", false),
            ("3.4.37", false),
            ("3.5.0", true),
            ("3.5.0-rc.1", true),
            ("3.5.12", true),
            ("3.5.13", false),
            ("3.6.0-alpha.0", false),
            ("4.0.0", false),
            ("", false),
            ("3.4", false),
            ("new", false),
        ] {
            assert_eq!(is_affected(version), expected, "{version}");
            assert_eq!(warning(version).is_some(), expected, "{version}");
        }
    }

    #[test]
    fn versions_that_must_not_be_used_are_told_from_those_that_are_unsafe() {
        for (version, expected) in [
            ("3.3.27", Some((true, "etcd 3.3.27 is too old"))),
            ("3.4.23", Some((false, "etcd 3.4.23 can revoke a renewed lease"))),
            ("3.4.31", None),
            ("3.5.5", Some((false, "etcd 3.5.5 can lose and contradict"))),
            ("3.5.6", Some((false, "etcd 3.5.6 can revoke a renewed lease"))),
            ("3.5.13", None),
            ("3.6.1", None),
            ("new", None),
        ] {
            let told = objection(version);
            assert_eq!(told.as_ref().map(|told| told.0), expected.map(|expected| expected.0), "{version}");
            let begins = expected.map_or("", |expected| expected.1);
            assert!(told.map(|told| told.1).unwrap_or_default().starts_with(begins), "{version}");
        }
    }
}
