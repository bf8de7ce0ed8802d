/*!
TLS on every backend that has it: who is trusted, who we are, and that there is no way from there to plain text. And
passwords on every backend that wants one.

What every backend has to do is one suite, as in `contract.rs`; whatever is refused is tried once, and by that a proxy in
front of every server counts.
*/

mod backends;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;

use crate::cli::secrets::{SECRET, assert_kept, assert_silent, encoded};
use crate::support::certificates::{Certificates, ClientCertificate, Identity, Tls};
use crate::support::dlock::{DLOCK, Dlock};
use crate::support::proxy::{Behaviour, Hostile, Proxy};
use crate::support::rendezvous::{Fifo, Gate, make_fifo};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::service::Gated;

use backends::{Secure, SecureEtcd, SecureMysql, SecurePostgres, SecureRedis, SecureZooKeeper};

/// The user that has [`SECRET`].
const USER: &str = "worker";

/// A service, and a proxy in front of each of its servers, which counts who connects.
struct Site<S> {
    // Before the servers go those who use them.
    scratch: Scratch,
    proxies: Vec<Proxy>,
    service: S,
}

impl<S: Secure> Site<S> {
    fn tls() -> Self {
        Self::with(Tls::default())
    }

    fn with(tls: Tls) -> Self {
        Self::on(S::start(Some(tls)))
    }

    fn plain() -> Self {
        Self::on(S::start(None))
    }

    fn on(service: S) -> Self {
        Self { scratch: Scratch::new(), proxies: service.ports().into_iter().map(Proxy::to).collect(), service }
    }

    /// What clients need. Fails the test without TLS.
    fn files(&self) -> &Certificates {
        self.service.certificates()[0]
    }

    /// What comes after the scheme, and the credentials if there are any.
    fn hosts(&self) -> String {
        let hosts: Vec<String> = self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        hosts.join(",") + S::DATABASE
    }

    fn url(&self) -> String {
        format!("{}://{}", S::TLS, self.hosts())
    }

    /// `run --key k` through TLS, and with no authorities but the system's.
    fn run(&self) -> Dlock {
        let run = self.scratch.dlock().run("k").backend(self.url());
        match S::ME {
            Some(me) => run.env("DLOCK_USER", me),
            None => run,
        }
    }

    /// `run --key k` through TLS that trusts the authority of the servers.
    fn trusting(&self) -> Dlock {
        self.run().arg("--tls-ca").arg(self.files().ca())
    }

    /// How many connections there have been, to the server that had the most.
    fn connections(&self) -> u64 {
        self.proxies.iter().map(|proxy| proxy.counts().accepted).max().unwrap()
    }

    /// A run that must fail with `code` and one line with all of `parts`, without having run its command, locked anything,
    /// or connected to any server again and again.
    #[track_caller]
    fn refused(&self, dlock: Dlock, code: i32, parts: &[&str]) {
        let tries = self.refused_after_tries(dlock, code, parts);
        // Who is refused by a server may have got through to it before, and tries once to take that back.
        assert!(tries <= if code == 77 { 2 } else { 1 }, "{tries} connections for what was refused");
    }

    /// Checks a run as [`Self::refused`] does, except for the number of its connections, which it returns.
    #[track_caller]
    fn refused_after_tries(&self, dlock: Dlock, code: i32, parts: &[&str]) -> u64 {
        let before = self.connections();
        let outcome = dlock.command(["touch", "ran"]).output();
        let (first, rest) = parts.split_first().unwrap();
        outcome.code(code).stdout_is("").stderr_is_one_line(first);
        let line = outcome.stderr();
        assert!(rest.iter().all(|part| line.contains(part)), "{line:?} lacks one of {parts:?}");
        assert!(line.contains("did not get 'k': "), "{line:?}");
        assert_silent(&outcome);
        assert!(!self.scratch.path("ran").exists(), "the command has run");
        self.connections() - before
    }
}

