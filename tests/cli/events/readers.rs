//! Readers that do not read, that come late or are gone, and disks that are full: nothing waits for them.

use std::fs::File;
use std::io::{PipeWriter, Read, Write, pipe};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::cli::events::sequences::{AT_ONCE, gated};
use crate::cli::events::{ended, happened, journal, lines, read};
use crate::support::dlock::Dlock;
use crate::support::rendezvous::{boottime, last_until, make_fifo};
use crate::support::service::{FileService, Gated, RedisService, Service};

/// Fills a pipe to its last byte.
fn fill(end: &PipeWriter) {
    fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut end = end;
    for size in [4096, 1] {
        while end.write(&vec![b'\n'; size]).is_ok() {}
    }
    fcntl(end, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
}

#[test]
fn a_pipe_that_is_full_holds_nothing_up_and_the_reader_is_told_what_it_has_missed() {
    let service = RedisService::fresh();
    let (mut reader, end) = pipe().unwrap();
    fill(&end);
    let run = |end: &PipeWriter| service.run("job").args(["--events", "fd:93"]).with_fd(end.try_clone().unwrap(), 93);
    let outcome = run(&end).command(["true"]).output();
    outcome.success();
    assert!(outcome.elapsed() < AT_ONCE, "{outcome:?}");
    let gated = Gated::spawn(service.scratch(), run(&end));
    gated.wait_held();
    drop(end);
    // Longer than a line waits.
    last_until(boottime() + Duration::from_millis(500));
    // What is read now makes room; what was lost before is told later.
    let reading = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    gated.let_go().success();
    let text = reading.join().unwrap().unwrap();
    let lines = read(text.trim_start_matches('\n'));
    let dropped: u64 = lines.iter().map(|line| line["dropped"].as_u64().unwrap()).sum();
    assert_eq!((lines.len() as u64 + dropped, happened(&lines).last()), (5, Some(&"end")), "{lines:#?}");
}

#[test]
fn a_reader_that_is_gone_and_a_full_disk_do_no_harm() {
    let service = RedisService::fresh();
    let (reader, end) = pipe().unwrap();
    drop(reader);
    service.run("job").args(["--events", "fd:93"]).with_fd(end, 93).command(["true"]).output().success();
    let full = File::options().write(true).open("/dev/full").unwrap();
    service.run("job").args(["--events", "fd:93"]).with_fd(full, 93).command(["true"]).output().success();
    let outcome = service.run("job").args(["--events", "/dev/full"]).shell("exit 3").output();
    outcome.code(3).quiet();
}

#[test]
fn lines_that_cannot_be_written_are_told_once_where_details_are_asked_for() {
    let service = RedisService::fresh();
    let told = |dlock: Dlock, line: &str| {
        let outcome = dlock.arg("-v").command(["true"]).output();
        let said = outcome.code(0).stderr();
        assert_eq!(said.lines().filter(|said| *said == line).count(), 1, "{said}");
    };
    let full = service.run("job").args(["--events", "/dev/full"]);
    told(full, "dlock: could not write to /dev/full for --events: No space left on device");
    let (reader, end) = pipe().unwrap();
    drop(reader);
    let gone = service.run("job").args(["--events", "fd:93"]).with_fd(end, 93);
    told(gone, "dlock: could not write to fd:93 for --events: Broken pipe");
}

/// As the run before has left it on a disk that was full.
#[test]
fn a_line_that_is_not_whole_takes_none_of_the_next_run_with_it() {
    let service = FileService::fresh();
    let path = journal(&service, "events");
    std::fs::write(&path, r#"{"v":1,"event":"acq"#).unwrap();
    service.run("job").arg("--events").arg(&path).command(["true"]).output().success();
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, whole) = text.split_once('\n').unwrap();
    assert_eq!(happened(&read(whole)), ["acquired", "started", "exited", "released", "end"]);
}

#[test]
fn lines_wait_in_a_fifo_for_a_reader_that_comes_later_and_none_is_missed() {
    let service = RedisService::fresh();
    let path = journal(&service, "fifo");
    make_fifo(&path);
    let gated = gated(&service, "fifo", &[]);
    let mut fifo = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&path).unwrap();
    fcntl(&fifo, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    gated.let_go().success();
    let mut text = String::new();
    fifo.read_to_string(&mut text).unwrap();
    let lines = read(&text);
    assert_eq!(happened(&lines), ["acquired", "started", "exited", "released", "end"]);
    ended(&lines, 0);
    // And one that goes before the end.
    let gone = crate::cli::events::sequences::gated(&service, "fifo", &[]);
    drop(fifo);
    gone.let_go().success();
}

#[test]
fn runs_that_share_a_file_do_not_mix_their_lines() {
    let service = FileService::fresh();
    let path = journal(&service, "shared");
    let keys: Vec<String> = (0..8).map(|number| format!("key{number}")).collect();
    let runs: Vec<_> = keys
        .iter()
        .map(|key| service.run(key).env("DLOCK_EVENTS", &path).shell("for i in 1 2 3; do :; done").spawn())
        .collect();
    for run in runs {
        run.wait().success();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    for key in &keys {
        let of = |line: &&str| line.contains(&format!("\"key\":\"{key}\""));
        let own: String = text.split_inclusive('\n').filter(of).collect();
        std::fs::write(journal(&service, key), own).unwrap();
        let lines = lines(&journal(&service, key));
        assert_eq!(happened(&lines), ["acquired", "started", "exited", "released", "end"]);
    }
    assert_eq!(text.lines().count(), 40);
}
