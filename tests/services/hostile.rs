use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::dlock::{DLOCK, Dlock, Outcome, Running};
use crate::support::process;
use crate::support::proxy::{Behaviour, Hostile, Mode, Proxy};
use crate::support::pty::Pty;
use crate::support::rendezvous::{CAP, Gate, Lifeline, boottime, eventually, eventually_within};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, need, runs_script};

/// What dlock may never need, whatever a server sends, in KiB.
const MOST_MEMORY: u64 = 32 * 1024;

/// What a server may get rid of on one connection before dlock closes it: 64 KiB that dlock takes, and what the kernel
/// keeps in its buffers.
const MOST_TAKEN: u64 = 16 << 20;

/// `attempt.lua` says: yours, with token 7.
const GRANTED: &[u8] = b"*3\r\n:1\r\n$1\r\n7\r\n:-1\r\n";

/// `attempt.lua` says: somebody else's, and you are next in line.
const BUSY: &[u8] = b"*7\r\n:0\r\n$6\r\nstring\r\n$5\r\nliar!\r\n:-1\r\n:1\r\n$13\r\n1700000000000\r\n:0\r\n";

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// A dlock with short time-outs, which leaves a mark when it runs its command.
fn impatient(scratch: &Scratch, url: &str) -> Dlock {
    scratch.dlock().run("k").backend(url).args(["--connect-timeout", "1s", "--ttl", "4s"])
}

/// Waits for its end, and watches its memory meanwhile.
#[track_caller]
pub fn wait_within_memory(running: Running) -> Outcome {
    let pid = running.pid();
    let mut peak = 0;
    let ended = eventually_within(CAP, || {
        // Until it has become dlock, the memory is this test's.
        if fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == Path::new(*DLOCK)) {
            peak = peak.max(process::peak_rss_kib(pid).unwrap_or(0));
        }
        (!running.is_running()).then_some(())
    });
    assert!(ended.is_some(), "it hangs: {running:?}");
    assert!(peak < MOST_MEMORY, "it used {peak} KiB: {running:?}");
    running.wait()
}

/// Nothing that came from elsewhere can do more than be read.
#[track_caller]
pub fn assert_harmless(text: &str) {
    let wicked = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    assert!(!text.contains(wicked), "not fit for a terminal: {text:?}");
    assert!(text.lines().all(|line| line.starts_with("dlock: ")), "not dlock's own lines: {text:?}");
}

/// From the first byte on.
fn at_first_contact(behaviour: Behaviour) {
    let scratch = Scratch::new();
    for (credentials, database) in [("", ""), ("user:password@", "/1")] {
        let server = Hostile::start(behaviour);
        let url = format!("redis://{credentials}127.0.0.1:{}{database}", server.port());
        let outcome = wait_within_memory(impatient(&scratch, &url).command(["touch", "ran"]).spawn());
        outcome.code(69).stderr_is_one_line("did not get 'k'");
        assert_harmless(&outcome.stderr());
        // The time-outs are 1 s and 4/3 s; the rest is for a busy machine.
        assert!(outcome.elapsed() < Duration::from_secs(5), "{outcome:?}");
        assert!(server.sent() < MOST_TAKEN * server.connections(), "it took {} bytes: {outcome:?}", server.sent());
        assert!(!scratch.path("ran").exists(), "the command ran without a lock");
    }
}

/// From the moment on in which the lock was granted: nobody can renew it, so the command must go.
fn after_the_grant(behaviour: Behaviour) {
    let scratch = Scratch::new();
    let server = Hostile::after(GRANTED, behaviour);
    let (line, end) = Lifeline::pair();
    let ttl = Duration::from_secs(4);
    let dlock = impatient(&scratch, &url(server.port())).lifeline(end).command(["sleep", "1000"]);
    let outcome = wait_within_memory(dlock.spawn());
    outcome.code(79).stderr_is_one_line("lost 'k' at redis://127.0.0.1");
    assert_harmless(&outcome.stderr());
    // As the server would count it, had it meant what it said.
    let gone = line.closed_at().saturating_sub(server.honest_at().unwrap());
    assert!(gone < ttl, "the command lived for {gone:?}, longer than the lease of {ttl:?}");
    assert!(gone > ttl / 2, "the command was given up after {gone:?}, long before the lease ended");
    assert!(server.sent() < MOST_TAKEN * server.connections().max(1), "it took {} bytes: {outcome:?}", server.sent());
}