/// Names the tests, and makes the macro that runs all of them on one backend.
macro_rules! suite {
    ($($test:ident)*) => {
        macro_rules! secure {
            ($backend:ident: $service:ty) => {
                mod $backend {
                    #[allow(unused_imports)]
                    use super::*;
                    $(#[test] fn $test() { super::$test::<$service>() })*
                }
            };
        }
    };
}

suite! {
    the_authority_that_is_named_is_trusted
    looking_is_done_by_tls_too
    the_systems_authorities_are_trusted_by_default
    a_server_that_cannot_be_trusted_is_not_used
    the_name_of_the_certificate_can_be_given
    our_certificate_is_shown_where_one_is_wanted
    a_plain_server_is_no_way_out
    a_server_with_tls_cannot_be_used_in_plain_text
    a_server_that_says_nothing_is_given_up
    a_server_that_loses_our_trust_ends_the_hold
    a_password_comes_in_by_every_way_and_does_not_get_out
    a_wrong_password_is_tried_once
}

secure!(redis: SecureRedis<1>);
secure!(redlock: SecureRedis<3>);
secure!(etcd: SecureEtcd);
secure!(zookeeper: SecureZooKeeper);
secure!(postgres: SecurePostgres);
secure!(mysql: SecureMysql);

fn the_authority_that_is_named_is_trusted<S: Secure>() {
    let site = Site::<S>::tls();
    let outcome = site.trusting().arg("-v").command(["true"]).output();
    outcome.code(0).stderr_ends_with_line("released 'k'");
    let told = outcome.stderr();
    let is_told = [format!("acquired 'k' at {}://", S::TLS), site.hosts(), ", token ".to_owned()];
    assert!(is_told.iter().all(|part| told.contains(part)), "{outcome:?}");
    // By its variable as well, and with the server's other name.
    let by_name = format!("{}://{}", S::TLS, site.hosts().replace("127.0.0.1", "localhost"));
    let run = site.scratch.dlock().run("k").backend(by_name).env("DLOCK_TLS_CA", site.files().ca());
    run.command(["true"]).output().success();
    // Several authorities in one file.
    let both = [site.files().other_ca(), site.files().ca()].map(|file| fs::read(file).unwrap());
    let both = site.scratch.file("both.pem", both.concat());
    site.run().arg("--tls-ca").arg(both).command(["true"]).output().success();
}

fn looking_is_done_by_tls_too<S: Secure>() {
    let site = Site::<S>::tls();
    for words in [&["status", "-k", "k"][..], &["list", "-q"]] {
        let look = || site.scratch.dlock().args(words).backend(site.url());
        look().arg("--tls-ca").arg(site.files().ca()).output().success();
        look().output().code(69).stdout_is("").stderr_is_one_line("cannot read ");
    }
    assert!(site.service.is_untouched());
}

fn the_systems_authorities_are_trusted_by_default<S: Secure>() {
    let site = Site::<S>::tls();
    let files = site.files();
    let system = |ca: PathBuf| site.run().env("SSL_CERT_FILE", ca);
    system(files.ca()).command(["true"]).output().success();
    site.refused(system(files.other_ca()), 69, &["not signed by an authority that is trusted here", "--tls-ca"]);
    // What is named comes instead of those, not besides.
    let named = system(files.ca()).arg("--tls-ca").arg(files.other_ca());
    site.refused(named, 69, &["not signed by an authority that is trusted here"]);
}

fn a_server_that_cannot_be_trusted_is_not_used<S: Secure>() {
    let tls = |server| Tls { server, ..Tls::default() };
    for (server, reason, remedy) in [
        (Identity::Stranger, "its certificate is not signed by an authority that is trusted here", "--tls-ca"),
        (Identity::Expired, "its certificate has expired", "renew it on the server"),
        (Identity::OtherHost, "its certificate is not for 127.0.0.1", "--tls-server-name"),
    ] {
        let site = Site::<S>::with(tls(server));
        let with_password = site.trusting().env("DLOCK_USER", USER).env("DLOCK_PASSWORD", SECRET);
        site.refused(with_password, 69, &[reason, remedy, &format!("{}://", S::TLS)]);
        // Waiting for the lock does not make it better.
        site.refused(site.trusting().args(["-w", "60"]), 69, &[reason]);
        assert!(site.service.is_untouched());
    }
}

fn the_name_of_the_certificate_can_be_given<S: Secure>() {
    let site = Site::<S>::with(Tls { server: Identity::OtherHost, ..Tls::default() });
    let named = |name: &str| site.trusting().args(["--tls-server-name", name]);
    named("elsewhere.example").command(["true"]).output().success();
    let variable = site.trusting().env("DLOCK_TLS_SERVER_NAME", "elsewhere.example");
    variable.command(["true"]).output().success();
    site.refused(named("localhost"), 69, &["its certificate is not for localhost"]);
    site.refused(named("127.0.0.1"), 69, &["its certificate is not for 127.0.0.1"]);
}

fn our_certificate_is_shown_where_one_is_wanted<S: Secure>() {
    let site = Site::<S>::with(Tls { clients: ClientCertificate::Needed, ..Tls::default() });
    let files = site.files();
    let showing = |identity| {
        let run = site.trusting().arg("--tls-cert").arg(files.certificate(identity));
        run.arg("--tls-key").arg(files.key(identity))
    };
    // More than once: the refusal comes after the handshake, and must not depend on who is faster.
    for _ in 0..5 {
        site.refused(site.trusting(), 77, &[S::NO_CERTIFICATE, "--tls-cert and --tls-key"]);
        site.refused(showing(Identity::ClientOfStranger), 77, &["refused the TLS connection", "our certificate"]);
    }
    assert!(site.service.is_untouched());
    showing(Identity::Client).command(["true"]).output().success();
    let variables = site.trusting().env("DLOCK_TLS_CERT", files.certificate(Identity::Client));
    variables.env("DLOCK_TLS_KEY", files.key(Identity::Client)).command(["true"]).output().success();
    // The key is read and closed again before the command starts.
    let tell = showing(Identity::Client).shell("ls -l /proc/$$/fd/");
    let listed = tell.output();
    listed.success();
    assert!(!listed.stdout().contains("client."), "the command has our key open: {}", listed.stdout());
}

/// Accepts one connection, and gives what came on it until nothing more comes; answers nothing but the end.
fn listener() -> (u16, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Something that is no TLS, as a server in plain text would say it to what it cannot read.
        let _ = stream.write_all(b"-ERR unknown command\r\n");
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        heard
    });
    (port, heard)
}

