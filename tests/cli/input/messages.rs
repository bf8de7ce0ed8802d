//! What is said of a wrong command line, a wrong environment and a server that is not one: which words, and how many.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use super::*;
use crate::support::servers::Port;

/// A server of another protocol, which answers every first request with `words`.
fn other_server(words: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the test program.
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            thread::spawn(move || {
                let mut request = [0; 4096];
                if connection.read(&mut request).is_err() {
                    return;
                }
                let _ = connection.write_all(words);
                // Until the client has seen it.
                while connection.read(&mut request).is_ok_and(|length| length > 0) {}
            });
        }
    });
    port
}

#[test]
fn a_server_of_another_protocol_is_called_by_its_name() {
    let scratch = Scratch::new();
    let port = other_server(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\noops");
    for url in [
        format!("redis://127.0.0.1:{port}"),
        format!("redis://:secret@127.0.0.1:{port}"),
        format!("redis+sentinel://127.0.0.1:{port}/main"),
        format!("redlock://127.0.0.1:{port},localhost:{port},127.0.0.2:{port}"),
        format!("etcd://127.0.0.1:{port}"),
        format!("zk://127.0.0.1:{port}"),
    ] {
        let outcome = scratch.dlock().run("k").backend(&url).command(["touch", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("it answered HTTP");
        let said = outcome.stderr();
        assert!(!said.contains("\\n") && !said.contains("secret") && !said.contains("Parse"), "{outcome:?}");
    }
    assert!(!scratch.path("ran").exists());
}

#[test]
fn several_servers_with_one_reason_are_one_message() {
    let scratch = Scratch::new();
    let ports = [Port::reserve(), Port::reserve(), Port::reserve()];
    let [a, b, c] = [&ports[0], &ports[1], &ports[2]].map(|port| format!("127.0.0.1:{}", port.number()));
    for url in [
        format!("etcd://{a},{b},{c}"),
        format!("redlock://{a},{b},{c}"),
        format!("redis+sentinel://{a},{b},{c}/main"),
        format!("zk://{a},{b},{c}"),
    ] {
        let outcome = scratch.dlock().run("k").backend(&url).command(["touch", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("connection refused");
        assert_eq!(outcome.stderr().matches("connection refused").count(), 1, "{outcome:?}");
        assert!(!outcome.stderr().contains("os error"), "{outcome:?}");
    }
}

#[test]
fn a_name_that_does_not_resolve_is_not_a_server_that_does_not_answer() {
    let scratch = Scratch::new();
    let port = Port::reserve();
    let said = |host: &str| {
        let outcome = scratch.dlock().run("k").backend(format!("redis://{host}")).command(["touch", "ran"]).output();
        outcome.code(69).stderr_is_one_line("did not get 'k': ");
        outcome.stderr()
    };
    let unknown = said("no-such-host.invalid");
    assert!(unknown.contains("could not resolve the name of redis://no-such-host.invalid:6379"), "{unknown}");
    let silent = said(&format!("127.0.0.1:{}", port.number()));
    assert!(
        silent.contains("could not reach redis://127.0.0.1") && silent.contains("is it running there?"),
        "{silent}"
    );
}

#[test]
fn an_unknown_variable_is_one_warning() {
    let scratch = Scratch::new();
    let run = || run_file(&scratch).command(["true"]);
    let misspelt = run().arg("-q").env("DLOCK_WIAT", "secret").output();
    misspelt.code(0).stderr_is_one_line("DLOCK_WIAT is not a variable of dlock: did you mean DLOCK_WAIT?");
    assert!(!misspelt.stderr().contains("secret"), "{misspelt:?}");
    let two = run().env("DLOCK_A", "1").env("DLOCK_\u{1b}[2J", "1").output();
    two.code(0).stderr_is_one_line("are not variables of dlock");
    // What dlock itself sets is known, and other programs have other names.
    run().env("DLOCKED", "1").env("DLOCK", "1").output().success();
    run_file(&scratch).shell("env | grep -c ^DLOCK_").output().success();
}

#[test]
fn variables_that_contradict_each_other_are_refused_by_their_names() {
    let scratch = Scratch::new();
    let run = || run_file(&scratch).command(["touch", "ran"]);
    let waits = run().env("DLOCK_NONBLOCK", "1").env("DLOCK_WAIT", "10").output();
    waits.code(64).stderr_is_one_line("DLOCK_NONBLOCK and DLOCK_WAIT are mutually exclusive");
    let talks = run().env("DLOCK_QUIET", "1").env("DLOCK_VERBOSE", "1").output();
    talks.code(64).stderr_is_one_line("DLOCK_QUIET and DLOCK_VERBOSE are mutually exclusive");
    assert!(!scratch.path("ran").exists());
    // A flag settles it.
    run().env("DLOCK_NONBLOCK", "1").env("DLOCK_WAIT", "10").args([""; 0]).output().code(64).stderr_is_one_line("");
    let flag = run_file(&scratch).arg("-n").env("DLOCK_NONBLOCK", "1").env("DLOCK_WAIT", "10").command(["true"]);
    flag.output().success();
}

#[test]
fn help_is_there_as_a_subcommand_too() {
    let scratch = Scratch::new();
    let print = |words: &[&str]| {
        let outcome = scratch.dlock().args(words).output();
        outcome.code(0).quiet();
        outcome.stdout()
    };
    assert_eq!(print(&["help", "run"]), print(&["run", "--help"]));
    assert_eq!(print(&["help", "generate"]), print(&["generate", "--help"]));
    assert_eq!(print(&["help"]), print(&["--help"]));
    let (short, long) = (print(&["run", "-h"]), print(&["run", "--help"]));
    assert!(short.contains(" options: dlock run --help\n") && !short.contains("--lock-delay"), "{short}");
    assert!(short.lines().count() < 40 && long.contains("--lock-delay"), "{short}");
    let version = print(&["--version"]);
    for name in [
        "run", "status", "list", "held", "break", "acquire", "renew", "release", "latch", "barrier", "check", "config",
        "generate",
    ] {
        assert_eq!(print(&[name, "--version"]), version, "{name}");
    }
    let unknown = scratch.dlock().args(["help", "fly"]).output();
    unknown.code(64).stdout_is("").stderr_is_one_line("there is no subcommand fly: see dlock --help");
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let scratch = Scratch::new();
    let results =
        [&["status", "-k", "k"][..], &["status", "-k", "k", "--json"], &["list", "--json"], &["config"], &["check"]];
    let pages = [&["--version"][..], &["--help"], &["help", "run"], &["generate", "man"], &["generate", "bash"]];
    for words in [&results[..], &pages].concat() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let dlock = || scratch.dlock().args(words).env("DLOCK_BACKEND", scratch.file_url());
        dlock().stdout(full).output().code(74).stderr_is_one_line("could not write to standard output");
        let closed = dlock().wrapped_by(["sh", "-c", "exec \"$@\" >&-", "sh"]).output();
        closed.code(74).stderr_is_one_line("could not write to standard output: Bad file descriptor");
    }
}

#[test]
fn a_hint_is_about_its_own_command() {
    let scratch = Scratch::new();
    for (words, said) in [
        (&["generate", "tcsh"][..], "<WHAT> tcsh: use one of man, bash, zsh, fish"),
        (&["generate"], "<WHAT> is missing; see dlock generate --help"),
        (&["rum"], "there is no subcommand rum: did you mean run?"),
        (&["run", "-k", "k", "--nonblock=x", "true"], "--nonblock takes no value; see dlock run --help"),
    ] {
        let outcome = scratch.dlock().args(words).output();
        outcome.code(64).stdout_is("").stderr_is_one_line(said);
        let hints = ["did you mean", "see dlock"].map(|hint| outcome.stderr().matches(hint).count());
        assert_eq!(hints.iter().sum::<usize>(), 1, "{outcome:?}");
    }
}
