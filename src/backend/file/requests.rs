/*!
Requests to stop, in a lock file: lines after all other content. The requester appends one with a single write, without
a lock. A holder that rewrites the file removes all but the last one, which stays for a week as the trace of the last
break.
*/

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use crate::backend::file::content::BLOCK;
use crate::clock::wall_millis;
use crate::holder::ask::Ask;

/// The number of bytes at the end of a lock file that are searched for requests.
const TAIL: u64 = 16 * 1024;

/// Appends a request to `file`, which must have been opened for appending.
pub(super) fn append(mut file: &File, ask: &Ask) -> io::Result<()> {
    file.write_all(format!("\n{}\n", ask.text()).as_bytes())
}

/// Returns the last request that was made to this owner.
pub(super) fn find(file: &File, owner: &str) -> Option<Ask> {
    last(file, |line| Ask::read(line, owner))
}

/// Returns the last recent request to any owner: the one that was appended last, or the one that was kept before the
/// co-holders' records.
pub(super) fn trace(file: &File) -> Option<Ask> {
    let now = wall_millis();
    let read = |line: &[u8]| Ask::read_trace(line, now);
    last(file, read).or_else(|| last_in(file, 0, BLOCK, read))
}

/// Returns the line that keeps this trace in a rewritten file, if there is room for it after `before` bytes: it must
/// end before the first record of co-holders.
pub(super) fn kept(trace: Option<&Ask>, before: usize) -> String {
    let line = trace.map(|ask| ask.text() + "\n").unwrap_or_default();
    if before + line.len() < BLOCK { line } else { String::new() }
}

/// Applies `read` to the lines at the end of the file, last line first, and returns its first result.
fn last<T>(file: &File, read: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let length = file.metadata().ok()?.len();
    let from = length.saturating_sub(TAIL);
    last_in(file, from, usize::try_from(length - from).ok()?, read)
}

/// Applies `read` to the lines in `length` bytes at the offset `from`, last line first, and returns its first result.
fn last_in<T>(file: &File, from: u64, length: usize, read: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let mut bytes = vec![0; length];
    let there = file.read_at(&mut bytes, from).ok()?;
    let lines = bytes[..there].split(|byte| matches!(byte, b'\n' | 0));
    lines.rev().filter(|line| !line.is_empty()).find_map(read)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;
    use crate::backend::file::text::{clear, header, numbers, write, write_counter, write_record};
    use crate::holder::ask::REMEMBERED;
    use crate::holder::done::Done;

    #[test]
    fn the_last_request_stays_in_a_file_that_is_written_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("job.lock");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        let append_to = OpenOptions::new().append(true).open(&path).expect("the file");
        let text = || std::fs::read_to_string(&path).expect("text");
        let ask = |reason: &str| Ask::new("ab", "a@b", Some(reason), wall_millis());
        write(&file, 17, "{\"holder\":1}", None, &[]).expect("written");
        append(&append_to, &ask("one")).expect("appended");
        append(&append_to, &ask("two")).expect("appended");
        let done = [Done { v: 1, period: 7, length: 60_000, at: 5, ..Done::default() }];
        let writes: [(&dyn Fn(), &str); 5] = [
            (&|| write(&file, 18, "{\"holder\":2}", None, &[]).expect("written"), "18\n{\"holder\":2}\n"),
            (&|| write(&file, 18, "", None, &[]).expect("written"), "18\n\n"),
            (&|| write_counter(&file, 19, true, &[]).expect("written"), "19\n\n"),
            (&|| clear(&file, &[]).expect("cleared"), "19\n\n"),
            (&|| write(&file, 20, "", None, &done).expect("written"), "20\n\nonce "),
        ];
        for (write, begins) in writes {
            write();
            let (text, trace) = (text(), trace(&file).expect("a trace"));
            assert!(text.contains(begins) && text.ends_with(&format!("\n{}\n", trace.text())), "{text}");
            assert_eq!((text.matches("\"stop\"").count(), trace.reason.as_deref()), (1, Some("two")), "{text}");
            let header = header(&file).expect("ours");
            assert_eq!(header.done.len(), usize::from(begins.contains("once")), "{text}");
            assert!(header.record.published().is_none() && numbers(&file).is_empty(), "{text}");
        }
        // Ahead of the records of many co-holders.
        for number in 0..9 {
            write_record(&file, number, &format!("{{\"seat\":{number}}}"), None).expect("written");
        }
        append(&append_to, &ask("two and a half")).expect("appended");
        write_counter(&file, 21, false, &done).expect("written");
        write_record(&file, 9, "{\"seat\":9}", None).expect("written");
        assert_eq!(header(&file).map(|header| (header.counter, header.done.len())), Ok((Some(21), 1)));
        assert_eq!(trace(&file).and_then(|ask| ask.reason).as_deref(), Some("two and a half"));
        append(&append_to, &ask("three")).expect("appended");
        clear(&file, &[]).expect("cleared");
        assert_eq!(trace(&file).and_then(|ask| ask.reason).as_deref(), Some("three"));
        // A trace that is too long is not kept, nor is one kept forever.
        append(&append_to, &Ask::new("ab", &"\u{1}".repeat(512), Some(&"\u{1}".repeat(512)), wall_millis()))
            .expect("it");
        clear(&file, &[]).expect("cleared");
        assert!(!text().contains("stop"), "{}", text());
        append(&append_to, &Ask::new("ab", "a@b", None, wall_millis() - REMEMBERED)).expect("appended");
        clear(&file, &[]).expect("cleared");
        assert!(!text().contains("stop"), "{}", text());
    }

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
        // It is not mistaken for a holder's record.
        assert_eq!(header(&file), before);
        // After the co-holders' records.
        write_record(&file, 2, "{\"seat\":2}", None).expect("written");
        append(&append_to, &other).expect("appended");
        assert_eq!(find(&file, "cd"), Some(other));
        write(&file, 18, "", None, &[]).expect("written");
        assert_eq!(find(&file, "ab"), None);
    }
}
