//! Words that differ for one lock and for several.

use crate::key::Keys;

/// The words for `one` lock, or those for `several`.
pub(super) fn either(key: &Keys, one: &'static str, several: &'static str) -> &'static str {
    if key.count() == 1 { one } else { several }
}
