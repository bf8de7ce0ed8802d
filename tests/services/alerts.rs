//! What is said before TLS has begun in earnest: anybody on the way can say it, so it proves nothing.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use crate::support::certificates::Certificates;
use crate::support::scratch::Scratch;

/// The alerts by which a server refuses a client's certificate, or the lack of one, as they are numbered.
const REFUSALS: [u8; 5] = [42, 46, 48, 49, 116];

/// A server that answers the first bytes of each connection with this alert in plain text.
fn alarming(alert: u8) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It goes with the test.
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(&[0x15, 3, 3, 0, 2, 2, alert]);
        }
    });
    port
}

#[test]
fn an_alert_in_plain_text_is_an_outage_and_no_refusal() {
    let (scratch, files) = (Scratch::new(), Certificates::new());
    for scheme in ["rediss", "redlocks", "etcds", "zks"] {
        for alert in REFUSALS {
            let server = format!("127.0.0.1:{}", alarming(alert));
            let dlock = scratch.dlock().run("k").backend(format!("{scheme}://{server}"));
            let outcome = dlock.arg("--tls-ca").arg(files.ca()).command(["touch", "ran"]).output();
            outcome.code(69).stderr_is_one_line("it ended the handshake before it had shown who it is");
            assert!(!scratch.path("ran").exists(), "{scheme} {alert}");
        }
    }
}