fn a_plain_server_is_no_way_out<S: Secure>() {
    let site = Site::<S>::plain();
    let files = Certificates::new();
    let run = |url: String| {
        let run = site.scratch.dlock().run("k").backend(url).arg("--tls-ca").arg(files.ca());
        run.env("DLOCK_USER", USER).env("DLOCK_PASSWORD", SECRET).args(["--connect-timeout", "1s"])
    };
    // A server that waits for more before it answers is given up.
    site.refused(run(site.url()), 69, &["did"]);
    assert!(site.service.is_untouched());
    // And nothing that means anything has gone there.
    let (port, heard) = listener();
    let outcome = run(format!("{}://127.0.0.1:{port}{}", S::TLS, S::DATABASE)).command(["touch", "ran"]).output();
    outcome.code(69).stderr_is_one_line(S::NO_TLS);
    let heard = heard.join().unwrap();
    assert_eq!(heard.first().copied(), S::ASKS, "not a handshake: {heard:?}");
    assert_kept(&String::from_utf8_lossy(&heard), "what was sent");
    assert!(!site.scratch.path("ran").exists());
}

fn a_server_with_tls_cannot_be_used_in_plain_text<S: Secure>() {
    let site = Site::<S>::tls();
    let plain = site.scratch.dlock().run("k").backend(format!("{}://{}", S::PLAIN, site.hosts()));
    let tries = site.refused_after_tries(plain, S::REFUSES_PLAIN, &[&format!("{}://", S::PLAIN)]);
    // An attempt that may have arrived is taken back.
    assert!(tries <= 3, "{tries} connections");
    assert!(site.service.is_untouched());
}

