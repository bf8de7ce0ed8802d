//! Servers that are no databases, or lie as one: bounded time, bounded memory, one line, and no panic.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::services::hostile::{assert_harmless, wait_within_memory};
use crate::support::certificates::Certificates;
use crate::support::proxy::{Behaviour, ENOUGH, Hostile};
use crate::support::scratch::Scratch;

/// What a liar says, and what follows it without end.
pub type Said = (Vec<u8>, Vec<u8>);

/// How a server lies.
pub trait Lie: Copy + Debug + Send + 'static {
    /// The scheme of such a server; with an `s` behind it, that with TLS.
    const SCHEME: &'static str;
    /// All of them.
    const ALL: &'static [Self];

    /// What it says before it is spoken to.
    fn greets(self) -> Said {
        Said::default()
    }

    /// What comes in answer to the `number`-th thing that the client sends.
    fn says(self, number: usize) -> Said;
}

/// Asserts that clients give up servers that lie in these ways, and those that lie in every language.
pub fn are_given_up_in_time<L: Lie>() {
    thread::scope(|scope| {
        for behaviour in Behaviour::ALL {
            let name = format!("{behaviour:?}");
            scope.spawn(move || is_given_up(L::SCHEME, Hostile::start(behaviour).port(), &name));
        }
        for &lie in L::ALL {
            scope.spawn(move || is_given_up(L::SCHEME, liar(lie), &format!("{lie:?}")));
        }
    });
}

#[track_caller]
fn is_given_up(scheme: &str, port: u16, name: &str) {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    for (secure, credentials) in [("", ""), ("", "user:secret@"), ("s", "user:secret@")] {
        let url = format!("{scheme}{secure}://{credentials}127.0.0.1:{port}/db");
        let dlock = scratch.dlock().run("k").backend(&url).args(["--connect-timeout", "1s", "--ttl", "2s"]);
        let dlock = if secure.is_empty() { dlock } else { dlock.arg("--tls-ca").arg(certificates.ca()) };
        let outcome = wait_within_memory(dlock.command(["touch", "ran"]).spawn());
        let (stderr, code) = (outcome.stderr(), outcome.status().code());
        assert!(code == Some(69) || code == Some(77), "{name}: {outcome:?}");
        outcome.stderr_is_one_line("did not get 'k'");
        assert_harmless(&stderr);
        assert!(!stderr.contains("secret"), "{stderr}");
        assert!(outcome.elapsed() < Duration::from_secs(5), "{name}: {outcome:?}");
        assert!(!scratch.path("ran").exists(), "the command ran without a lock");
    }
}

/// Starts a server that lies; returns its port. It ends with the test process.
fn liar(lie: impl Lie) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || lies(&stream, lie));
        }
    });
    port
}

fn lies(mut stream: &TcpStream, lie: impl Lie) {
    let mut buffer = vec![0; 65536];
    let mut number = 0;
    let mut next = lie.greets();
    loop {
        let (first, endless) = next;
        if stream.write_all(&first).is_err() {
            return;
        }
        let mut sent = 0;
        while !endless.is_empty() && sent < ENOUGH {
            if stream.write_all(&endless).is_err() {
                return;
            }
            sent += endless.len() as u64;
        }
        match stream.read(&mut buffer) {
            Ok(1..) => {}
            _ => return,
        }
        next = lie.says(number);
        number += 1;
    }
}