/// When the command has ended: its exit code is what counts.
fn at_the_release(behaviour: Behaviour) {
    let scratch = Scratch::new();
    let server = Hostile::after(GRANTED, behaviour);
    // Long enough for the grant on a busy machine.
    let dlock = scratch.dlock().run("k").backend(url(server.port())).args(["--connect-timeout", "1s", "--ttl", "6s"]);
    let outcome = wait_within_memory(dlock.shell("printf $DLOCK_TOKEN; exit 3").spawn());
    outcome.code(3).stdout_is("7").stderr_is_one_line("could not release 'k'");
    assert_harmless(&outcome.stderr());
    assert!(outcome.elapsed() < Duration::from_secs(6), "{outcome:?}");
}

/// While it waits in the queue: an outage is ridden out until the wait runs out.
fn while_waiting(behaviour: Behaviour) {
    let scratch = Scratch::new();
    let server = Hostile::after(BUSY, behaviour);
    let dlock = impatient(&scratch, &url(server.port())).args(["--wait", "1s"]).command(["touch", "ran"]);
    let outcome = wait_within_memory(dlock.spawn());
    outcome.code(69).stderr_ends_with_line("did not get 'k' within 1s: ");
    assert_harmless(&outcome.stderr());
    assert!(outcome.elapsed() > Duration::from_secs(1), "it gave up early: {outcome:?}");
    assert!(outcome.elapsed() < Duration::from_secs(7), "{outcome:?}");
    assert!(!scratch.path("ran").exists(), "the command ran without a lock");
}

/// Tries every behaviour, all at once: they wait most of the time.
fn against_all(check: fn(Behaviour)) {
    thread::scope(|scope| {
        for behaviour in Behaviour::ALL {
            let named = thread::Builder::new().name(format!("{behaviour:?}"));
            named.spawn_scoped(scope, move || check(behaviour)).unwrap();
        }
    });
}

#[test]
fn a_server_that_is_hostile_from_the_start_is_given_up_in_time() {
    against_all(at_first_contact);
}

#[test]
fn a_server_that_turns_hostile_loses_the_command_in_time() {
    against_all(after_the_grant);
}

#[test]
fn a_server_that_is_hostile_at_the_release_changes_no_exit_code() {
    against_all(at_the_release);
}

#[test]
fn a_server_that_turns_hostile_while_we_wait_is_an_outage() {
    against_all(while_waiting);
}

#[test]
fn a_real_server_that_stops_answering_honestly_loses_the_command_in_time() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let monitor = redis.monitor();
    let (line, end) = Lifeline::pair();
    let running = impatient(&scratch, &url(proxy.port())).lifeline(end).shell("echo on; exec sleep 1000").spawn();
    running.wait_stdout("on");
    // The second renewal comes when the first one was confirmed.
    monitor.wait_until("two renewals", |seen| seen.iter().filter(|words| runs_script(words)).count() > 2);
    // At most seven bytes of each answer arrive: `*1\r\n:1\r` without its end looks like a yes, and is none.
    let cut = boottime();
    proxy.set(Mode::CutReplyAfter(7));
    let outcome = wait_within_memory(running);
    outcome.code(79).stderr_is_one_line("lost 'k'");
    let gone = line.closed_at().saturating_sub(cut);
    assert!(gone < Duration::from_secs(4), "the command lived on for {gone:?}");
}

