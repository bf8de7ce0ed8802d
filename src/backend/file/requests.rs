/*!
Requests to stop, in a lock file: lines after everything else that is there. Whoever asks appends one with a single write, and
takes no lock for that. The next holder that has the lock alone cuts them off.
*/

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use crate::holder::ask::Ask;

/// How much of the end of a lock file is looked at, in bytes: the last few requests.
const TAIL: u64 = 16 * 1024;

/// Appends a request to `file`, which must have been opened for appending.
pub(super) fn append(mut file: &File, ask: &Ask) -> io::Result<()> {
    file.write_all(format!("\n{}\n", ask.text()).as_bytes())
}

/// The last request that was made to this owner.
pub(super) fn find(file: &File, owner: &str) -> Option<Ask> {
    let length = file.metadata().ok()?.len();
    let from = length.saturating_sub(TAIL);
    let mut tail = vec![0; usize::try_from(length - from).ok()?];
    let read = file.read_at(&mut tail, from).ok()?;
    let lines = tail[..read].split(|byte| [b'\n', 0].contains(byte));
    lines.rev().filter(|line| !line.is_empty()).find_map(|line| Ask::read(line, owner))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;
    use crate::backend::file::text::{header, write, write_record};

    #[test]
    fn a_request_is_found_by_its_owner_until_the_next_holder_has_the_lock_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("job.lock");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        let append_to = OpenOptions::new().append(true).open(&path).expect("the file");
        write(&file, 17, "{\"holder\":1}", None, &[]).expect("written");
        let before = header(&file);
        assert_eq!(find(&file, "ab"), None);
        let (ask, other, again) =
            (Ask::new("ab", "a@b", Some("x"), 7), Ask::new("cd", "a@b", None, 8), Ask::new("ab", "c@d", None, 9));
        append(&append_to, &ask).expect("appended");
        assert_eq!(find(&file, "ab"), Some(ask));
        append(&append_to, &other).expect("appended");
        append(&append_to, &again).expect("appended");
        assert_eq!((find(&file, "ab"), find(&file, "cd"), find(&file, "ef")), (Some(again), Some(other.clone()), None));
        // Nobody takes it for what a holder has written.
        assert_eq!(header(&file), before);
        // Behind the records of those who share the lock.
        write_record(&file, 2, "{\"seat\":2}", None).expect("written");
        append(&append_to, &other).expect("appended");
        assert_eq!(find(&file, "cd"), Some(other));
        write(&file, 18, "", None, &[]).expect("written");
        assert_eq!(find(&file, "ab"), None);
    }
}
