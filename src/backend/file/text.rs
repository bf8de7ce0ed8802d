/*!
Reads and writes the content of a lock file.
*/

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use crate::backend::file::content::{BLOCK, COUNTER, Content, MARK, Record, done_lines};
use crate::backend::file::errors;
use crate::backend::file::kept::MinimumHold;
use crate::backend::file::requests;
use crate::backend::file::seats::MOST;
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::printable::MAX_SHOWN;

/// Reads as much of a file as the beginning of a lock file can be.
pub(super) fn read(mut file: &File) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.take(2 * MAX_SHOWN as u64).read_to_end(&mut content))
        .map_err(|error| errors::unread(&error))?;
    Ok(content)
}

/// Returns `true` if `file` is a lock file that dlock has written.
pub(super) fn is_ours(file: &File) -> bool {
    read(file).is_ok_and(|content| content.starts_with(MARK.as_bytes()))
}

/// Reads the beginning of a lock file.
pub(super) fn header(file: &File) -> Result<Content, String> {
    Content::parse(&read(file)?)
}

/// Returns the numbers of the seats for which the file may have a record.
pub(super) fn numbers(file: &File) -> std::ops::Range<u32> {
    let block = BLOCK as u64;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    // The first block is the beginning of the file.
    let blocks = length.div_ceil(block).saturating_sub(1).min(MOST.into());
    0..u32::try_from(blocks).unwrap_or(MOST)
}

/// Reads the record of a seat; `None` if it is missing or empty.
pub(super) fn record(file: &File, number: u32) -> Option<Record> {
    let mut block = vec![0; BLOCK];
    let length = file.read_at(&mut block, place(number)).ok()?;
    let record = Record::parse(&block[..length]);
    (record != Record::default()).then_some(record)
}

/// Writes the record of a seat: what its holder publishes, and the end of its minimum hold. Both may be missing.
pub(super) fn write_record(file: &File, number: u32, text: &str, kept: Option<&MinimumHold>) -> io::Result<()> {
    file.write_all_at(&Record::block(text, kept), place(number))
}

/// Replaces the content of `file` with a single write, so that a reader without the lock sees the old or the new text.
/// The rest of a longer text is cut off afterwards, and with it all records. The trace of the last break stays.
pub(super) fn write(
    file: &File,
    counter: u64,
    holder: &str,
    kept: Option<&MinimumHold>,
    done: &[Done],
) -> io::Result<()> {
    let (record, done) = (Record::lines(holder, kept), done_lines(done));
    // The first line after the counter is the holder's, even without a holder.
    let trace = requests::trace(file);
    let nobody = if record.is_empty() && !(done.is_empty() && trace.is_none()) { "\n" } else { "" };
    let text = format!("{MARK}{counter:019}\n{record}{nobody}{done}");
    replace(file, 0, text, trace.as_ref())
}

/// Writes the counter for a co-holder, and no exclusive holder. For the first co-holder, all records are removed, and
/// only the successes in `done` and the trace of the last break stay.
pub(super) fn write_counter(file: &File, counter: u64, is_first: bool, done: &[Done]) -> io::Result<()> {
    let trace = requests::trace(file);
    let text = format!("{MARK}{counter:019}\n\n");
    match &trace {
        _ if is_first => replace(file, 0, text + &done_lines(done), trace.as_ref()),
        None => file.write_all_at(text.as_bytes(), 0),
        // The trace may be where the next record goes.
        Some(_) => {
            let text = text + &done_lines(done);
            let mut block = requests::kept(trace.as_ref(), text.len()).into_bytes();
            block.splice(0..0, text.into_bytes());
            block.resize(BLOCK, 0);
            file.write_all_at(&block, 0)
        }
    }
}

/// Removes everything but the counter, the successes in `done`, and the trace of the last break.
pub(super) fn clear(file: &File, done: &[Done]) -> io::Result<()> {
    let trace = requests::trace(file);
    if done.is_empty() && trace.is_none() {
        return file.set_len(COUNTER);
    }
    replace(file, COUNTER, format!("\n{}", done_lines(done)), trace.as_ref())
}