#[test]
fn a_grant_whose_answer_is_lost_is_given_back() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    proxy.set(Mode::DropReplies);
    for patience in [&["-n"][..], &[]] {
        let monitor = redis.monitor();
        let run = impatient(&scratch, &url(proxy.port())).args(patience).command(["touch", "ran"]);
        run.output().code(69).stderr_is_one_line("did not get 'k': ");
        // Not by its expiry: another one would have to wait for that.
        let did = |verb: &str| {
            let seen = monitor.all();
            seen.iter()
                .any(|seen| seen.source == "lua" && seen.words.starts_with(&[verb.to_owned(), "dlock:k".to_owned()]))
        };
        assert!(did("SET"), "the request did not arrive");
        eventually("the lock to be given back", || did("DEL").then_some(()));
    }
    assert!(!scratch.path("ran").exists());
}

/// A value that a program that means no good has put at the lock's key.
fn evil_bytes() -> Vec<u8> {
    let mut evil = b"\x1b[2J\x1b]0;title\x07\r\n\0\x9b31m\xc2\x9b\xff\xfe".to_vec();
    evil.extend("\u{202e}\u{2066}\u{feff}dlock: all is well\n".as_bytes());
    evil
}

#[test]
fn ten_mebibytes_of_somebody_elses_value_are_shown_cut_and_escaped_and_left_alone() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let evil = evil_bytes();
    let value: Vec<u8> = evil.iter().copied().cycle().take(10 << 20).collect();
    redis.call(&[b"SET", b"dlock:k", &value]);
    let digest = || redis.cli(&["EVAL", "return redis.sha1hex(redis.call('GET', KEYS[1]))", "1", "dlock:k"]);
    let before = digest();
    for patience in ["--nonblock", "--wait=0.6"] {
        let outcome =
            wait_within_memory(impatient(&scratch, &redis.url()).arg(patience).command(["touch", "ran"]).spawn());
        outcome.code(75).stderr_ends_with_line("held by another program: \\u{1b}[2J");
        let stderr = outcome.stderr();
        assert_harmless(&stderr);
        assert!(stderr.lines().all(|line| line.len() < 4200), "not cut: {} bytes", stderr.len());
        assert!(stderr.lines().all(|line| line.len() > 3000), "cut too soon: {stderr}");
    }
    assert_eq!(digest(), before);
    assert_eq!(redis.pttl("dlock:k"), -1);
    assert!(!scratch.path("ran").exists());
}

/// What a holder that lies would publish: `text` in every place where text is expected.
fn lying_holder(text: &str, pid: u32) -> String {
    let object = serde_json::json!({
        "host": text, "user": text, "pid": pid, "program": text, "ttl": u64::MAX, "reason": text, "job": text,
        "token": u64::MAX, "since": u64::MAX, text: [text, {"deep": text}],
    });
    // Ownership is compared by how it begins.
    format!("{{\"v\":1,\"id\":\"liar\",{}", &object.to_string()[1..])
}

const LIES: &str = "\u{1b}[2J\u{1b}]0;title\u{7}\r\ndlock: fine\u{0}\u{9b}31m\u{85}\u{202e}\u{2066}\u{200f}\u{2028}x";