fn a_server_that_says_nothing_is_given_up<S: Secure>() {
    let (scratch, files, server) = (Scratch::new(), Certificates::new(), Hostile::start(Behaviour::Silence));
    let run = scratch.dlock().run("k").backend(format!("{}://127.0.0.1:{}{}", S::TLS, server.port(), S::DATABASE));
    let run = run.arg("--tls-ca").arg(files.ca()).args(["--connect-timeout", "0.2"]);
    run.command(["touch", "ran"]).output().code(69).stderr_is_one_line("did not answer within 200ms");
    assert!(!scratch.path("ran").exists());
}

fn a_server_that_loses_our_trust_ends_the_hold<S: Secure>() {
    let site = Site::<S>::tls();
    let holder = Gated::spawn(&site.scratch, site.trusting().args(["-t", &S::LEASE.to_string()]));
    holder.wait_held();
    for files in site.service.certificates() {
        fs::copy(files.certificate(Identity::Stranger), files.certificate(Identity::Server)).unwrap();
        fs::copy(files.key(Identity::Stranger), files.key(Identity::Server)).unwrap();
    }
    let before = site.connections();
    site.service.restart();
    let outcome = holder.running.wait();
    outcome.code(79).stderr_is_one_line("not signed by an authority that is trusted here");
    assert!(outcome.stderr().starts_with("dlock: lost 'k' at "), "{outcome:?}");
    // Every twentieth of the lease, or at the pace of a library.
    let tries = site.connections() - before;
    assert!(tries <= 13 * S::LEASE, "{tries} connections within a lease");
}