/// Replaces the content of `file` from the offset `at` on by `text` and the line that keeps the trace of a break.
fn replace(file: &File, at: u64, text: String, trace: Option<&Ask>) -> io::Result<()> {
    let before = usize::try_from(at).unwrap_or(usize::MAX).saturating_add(text.len());
    let text = text + &requests::kept(trace, before);
    file.write_all_at(text.as_bytes(), at)?;
    file.set_len(at + text.len() as u64)
}

/// Returns the offset of a seat's record.
fn place(number: u32) -> u64 {
    (u64::from(number) + 1) * BLOCK as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(text.as_bytes(), 0).expect("written");
        file
    }

    fn all(file: &File) -> Vec<u8> {
        let mut all = vec![0; 1 << 20];
        let length = file.read_at(&mut all, 0).expect("read");
        all.truncate(length);
        all
    }

    #[test]
    fn records_are_beside_each_other_and_the_counter_is_in_front_of_them() {
        let file = file("");
        assert_eq!((header(&file).map(|header| header.counter), numbers(&file)), (Ok(Some(0)), 0..0));
        write(&file, 17, "{\"holder\":1}", None, &[]).expect("written");
        assert_eq!(all(&file), b"dlock:1 0000000000000000017\n{\"holder\":1}\n");
        assert_eq!(numbers(&file), 0..0, "one block at most");
        write_counter(&file, 18, true, &[]).expect("written");
        assert_eq!(all(&file), b"dlock:1 0000000000000000018\n\n");
        write_record(&file, 2, "{\"seat\":2}", None).expect("written");
        write_record(&file, 0, "{\"seat\":0}", None).expect("written");
        write_counter(&file, 19, false, &[]).expect("written");
        let text = |number| record(&file, number).map(|record| String::from_utf8_lossy(&record.holder).into_owned());
        assert_eq!(numbers(&file), 0..3);
        let seat = |number| Some(format!("{{\"seat\":{number}}}"));
        assert_eq!([0, 1, 2, 3].map(text), [seat(0), None, seat(2), None]);
        // A dlock that knows no records sees a counter and no holder.
        let content = header(&file).expect("ours");
        assert_eq!((content.counter, content.record), (Some(19), Record::default()));
        write_record(&file, 2, "", None).expect("written");
        assert_eq!(text(2), None);
        clear(&file, &[]).expect("cleared");
        assert_eq!(all(&file), b"dlock:1 0000000000000000019\n");
        write_record(&file, 0, "{\"seat\":0}", None).expect("written");
        write(&file, 20, "", None, &[]).expect("written");
        assert_eq!(all(&file), b"dlock:1 0000000000000000020\n");
    }

    #[test]
    fn what_was_done_stays_whoever_has_the_lock() {
        let (file, done) = (file(""), [Done { v: 1, period: 7, length: 60_000, at: 5, ..Done::default() }]);
        let line = format!("once {}\n", done[0].text());
        let is = |text: &str| assert_eq!(String::from_utf8_lossy(&all(&file)), format!("dlock:1 {text}"));
        write(&file, 17, "{}", None, &done).expect("written");
        is(&format!("0000000000000000017\n{{}}\n{line}"));
        write(&file, 17, "", None, &done).expect("written");
        is(&format!("0000000000000000017\n\n{line}"));
        write_counter(&file, 18, true, &done).expect("written");
        is(&format!("0000000000000000018\n\n{line}"));
        write_record(&file, 0, "{\"seat\":0}", None).expect("written");
        write_counter(&file, 19, false, &done).expect("written");
        assert_eq!(header(&file).map(|content| (content.counter, content.done)), Ok((Some(19), done.to_vec())));
        clear(&file, &done).expect("cleared");
        is(&format!("0000000000000000019\n\n{line}"));
        assert_eq!(header(&file).map(|content| content.record), Ok(Record::default()));
    }

    #[test]
    fn a_file_of_any_length_has_a_bounded_number_of_records() {
        let file = file("dlock:1 7\n");
        file.set_len(1 << 40).expect("a sparse file");
        assert_eq!(numbers(&file), 0..MOST);
        assert!(is_ours(&file) && header(&file).is_ok());
        assert!(!is_ours(&tempfile::tempfile().expect("a file")));
    }
}