#[test]
fn a_lying_holder_in_redis_cannot_reach_the_terminal() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    // Once as JSON should be, once with every character that JSON allows raw, once with those that it does not.
    let escaped = lying_holder(LIES, 7);
    let raw: String = LIES.chars().filter(|c| *c >= ' ').collect();
    let raw = lying_holder(&raw, 7);
    let broken = escaped.replace("\\u001b", "\u{1b}").replace("\\r\\n", "\r\n");
    for value in [&escaped, &raw, &broken] {
        redis.cli(&["SET", "dlock:k", value]);
        let refused = impatient(&scratch, &redis.url()).arg("-n").command(["true"]).output();
        refused.code(75).stderr_is_one_line("held by");
        assert_harmless(&refused.stderr());
        // Both lines: the one that says that it waits, and the last one.
        let waited = impatient(&scratch, &redis.url()).args(["-w", "0.6"]).command(["true"]).output();
        waited.code(75).stderr_ends_with_line("did not get 'k' within 600ms: held by");
        assert_eq!(waited.stderr().lines().count(), 2, "{waited:?}");
        assert_harmless(&waited.stderr());
        assert_eq!(redis.get("dlock:k").as_deref(), Some(value.as_str()));
    }
    // One that takes the lock while it is held: the words of the thief are in the line about the loss.
    redis.cli(&["DEL", "dlock:k"]);
    let running = impatient(&scratch, &redis.url()).shell("echo on; exec sleep 1000").spawn();
    running.wait_stdout("on");
    redis.cli(&["SET", "dlock:k", &escaped]);
    let lost = running.wait();
    lost.code(79).stderr_is_one_line("lost 'k'");
    assert_harmless(&lost.stderr());
}

#[test]
fn on_a_terminal_the_waiting_line_holds_no_escape_sequence_but_dlocks_own() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    redis.cli(&["SET", "dlock:k", &lying_holder(LIES, 7)]);
    let mut command = Command::new(*DLOCK);
    command.args(["run", "--key", "k", "--wait", "1.5", "--backend", &redis.url(), "--", "true"]);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).current_dir(scratch.root());
    let pty = Pty::spawn(&mut command);
    pty.expect("dlock: 'k': waiting ");
    pty.expect("by \\u{1b}");
    assert_eq!(pty.wait().code(), Some(75));
    pty.hang_up();
    let screen = pty.screen();
    assert!(screen.contains("\r\x1b[2K"), "{screen:?}");
    // All that the line is kept up to date with, and the ends of lines.
    let rest = screen.replace("\r\x1b[2K", "\n").replace("\r\n", "\n");
    let rest: Vec<&str> = rest.lines().filter(|line| !line.is_empty()).collect();
    assert_harmless(&rest.join("\n"));
}

#[test]
fn a_lying_holder_of_a_lock_file_cannot_reach_the_terminal() {
    let scratch = Scratch::new();
    let lock = scratch.lock_dir().join("k.lock");
    // The kernel tells the holder's name too, and a process may have any.
    let liar = scratch.path("\u{1b}[2Jx\u{7}\n\u{202e}");
    // By another process, for the reason that `Scratch::script` gives.
    assert!(Command::new("cp").arg(need("flock", "util-linux")).arg(&liar).status().unwrap().success());
    let gate = Gate::new(scratch.path("gate"));
    let mut holder = Command::new(&liar);
    let mut holder = holder.arg(&lock).args(["sh", "-c", &gate.wait()]).stdin(Stdio::null()).spawn().unwrap();
    let pid = holder.id();
    eventually("flock to hold the lock", || {
        let table = fs::read_to_string("/proc/locks").unwrap();
        table.lines().any(|line| line.contains("FLOCK") && line.contains(&format!(" {pid} "))).then_some(())
    });
    let refused = |expected: &str| {
        let refused = scratch.dlock().run("k").backend(scratch.file_url()).arg("-n").command(["true"]).output();
        refused.code(75).stderr_is_one_line(expected);
        assert_harmless(&refused.stderr());
    };
    refused("held by \\u{1b}[2Jx");
    // It may write down that it is a dlock, and lie.
    fs::write(&lock, format!("dlock:1 0000000000000000017\n{}\n", lying_holder(LIES, pid))).unwrap();
    refused("held by \\u{1b}[2J\\u{1b}]0;title");
    // Or write for ever: what is read of it is bounded.
    fs::File::options().write(true).open(&lock).unwrap().set_len(1 << 40).unwrap();
    let running = scratch.dlock().run("k").backend(scratch.file_url()).arg("-n").command(["true"]).spawn();
    wait_within_memory(running).code(75).stderr_is_one_line("held by");
    gate.open();
    holder.wait().unwrap();
}
