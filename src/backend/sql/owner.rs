/*!
The text in ShedLock's column `locked_by` while a dlock holds the lock: `dlock:` and the owner's id. ShedLock puts its
host's name there, so that all its processes on one host are one owner; the id of a dlock is unique.
*/

use crate::holder::Owner;
use crate::lock::admission::Mode;

/// The beginning of every dlock's text.
pub(super) const PREFIX: &str = "dlock:";
/// The end of the text if the lock is only kept for its minimum hold: no request of its owner matches it any more, so
/// that none of them revives the lock.
const DONE: &str = ":done";

/// Returns the text for the lock of `owner`.
#[must_use]
pub(crate) fn held(owner: &Owner) -> String {
    let [held, _] = of(owner.as_str());
    held
}

/// Returns the text for a lock that `owner` no longer uses, and that is kept.
#[must_use]
pub(crate) fn kept(owner: &Owner) -> String {
    let [_, kept] = of(owner.as_str());
    kept
}

/// Returns the texts for the lock of the owner with this id: one for a held lock, and one for a kept lock.
#[must_use]
pub(crate) fn of(id: &str) -> [String; 2] {
    [format!("{PREFIX}{id}"), format!("{PREFIX}{id}{DONE}")]
}

/// Returns the text for a lock that several hold together in this mode.
#[must_use]
pub(crate) fn group(mode: Mode) -> String {
    format!("{PREFIX}{}", mode.name())
}

/// Returns the mode in which several hold the lock together, by `text`; `None` for other texts.
#[must_use]
pub(crate) fn read_group(text: &str) -> Option<Mode> {
    text.strip_prefix(PREFIX).and_then(Mode::read).filter(|mode| *mode != Mode::Exclusive)
}

/// Returns the id of the dlock that wrote `text`, and `true` if its lock is only kept; `None` for other texts.
#[must_use]
pub(crate) fn read(text: &str) -> Option<(&str, bool)> {
    let rest = text.strip_prefix(PREFIX)?;
    let (id, done) = rest.strip_suffix(DONE).map_or((rest, false), |id| (id, true));
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some((id, done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_what_others_write_is_theirs() {
        let owner = Owner::random().expect("random");
        assert_eq!(read(&held(&owner)), Some((owner.as_str(), false)));
        assert_eq!(read(&kept(&owner)), Some((owner.as_str(), true)));
        for name in ["shared", "slots5"] {
            let mode = Mode::read(name).expect("a mode");
            assert_eq!((read_group(&group(mode)), read(&group(mode))), (Some(mode), None));
        }
        for other in ["dlock:exclusive", "shared", "dlock:slots0", "dlock:shared:done"] {
            assert_eq!(read_group(other), None, "{other}");
        }
        for other in
            ["", "web1", "dlock", "dlock:", "dlock:web1", &format!("x{}", held(&owner)), &format!("{}x", held(&owner))]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