/// A way in which a password comes in.
type Way = (&'static str, fn(&Scratch, Dlock) -> Dlock);

/// All but the URL: that is another one.
const WAYS: [Way; 5] = [
    ("DLOCK_PASSWORD", |_, run| run.env("DLOCK_PASSWORD", SECRET)),
    ("--password-file FILE", |scratch, run| run.arg("--password-file").arg(password_file(scratch))),
    ("DLOCK_PASSWORD_FILE", |scratch, run| run.env("DLOCK_PASSWORD_FILE", password_file(scratch))),
    ("--password-file -", |scratch, run| {
        run.args(["--password-file", "-"]).stdin(Stdio::from(fs::File::open(password_file(scratch)).unwrap()))
    }),
    ("--password-file fd:9", |scratch, run| {
        password_file(scratch);
        run.args(["--password-file", "fd:9"]).wrapped_by(["/bin/sh", "-c", r#"exec 9< password; exec "$@""#, "sh"])
    }),
];

fn password_file(scratch: &Scratch) -> PathBuf {
    scratch.secret("password", format!("{SECRET}\n"))
}

fn a_password_comes_in_by_every_way_and_does_not_get_out<S: Secure>() {
    let site = Site::<S>::tls();
    site.service.guard();
    let with_ca = |url: String| {
        let run = site.scratch.dlock().run("k").backend(url);
        run.arg("--tls-ca").arg(site.files().ca()).arg("-v")
    };
    let (in_url, hosts) = (format!("{USER}:{}", encoded(SECRET)), site.hosts());
    let mut runs = vec![("the URL", with_ca(format!("{}://{in_url}@{hosts}", S::TLS)))];
    let variable = site.trusting_by_variable(&format!("{}://{in_url}@{hosts}", S::TLS));
    runs.push(("DLOCK_BACKEND", variable));
    for (way, give) in WAYS {
        runs.push((way, give(&site.scratch, with_ca(format!("{}://{USER}@{hosts}", S::TLS)))));
        runs.push((way, give(&site.scratch, with_ca(site.url())).args(["--user", USER])));
    }
    let gate = Gate::new(site.scratch.path("gate"));
    let mut events = Fifo::new(site.scratch.path("events"));
    for (way, run) in runs {
        let tell = format!(
            "env; tr '\\0' '\\n' < /proc/$$/environ; tr '\\0' ' ' < /proc/$$/cmdline; ls -l /proc/$$/fd/; {}; {}",
            events.say("held"),
            gate.wait()
        );
        let running = run.shell(tell).spawn();
        events.expect("held");
        gate.open();
        let outcome = running.wait();
        outcome.code(0).stderr_ends_with_line("released 'k'");
        assert_silent(&outcome);
        let stdout = outcome.stdout();
        assert!(stdout.contains("DLOCK_TOKEN=") && !stdout.contains("DLOCK_PASSWORD="), "{way}: {stdout}");
        let open = |line: &str| line.contains(" -> ") && line.ends_with("/password") && !line.contains(" 0 -> ");
        assert!(!stdout.lines().any(open), "{way}: the command has the password file open: {stdout}");
    }
}

impl<S: Secure> Site<S> {
    /// `run --key k` with everything in variables.
    fn trusting_by_variable(&self, url: &str) -> Dlock {
        let run = self.scratch.dlock().run("k").env("DLOCK_BACKEND", url).arg("-v");
        run.env("DLOCK_TLS_CA", self.files().ca())
    }
}

fn a_wrong_password_is_tried_once<S: Secure>() {
    let site = Site::<S>::tls();
    site.service.guard();
    let refused = |run: Dlock, more: &str| {
        site.refused(run, 77, &["--password-file", "password", more]);
    };
    // Right would be SECRET; what is given must not be repeated either.
    let wrong = format!("{SECRET}x");
    let user = || site.trusting().args(["--user", USER]);
    refused(user().env("DLOCK_PASSWORD", &wrong), "");
    refused(user().env("DLOCK_PASSWORD", &wrong).args(["-w", "60"]), "");
    refused(site.trusting().args(["--user", "nobody"]).env("DLOCK_PASSWORD", SECRET), "");
    refused(site.trusting().env("DLOCK_PASSWORD", SECRET), "");
    refused(site.trusting(), "given");
    refused(user(), "give");
    // An outer run whose password came by a variable does not pass it on.
    let command = [user().env("DLOCK_PASSWORD", SECRET), user()].map(|run| run.arg("-v"));
    let [outer, _] = command;
    let inner = format!("'{}' run --key k --backend '{}' --user {USER} -- touch ran", *DLOCK, site.url());
    let outcome = outer.env("DLOCK_TLS_CA", site.files().ca()).shell(inner).output();
    outcome.code(77).stderr_ends_with_line("released 'k'");
    assert!(
        outcome.stderr().contains("use --password-file") || outcome.stderr().contains("and --password-file"),
        "{outcome:?}"
    );
    assert_silent(&outcome);
    assert!(!site.scratch.path("ran").exists());
}

#[test]
fn a_password_that_is_changed_ends_the_hold_without_a_storm() {
    // A session of ZooKeeper's goes on as who it was.
    a_changed_password_ends_the_hold::<SecureRedis<1>>();
    a_changed_password_ends_the_hold::<SecureRedis<3>>();
    a_changed_password_ends_the_hold::<SecureEtcd>();
}

fn a_changed_password_ends_the_hold<S: Secure>() {
    let site = Site::<S>::plain();
    let url = format!("{}://{}", S::PLAIN, site.hosts());
    let run = || site.scratch.dlock().run("k").backend(&url).args(["-t", "2s"]);
    let holder = Gated::spawn(&site.scratch, run());
    holder.wait_held();
    site.service.guard();
    let before = site.connections();
    // Those who are known may go on until they have to say who they are.
    for proxy in &site.proxies {
        proxy.set(crate::support::proxy::Mode::Reset);
        proxy.set(crate::support::proxy::Mode::Forward);
    }
    let outcome = holder.running.wait();
    outcome.code(79).stderr_is_one_line("refused the credentials");
    assert!(outcome.stderr().starts_with("dlock: lost 'k' at "), "{outcome:?}");
    let tries = site.connections() - before;
    assert!(tries <= 25, "{tries} connections within a lease");
}

/// What has nothing to do with the servers: all of it is found out before anything is asked of them.
mod files {
    use super::*;

    /// URLs of every backend with TLS, at a port where nobody listens.
    const URLS: [&str; 8] = [
        "rediss://127.0.0.1:1",
        "valkeys://127.0.0.1:1",
        "rediss+sentinel://127.0.0.1:1/name",
        "redlocks://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
        "etcds://127.0.0.1:1",
        "zks://127.0.0.1:1",
        "postgress://127.0.0.1:1",
        "mysqls://127.0.0.1:1/locks",
    ];

    /// 64, and one line with `parts`.
    #[track_caller]
    fn refused(scratch: &Scratch, run: Dlock, parts: &[&str]) {
        let outcome = run.command(["touch", "ran"]).output();
        outcome.code(64).stdout_is("").stderr_is_one_line(parts[0]);
        let line = outcome.stderr();
        assert!(parts.iter().all(|part| line.contains(part)), "{line:?} lacks one of {parts:?}");
        assert!(!scratch.path("ran").exists());
    }

    #[test]
    fn files_that_cannot_be_used_are_refused_by_the_option_that_names_them() {
        let (scratch, files) = (Scratch::new(), Certificates::new());
        let garbage = scratch.file("garbage.pem", "this is no PEM file\n");
        let empty = scratch.file("empty.pem", "");
        let hollow = scratch.file("hollow.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let cut = scratch.file("cut.pem", &fs::read(files.ca()).unwrap()[..100]);
        let closed = scratch.file("closed.pem", fs::read(files.ca()).unwrap());
        fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
        let directory = scratch.directory("directory.pem", 0o755);
        let missing = scratch.path("missing.pem");
        let (cert, key) = (files.certificate(Identity::Client), files.key(Identity::Client));
        for url in URLS {
            let run = || scratch.dlock().run("k").backend(url);
            for file in [&missing, &garbage, &empty, &cut, &directory, &key] {
                let (name, hint) = (file.display().to_string(), "name a readable PEM file");
                refused(&scratch, run().arg("--tls-ca").arg(file), &["--tls-ca: could not read", &name, hint]);
                refused(&scratch, run().env("DLOCK_TLS_CA", file), &["--tls-ca: could not read", &name, hint]);
                let certified =
                    run().arg("--tls-ca").arg(files.ca()).arg("--tls-cert").arg(file).arg("--tls-key").arg(&key);
                refused(&scratch, certified, &["--tls-cert: could not read", &name, hint]);
            }
            for file in [&missing, &garbage, &empty, &cut, &directory, &cert] {
                let (name, hint) = (file.display().to_string(), "name a readable PEM file");
                let certified =
                    run().arg("--tls-ca").arg(files.ca()).arg("--tls-cert").arg(&cert).arg("--tls-key").arg(file);
                refused(&scratch, certified, &["--tls-key: could not read", &name, hint]);
            }
            // PEM around something that is none of this.
            refused(&scratch, run().arg("--tls-ca").arg(&hollow), &["--tls-ca: could not read", "hollow.pem"]);
            if !crate::support::process::is_root() {
                refused(&scratch, run().arg("--tls-ca").arg(&closed), &["--tls-ca: could not read", "closed.pem"]);
            }
            // One without the other, and two that do not belong together.
            let trusting = || run().arg("--tls-ca").arg(files.ca());
            refused(&scratch, trusting().arg("--tls-cert").arg(&cert), &["--tls-cert needs --tls-key"]);
            refused(&scratch, trusting().env("DLOCK_TLS_KEY", &key), &["--tls-key needs --tls-cert"]);
            let mixed = trusting().arg("--tls-cert").arg(&cert).arg("--tls-key").arg(files.key(Identity::Server));
            refused(&scratch, mixed, &["--tls-cert and --tls-key do not fit together"]);
            refused(&scratch, trusting().args(["--tls-server-name", "no name"]), &["--tls-server-name: \"no name\""]);
        }
    }

    /// Bounded in size and in time, and a signal ends the wait.
    #[test]
    fn files_without_an_end_are_not_read_without_an_end() {
        let (scratch, files) = (Scratch::new(), Certificates::new());
        let (cert, key) = (files.certificate(Identity::Client), files.key(Identity::Client));
        let mut long = fs::read(files.ca()).unwrap();
        long.resize((1 << 20) + 1, b'\n');
        let long = scratch.file("long.pem", long);
        let (lonely, silent) = (scratch.path("lonely.pem"), scratch.path("silent.pem"));
        make_fifo(&lonely);
        make_fifo(&silent);
        let writer = fs::OpenOptions::new().read(true).write(true).open(&silent).unwrap();
        for url in URLS {
            let run = || {
                scratch.dlock().wrapped_by(["timeout", "20"]).run("k").backend(url).args(["--connect-timeout", "0.2"])
            };
            for (file, reason) in [
                (&"/dev/zero".into(), "it is neither a regular file nor a pipe"),
                (&long, "it is longer than 1048576 bytes"),
                (&lonely, "no program has opened it for writing within 200ms"),
                (&silent, "the program that has it open has not written all of it within 200ms"),
            ] {
                let cases = [
                    ("--tls-ca", file, &cert, &key),
                    ("--tls-cert", &files.ca(), file, &key),
                    ("--tls-key", &files.ca(), &cert, file),
                ];
                for (option, ca, cert, key) in cases {
                    let run = run().arg("--tls-ca").arg(ca).arg("--tls-cert").arg(cert).arg("--tls-key").arg(key);
                    refused(&scratch, run, &[&format!("{option}: could not read"), reason]);
                }
            }
        }
        let config = scratch.secret("config.toml", "backend = \"rediss://127.0.0.1:1\"\ntls-ca = \"/dev/zero\"\n");
        let run = scratch.dlock().run("k").env("DLOCK_CONFIG", config).command(["true"]);
        run.output().code(78).stderr_is_one_line("it is neither a regular file nor a pipe");
        // With time to wait, a signal ends that.
        let running = scratch.dlock().run("k").backend(URLS[0]).arg("--tls-ca").arg(&silent).command(["true"]).spawn();
        let open = format!("/proc/{}/fd", running.dlock_pid());
        crate::support::rendezvous::eventually("the pipe to be waited for", || {
            let links = fs::read_dir(&open).ok()?;
            links.flatten().any(|link| fs::read_link(link.path()).is_ok_and(|target| target == silent)).then_some(())
        });
        running.signal(nix::sys::signal::Signal::SIGTERM);
        running.wait().signal(nix::sys::signal::Signal::SIGTERM);
        drop(writer);
    }

    /// As a shell makes them of `<(command)`.
    #[test]
    fn a_pipe_is_as_good_as_a_file() {
        let site = Site::<SecureRedis<1>>::with(Tls { clients: ClientCertificate::Needed, ..Tls::default() });
        let files = site.files();
        let all = [files.ca(), files.certificate(Identity::Client), files.key(Identity::Client)];
        let script = "exec \"$0\" run -k k -b \"$1\" --tls-ca <(sleep 0.3; cat \"$2\") --tls-cert <(cat \"$3\") \\
            --tls-key <(cat \"$4\") -- echo ran";
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", script, *DLOCK, &format!("rediss://{}", site.hosts())]).args(all);
        let output = bash.env("DLOCK_CONFIG", "/dev/null").output().unwrap();
        assert!(output.status.success() && output.stdout == b"ran\n" && output.stderr.is_empty(), "{output:?}");
    }

    #[test]
    fn a_system_that_trusts_nobody_is_told_apart() {
        let scratch = Scratch::new();
        let nobody = scratch.file("nobody.pem", "");
        for url in URLS {
            let run = scratch.dlock().run("k").backend(url).env("SSL_CERT_FILE", &nobody);
            let run = run.env("SSL_CERT_DIR", scratch.directory("none", 0o755));
            refused(&scratch, run, &["no certificate authorities", "--tls-ca"]);
        }
    }

    /// Each option, with a value that could be used.
    fn options(files: &Certificates) -> [(&'static str, PathBuf); 4] {
        [
            ("ca", files.ca()),
            ("cert", files.certificate(Identity::Client)),
            ("key", files.key(Identity::Client)),
            ("server-name", "localhost".into()),
        ]
    }

    #[test]
    fn options_for_tls_are_never_ignored_where_something_would_be_sent_in_plain_text() {
        let (scratch, files) = (Scratch::new(), Certificates::new());
        for url in [
            "redis://127.0.0.1:1",
            "valkey://127.0.0.1:1",
            "redis",
            "redis+sentinel://127.0.0.1:1/name",
            "redis-sentinel://127.0.0.1:1/name",
            "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
            "etcd://127.0.0.1:1",
            "etcd",
            "zk://127.0.0.1:1",
            "zk",
            "postgres://127.0.0.1:1",
            "postgres",
            "mysql://127.0.0.1:1/locks",
        ] {
            for (name, value) in options(&files) {
                let run = || scratch.dlock().run("k").backend(url);
                let flag = run().arg(format!("--tls-{name}")).arg(&value);
                refused(&scratch, flag, &["--tls-", "does not use TLS"]);
                let variable = format!("DLOCK_TLS_{}", name.replace('-', "_").to_uppercase());
                refused(&scratch, run().env(variable, &value), &["--tls-", "does not use TLS"]);
            }
        }
    }

    #[test]
    fn where_nothing_is_sent_variables_for_tls_do_not_matter_and_flags_are_a_mistake() {
        let (scratch, files) = (Scratch::new(), Certificates::new());
        let redis = Redis::start();
        for url in [scratch.file_url(), redis.socket_url()] {
            let mut all = scratch.dlock().run("k").backend(&url);
            for (name, value) in options(&files) {
                let flag = scratch.dlock().run("k").backend(&url).arg(format!("--tls-{name}")).arg(&value);
                refused(&scratch, flag, &["--tls-", "leave it out"]);
                all = all.env(format!("DLOCK_TLS_{}", name.replace('-', "_").to_uppercase()), &value);
            }
            all.command(["true"]).output().success();
        }
    }

    #[test]
    fn the_key_of_a_lock_is_no_key_of_a_certificate() {
        let (scratch, files) = (Scratch::new(), Certificates::new());
        let pem = files.key_and_certificate(Identity::Client);
        let (here, loud) = (scratch.file("client.pem", ""), scratch.file("CLIENT.PEM", ""));
        let run = |key: &std::ffi::OsStr| scratch.dlock().run(key).backend(scratch.file_url());
        for key in [pem.as_os_str(), here.file_name().unwrap(), loud.file_name().unwrap()] {
            refused(&scratch, run(key), &["--key is the lock's name", "--tls-key"]);
        }
        // A name is a name.
        run("other.pem".as_ref()).command(["true"]).output().success();
        let plain = scratch.file("client.key", "");
        run(plain.file_name().unwrap()).command(["true"]).output().success();
    }
}

#[test]
fn valkeys_is_the_same_by_another_name() {
    let site = Site::<SecureRedis<1>>::tls();
    let url = format!("valkeys://{}", site.hosts());
    let run = site.scratch.dlock().run("k").backend(&url).arg("--tls-ca").arg(site.files().ca());
    let outcome = run.arg("-v").command(["true"]).output();
    outcome.code(0).stderr_ends_with_line("released 'k'");
    assert!(outcome.stderr().contains(&format!("acquired 'k' at {url}, token ")), "{outcome:?}");
    let untrusted = site.scratch.dlock().run("k").backend(&url).env("SSL_CERT_FILE", site.files().other_ca());
    site.refused(untrusted, 69, &["not signed by an authority that is trusted here", "valkeys://"]);
}

#[test]
fn a_redis_that_would_take_a_certificate_needs_none_but_refuses_a_wrong_one() {
    let site = Site::<SecureRedis<1>>::with(Tls { clients: ClientCertificate::Wanted, ..Tls::default() });
    let files = site.files();
    site.trusting().command(["true"]).output().success();
    let wrong = site.trusting().arg("--tls-cert").arg(files.certificate(Identity::ClientOfStranger));
    let wrong = wrong.arg("--tls-key").arg(files.key(Identity::ClientOfStranger));
    site.refused(wrong, 77, &["refused the TLS connection", "our certificate"]);
}

#[test]
fn a_user_without_a_password_is_not_taken_for_the_default_one() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let run =
        |user: &str| scratch.dlock().run("k").backend(redis.url()).args(["--user", user]).command(["touch", "ran"]);
    redis.cli(&["ACL", "SETUSER", "some", "on", ">x", "~*", "+@all"]);
    redis.cli(&["ACL", "SETUSER", "open", "on", "nopass", "~*", "+@all"]);
    for user in ["some", "nobody"] {
        run(user).output().code(77).stderr_is_one_line("no password was given");
    }
    assert!(!scratch.path("ran").exists());
    run("open").output().success();
}
