//! Where passwords go: a handle, and a flag that names another server, do not take along what is for the configured one.

use std::fmt::Write;
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::cli::secrets::{SECRET, assert_silent};
use crate::support::dlock::Dlock;
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;

/// A handle of a lock at this URL, as anybody can make one.
fn forged(backend: &str) -> String {
    let fields =
        format!(r#"{{"b":"{backend}","n":"dlock","k":"job","o":"e457f1b7a38ab51a0c8ce773f17aabeb","t":7,"l":30000"#);
    let digest = Sha256::digest(format!("{fields}}}"));
    let sum = digest[..4].iter().fold(String::new(), |mut sum, byte| {
        write!(sum, "{byte:02x}").unwrap();
        sum
    });
    format!("dlock1_{}", URL_SAFE_NO_PAD.encode(format!("{fields},\"s\":\"{sum}\"}}")))
}

/// A server that notes what is sent to it, and answers nothing.
struct Ear(TcpListener);

impl Ear {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn place(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    /// What was sent since the last time, on all connections; `None` without any connection.
    fn heard(&self) -> Option<String> {
        let mut heard: Option<Vec<u8>> = None;
        loop {
            match self.0.accept() {
                Ok((mut stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    // Whoever connected has ended by now.
                    let _ = stream.read_to_end(heard.get_or_insert_default());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return heard.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// The commands that take a handle, which is an argument of the first three.
fn commands<'a>(scratch: &'a Scratch, handle: &'a str) -> impl Iterator<Item = Dlock> + 'a {
    let words = [
        &["release", handle][..],
        &["renew", handle],
        &["run", "--handle", handle, "--connect-timeout", "1", "-n", "--", "echo", "ran"],
    ];
    let given = words.map(|words| {
        let dlock = scratch.dlock().arg(words[0]).args(["--connect-timeout", "1"]);
        if words[0] == "run" { scratch.dlock().args(words) } else { dlock.args(&words[1..]) }
    });
    given.into_iter().chain([scratch.dlock().args(["release", "--connect-timeout", "1"]).env("DLOCK_HANDLE", handle)])
}

fn config(scratch: &Scratch, backend: &str) -> PathBuf {
    scratch.secret("config.toml", format!("backend = \"{backend}\"\nuser = \"svc\"\npassword = \"{SECRET}\"\n"))
}

/// Schemes and what follows the server: in plain text, and with TLS.
const SCHEMES: &[(&str, &str, &str)] = &[
    ("redis", "rediss", ""),
    ("redis+sentinel", "rediss+sentinel", "/name"),
    ("redlock", "redlocks", ""),
    ("etcd", "etcds", ""),
    ("postgres", "postgress", "/db"),
    ("mysql", "mysqls", "/db"),
];

#[test]
fn a_handle_takes_no_password_to_a_server_that_is_not_configured() {
    let (scratch, ear) = (Scratch::new(), Ear::new());
    let place = ear.place();
    for (plain, secure, end) in SCHEMES {
        let listening = |scheme: &str| match *plain {
            // Redlock needs several servers.
            "redlock" => format!("{scheme}://{place},127.0.0.1:1,127.0.0.1:2{end}"),
            _ => format!("{scheme}://{place}{end}"),
        };
        let handle = forged(&listening(plain));
        let configured = match *plain {
            "redlock" => [format!("{plain}://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"), listening(secure)],
            _ => [format!("{plain}://127.0.0.1:1{end}"), listening(secure)],
        };
        for configured in configured {
            let file = config(&scratch, &configured);
            for dlock in commands(&scratch, &handle) {
                let dlock = dlock.env("DLOCK_BACKEND", &configured).env("DLOCK_USER", "svc");
                let outcome = dlock.env("DLOCK_PASSWORD", SECRET).output();
                outcome.code(64).stdout_is("").stderr_is_one_line("the handle is for ");
                assert!(outcome.stderr().contains("set DLOCK_BACKEND="), "{outcome:?}");
                assert_silent(&outcome);
            }
            for dlock in commands(&scratch, &handle) {
                let outcome = dlock.env("DLOCK_CONFIG", &file).output();
                outcome.code(64).stdout_is("").stderr_is_one_line("the handle is for ");
                assert!(outcome.stderr().ends_with("use --password-file\n"), "{outcome:?}");
                assert_silent(&outcome);
            }
            assert_eq!(ear.heard(), None, "{configured}");
        }
    }
    // Sentinels name the servers that get the password: another name is another backend.
    let sentinels = |name: &str| format!("redis+sentinel://{place}/{name}");
    let dlock = scratch.dlock().args(["release", &forged(&sentinels("other"))]).env("DLOCK_PASSWORD", SECRET);
    dlock.env("DLOCK_BACKEND", sentinels("name")).output().code(64).stderr_is_one_line("the handle is for ");
    assert_eq!(ear.heard(), None);
}

/// Adds to a command line what names the password; given the config file, the password file and the URL.
type Case = fn(Dlock, &PathBuf, &PathBuf, &str) -> Dlock;

/// Whatever was meant: the same servers, one of them, none that are configured, or a file that is named for this.
#[test]
fn a_handle_takes_a_password_to_the_servers_that_are_configured() {
    let (scratch, redis) = (Scratch::new(), Redis::with(["--requirepass", SECRET]));
    let port = redis.port();
    let file = config(&scratch, &format!("redis://127.0.0.1:{port}/3"));
    // The user is one that the server does not have.
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("user = \"svc\"\n", "")).unwrap();
    let password = scratch.secret("password", SECRET);
    let cases: [Case; 5] = [
        |dlock, _, _, url| dlock.env("DLOCK_PASSWORD", SECRET).env("DLOCK_BACKEND", format!("{url}/5")),
        |dlock, _, _, _| dlock.env("DLOCK_PASSWORD", SECRET),
        |dlock, _, file, _| dlock.env("DLOCK_PASSWORD_FILE", file),
        |dlock, config, _, _| dlock.env("DLOCK_CONFIG", config),
        |dlock, _, file, _| dlock.env("DLOCK_BACKEND", "etcd://127.0.0.1:1").arg("--password-file").arg(file),
    ];
    for case in cases {
        let url = format!("redis://127.0.0.1:{port}");
        let acquire = scratch.dlock().args(["acquire", "-k", "job", "--ttl", "1m", "-b", &url]);
        let handle = acquire.env("DLOCK_PASSWORD", SECRET).output().quiet().success().stdout();
        for what in ["renew", "release"] {
            let dlock = case(scratch.dlock().args([what, handle.trim_end()]), &file, &password, &url);
            dlock.output().quiet().success();
        }
    }
}

#[test]
fn a_flag_for_another_server_does_not_take_along_the_password_of_a_config_file() {
    let (scratch, ear, redis) = (Scratch::new(), Ear::new(), Redis::start());
    let file = config(&scratch, &format!("redis://{}", ear.place()));
    let run = |scheme: &str, place: &str| {
        let run =
            scratch.dlock().run("k").backend(format!("{scheme}://{place}")).args(["-n", "--connect-timeout", "1"]);
        run.env("DLOCK_CONFIG", &file)
    };
    // A server without a password would refuse one.
    let told = "password (";
    for run in [run("redis", &format!("127.0.0.1:{}", redis.port())), scratch.dlock().run("k")] {
        let run = run.env("DLOCK_CONFIG", &file).env("DLOCK_BACKEND", redis.url());
        let outcome = run.command(["echo", "ran"]).output();
        outcome.code(0).stdout_is("ran\n").stderr_is_one_line(told);
        assert!(outcome.stderr().contains("is not sent to redis://127.0.0.1:"), "{outcome:?}");
        assert_silent(&outcome);
    }
    assert_eq!(ear.heard(), None);
    // To the one that is configured it goes, in whatever way that is named, but not in plain text where TLS is configured.
    run("redis", &format!("{}/4", ear.place()))
        .command(["true"])
        .output()
        .code(69)
        .stderr_ends_with_line("did not get 'k': ");
    assert!(ear.heard().is_some_and(|heard| heard.contains(SECRET)));
    config(&scratch, &format!("rediss://{}", ear.place()));
    run("redis", &ear.place()).command(["true"]).output().code(69).stderr_ends_with_line("did not get 'k': ");
    assert!(ear.heard().is_some_and(|heard| !heard.contains(SECRET) && !heard.contains("svc")));
    // What is given for this run is meant for it.
    run("redis", &ear.place())
        .env("DLOCK_PASSWORD", SECRET)
        .command(["true"])
        .output()
        .code(69)
        .stderr_ends_with_line("did not get 'k': ");
    assert!(ear.heard().is_some_and(|heard| heard.contains(SECRET)));
}
