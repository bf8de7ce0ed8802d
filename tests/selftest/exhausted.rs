/*!
Checks that a resource taken away from a process is really gone, and that no other process is affected.
*/

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crate::support::daemon::need_python;
use crate::support::exhausted::{
    SmallDisk, give_descriptors_back, take_all_descriptors, take_free_descriptors, take_processes,
};
use crate::support::process;
use crate::support::rendezvous::eventually;
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;

/// A program that carries out the words on its standard input, one per line, and prints the result.
const WORKER: &str = r"
import os, sys
opened = []
def work(word):
    if word == 'open':
        opened.append(os.open('/dev/null', os.O_RDONLY))
    else:
        os.close(opened.pop())
for word in sys.stdin:
    try:
        work(word.strip())
        print('done', flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
";

struct Worker {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start() -> Self {
        let mut command = Command::new(need_python("os", "python3"));
        command.args(["-c", WORKER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn does(&mut self, word: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{word}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const NO_DESCRIPTOR: &str = "Too many open files";

#[test]
fn descriptors_are_taken_and_given_back() {
    let mut worker = Worker::start();
    assert_eq!(worker.does("open"), "done");
    take_free_descriptors(worker.pid());
    assert_eq!(worker.does("open"), NO_DESCRIPTOR);
    // It can open as many as it closes.
    assert_eq!([worker.does("close"), worker.does("open"), worker.does("open")], ["done", "done", NO_DESCRIPTOR]);
    take_all_descriptors(worker.pid());
    assert_eq!([worker.does("close"), worker.does("open")], ["done", NO_DESCRIPTOR]);
    give_descriptors_back(worker.pid());
    assert_eq!([worker.does("open"), worker.does("open")], ["done", "done"]);
}

#[test]
fn processes_are_taken() {
    let start = || {
        let mut command = Command::new("sh");
        // It starts a process for every line.
        command.args(["-c", "while read -r _; do (:); echo done; done"]);
        process::unprivileged(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (worker, other) = (start(), start());
    take_processes(worker.id().cast_signed());
    let said = |mut child: Child| {
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let output = child.wait_with_output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (stdout, stderr) = said(worker);
    assert!(stdout.is_empty() && stderr.contains("fork"), "{stdout}{stderr}");
    assert_eq!(said(other), ("done\n".to_owned(), String::new()));
}

#[test]
fn a_small_disk_is_small_and_its_processs_alone() {
    let scratch = Scratch::new();
    let disk = SmallDisk::on(scratch.directory("disk", 0o777), 1);
    let mut command = Command::new("sh");
    // Prints how much it could write, whenever it is asked.
    let script = "cd \"$here\"; while read -r _; do head -c 3M /dev/zero > file 2>/dev/null; wc -c < file; done";
    command.args(["-c", script]).env("here", disk.directory());
    let mut command = disk.wrap(&command);
    process::unprivileged(&mut command);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    let mut questions = child.stdin.take().unwrap();
    let mut written = || {
        writeln!(questions).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        answer.trim().parse::<u64>().unwrap()
    };
    assert_eq!(written(), 1 << 20);
    // No room is left beyond its own file, which it truncates first.
    disk.fill(child.id().cast_signed());
    disk.free(child.id().cast_signed());
    assert_eq!(written(), 1 << 20);
    assert!(fs::read_dir(disk.directory()).unwrap().next().is_none(), "it is written through to the host's disk");
    drop(questions);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_redis_on_a_small_disk_says_so_when_it_is_full() {
    let redis = Redis::on_small_disk(["--appendonly", "yes"]);
    let write = || redis.ask(&["SET", "key", &"x".repeat(10_000)]).unwrap().text();
    assert_eq!(write(), "OK");
    redis.fill_disk();
    eventually("a write that fails", || write().contains("MISCONF").then_some(()));
    redis.free_disk();
    eventually("a write", || (write() == "OK").then_some(()));
}
