/*!
What is known of versions of etcd: which of them end leases that were renewed.
*/

/// The first releases of 3.4 and 3.5 whose leaders do not revoke by what they knew before they stood still.
const MENDED: [(u64, u64, u64); 2] = [(3, 4, 31), (3, 5, 13)];

/// What is unsafe about a server of this version, for a warning.
pub(super) fn concern(version: &str) -> Option<String> {
    is_affected(version).then(|| {
        let version = crate::printable::shown(version.as_bytes());
        format!(
            "etcd {version} can revoke a renewed lease when its leader comes back from standing still \
             (etcd#15247): use 3.4.31, 3.5.13 or newer"
        )
    })
}

/// Whether this version has etcd#15247; one that cannot be read counts as mended.
fn is_affected(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| {
        // `0-rc.1` is before `0`, and mended no earlier than it.
        part.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse::<u64>().ok())
    });
    let mut next = || numbers.next().flatten();
    let (Some(major), Some(minor), Some(patch)) = (next(), next(), next()) else { return false };
    let [first, second] = MENDED;
    let version = (major, minor, patch);
    version < first || ((3, 5, 0)..second).contains(&version)
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
            assert_eq!(concern(version).is_some(), expected, "{version}");
        }
    }
}
