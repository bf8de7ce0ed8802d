mod messages;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::support::certificates::{Certificates, ClientCertificate, Identity, Tls};
use crate::support::dlock::{Dlock, Outcome};
use crate::support::own_tests;
use crate::support::process;
use crate::support::proxy::{Behaviour, Hostile};
use crate::support::rendezvous::{Fifo, Gate, Lifeline};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, Seen, need, runs_script};

/// Keys that a user may choose, and how every backend spells them.
const ODD_KEYS: &[(&str, &str)] = &[
    ("..", "%2E."),
    (".", "%2E"),
    (".hidden", "%2Ehidden"),
    ("../../escape", "%2E.%2F..%2Fescape"),
    ("/etc/passwd", "%2Fetc%2Fpasswd"),
    ("a/b", "a%2Fb"),
    ("a%2Fb", "a%252Fb"),
    ("%", "%25"),
    ("-x", "-x"),
    ("--", "--"),
    (" ", " "),
    ("~", "~"),
    ("*?[a]", "*?[a]"),
    ("$(touch ran) `touch ran` \"'", "$(touch ran) `touch ran` \"'"),
    ("a:b\\c", "a:b\\c"),
    ("{tag}", "{tag}"),
    ("a.lock", "a.lock"),
    ("日本語", "日本語"),
    ("ключ", "ключ"),
    ("مفتاح", "مفتاح"),
    ("e\u{301} é", "e\u{301} é"),
    ("🔒", "🔒"),
];

/// `run` with a key that may begin with a dash.
fn run_key(scratch: &Scratch, key: impl AsRef<OsStr>) -> Dlock {
    let mut option = OsString::from("--key=");
    option.push(key);
    scratch.dlock().arg("run").arg(option)
}

/// `run --key k` with the locks in the scratch directory.
fn run_file(scratch: &Scratch) -> Dlock {
    scratch.dlock().run("k").backend(scratch.file_url())
}

/// The names in `directory`.
fn names(directory: &Path) -> BTreeSet<OsString> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// Holds the lock `k` of the scratch directory, as flock(1) would, until it is dropped.
fn hold(scratch: &Scratch) -> File {
    let file = File::create(scratch.lock_dir().join("k.lock")).unwrap();
    file.lock().unwrap();
    file
}

#[test]
fn an_odd_key_is_one_file_in_the_lock_directory_and_nothing_anywhere_else() {
    let scratch = Scratch::new();
    let mut expected = BTreeSet::new();
    for (key, encoded) in ODD_KEYS {
        let outcome = run_key(&scratch, key).backend(scratch.file_url()).shell(r#"printf %s "$DLOCK_KEY""#).output();
        outcome.success().stdout_is(key);
        expected.insert(OsString::from(format!("{encoded}.lock")));
        assert_eq!(names(&scratch.lock_dir()), expected, "{key:?}");
    }
    assert_eq!(names(scratch.root()), BTreeSet::from(["locks".into()]));
    for name in expected {
        assert!(fs::symlink_metadata(scratch.lock_dir().join(&name)).unwrap().is_file(), "{}", name.display());
    }
}

#[test]
fn the_longest_keys_are_distinct_files_that_end_in_a_sha_256() {
    let scratch = Scratch::new();
    let keys = ["x".repeat(512), "x".repeat(511) + "y", "ü".repeat(256), "/".repeat(512), ".".repeat(512)];
    for (number, key) in (1..).zip(&keys) {
        assert_eq!(key.len(), 512);
        let before = names(&scratch.lock_dir());
        run_key(&scratch, key).backend(scratch.file_url()).shell("printf ok").output().success().stdout_is("ok");
        let after = names(&scratch.lock_dir());
        assert_eq!(after.len(), number, "no file of its own: {after:?}");
        let name = after.difference(&before).next().unwrap().to_str().unwrap();
        let encoded = key.replace('/', "%2F");
        let encoded = encoded.strip_prefix('.').map_or(encoded.clone(), |rest| format!("%2E{rest}"));
        let digest = Sha256::digest(encoded).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        assert!(name.ends_with(&format!("{digest}.lock")) && name.len() <= 255, "{name}");
    }
    // As long as it can be without one: 200 bytes.
    let key = "y".repeat(200);
    run_key(&scratch, &key).backend(scratch.file_url()).command(["true"]).output().success();
    assert!(scratch.lock_dir().join(key + ".lock").exists());
}

/// The keys that dlock's scripts have set to a string, and in which database.
fn strings_set(seen: &[Seen]) -> Vec<(u32, String)> {
    let set = |seen: &&Seen| seen.source == "lua" && seen.words[0] == "SET" && !seen.words[1].contains('\u{1}');
    seen.iter().filter(set).map(|seen| (seen.db, seen.words[1].clone())).collect()
}

#[test]
fn an_odd_key_is_exactly_one_string_in_redis() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let longest = "ü".repeat(256);
    let keys = ODD_KEYS.iter().copied().chain([(longest.as_str(), longest.as_str())]);
    let keys: Vec<_> = keys.collect();
    for (arguments, prefix) in [(&[][..], "dlock:"), (&["--namespace", "a/b:c"], "a/b:c:"), (&["--namespace="], "")] {
        let monitor = redis.monitor();
        for (key, _) in &keys {
            let run = run_key(&scratch, key).backend(redis.url()).args(arguments);
            run.shell(r#"printf %s "$DLOCK_KEY""#).output().success().stdout_is(key);
        }
        let expected: Vec<_> = keys.iter().map(|(_, encoded)| (0, format!("{prefix}{encoded}"))).collect();
        assert_eq!(strings_set(&monitor.all()), expected);
    }
    // The remaining keys are dlock's side keys, which no user can name.
    assert!(redis.keys().iter().all(|key| key.contains('\u{1}')), "{:?}", redis.keys());
}

#[test]
fn a_database_in_the_url_is_the_one_that_is_used() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let monitor = redis.monitor();
    scratch.dlock().run("k").backend(redis.url_for("", "", 3)).command(["true"]).output().success();
    assert_eq!(strings_set(&monitor.all()), [(3, "dlock:k".to_owned())]);
    // There are 16.
    let outcome = scratch.dlock().run("k").backend(redis.url_for("", "", 16)).command(["true"]).output();
    outcome.code(69).stderr_is_one_line("did not get 'k'");
}

/// A password in which everything has to be encoded.
const ODD_PASSWORD: &str = "p@ss:w%rd/é?#[ ]";

/// All that a user needs on the key patterns of the namespace `dlock`.
const ACL: &str = "resetkeys ~dlock:* ~{dlock:* resetchannels -@all +eval +evalsha +blpop +select +time +type +get +getrange \
                   +set +del +exists +pexpire +pttl +lpush +hget +hset +hdel +hvals +hgetall +zadd +zrem +zrange \
                   +zrangebyscore +zrevrange +zscore +zrank +zcard";

fn with_user(redis: &Redis, rules: &str) {
    let password = format!(">{ODD_PASSWORD}");
    let words: Vec<&str> = ["ACL", "SETUSER", "worker", "on", &password].into_iter().chain(rules.split(' ')).collect();
    redis.cli(&words);
}

#[test]
fn a_password_of_any_characters_works_percent_encoded() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", ODD_PASSWORD]);
    for database in [0, 2] {
        let url = redis.url_for("", ODD_PASSWORD, database);
        scratch.dlock().run("k").backend(url).shell("printf ok").output().success().stdout_is("ok");
    }
    let default = redis.url_for("default", ODD_PASSWORD, 0);
    scratch.dlock().run("k").backend(default).command(["true"]).output().success();
}

#[test]
fn a_user_who_may_do_only_what_is_needed_can_hold_renew_wait_and_hand_over() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    with_user(&redis, ACL);
    let url = redis.url_for("worker", ODD_PASSWORD, 1);
    let gate = Gate::new(scratch.path("gate"));
    let mut events = Fifo::new(scratch.path("events"));
    let monitor = redis.monitor();
    let run = || scratch.dlock().run("k").backend(&url).args(["--ttl", "1s"]);
    let holder = run().shell(format!("{}; {}", events.say("held"), gate.wait())).spawn();
    events.expect("held");
    let waiter = run().shell(events.say("next")).spawn();
    waiter.wait_stderr("waiting for 'k'");
    // The holder's attempt and two renewals, the waiter's attempts.
    monitor.wait_until("renewals", |seen| seen.iter().filter(|words| runs_script(words)).count() > 5);
    gate.open();
    holder.wait().success();
    events.expect("next");
    waiter.wait().code(0).stderr_is_one_line("waiting for 'k': held by ");
}

#[test]
fn a_user_who_may_not_is_told_so() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    with_user(&redis, ACL);
    let denied = |url: String, namespace: &str, why: &str| {
        let run = scratch.dlock().run("k").backend(url).args(["--namespace", namespace]).command(["touch", "ran"]);
        run.output().code(77).stderr_is_one_line(why);
    };
    let credentials = "check the user and password";
    denied(redis.url_for("worker", "wrong", 0), "dlock", credentials);
    denied(redis.url_for("nobody", ODD_PASSWORD, 0), "dlock", credentials);
    // Of another namespace.
    denied(redis.url_for("worker", ODD_PASSWORD, 0), "other", "lacks rights: ");
    with_user(&redis, "-eval");
    denied(redis.url_for("worker", ODD_PASSWORD, 0), "dlock", "lacks rights: ");
    with_user(&redis, "off");
    denied(redis.url_for("worker", ODD_PASSWORD, 0), "dlock", credentials);
    assert!(!scratch.path("ran").exists());
    assert!(redis.keys().is_empty(), "{:?}", redis.keys());
}

#[test]
fn waiting_for_zero_seconds_is_not_waiting() {
    let scratch = Scratch::new();
    let _held = hold(&scratch);
    for zero in ["0", "0s", "0.0"] {
        let outcome = run_file(&scratch).args(["-w", zero]).command(["true"]).output();
        outcome.code(75).stderr_is_one_line("did not get 'k': held by ");
    }
    let other = scratch.dlock().run("other").backend(scratch.file_url()).args(["-w", "0"]).command(["true"]);
    other.output().success();
}

#[test]
fn arguments_are_bytes_and_are_passed_on_as_they_are() {
    let scratch = Scratch::new();
    let odd: [&[u8]; 9] = [b"", b"\xff\xfe", b"a\nb", b"--", b"-n", b" * ", b"\xf0\x9f", b"'\"\\$x`", b"\x01\x1b[0m"];
    let expected: Vec<u8> = odd.iter().flat_map(|arg| [arg, &b"\0"[..]].concat()).collect();
    let arguments = odd.iter().map(|arg| OsStr::from_bytes(arg));
    let run = run_file(&scratch).command(["sh", "-c", r#"printf '%s\0' "$@""#, "sh"]).args(arguments);
    let outcome = run.output();
    outcome.success();
    assert_eq!(outcome.stdout_bytes(), expected);
    // The program itself, and a script for `-c`.
    let directory = scratch.path(OsStr::from_bytes(b"bin \xff"));
    fs::create_dir(&directory).unwrap();
    symlink("/bin/echo", directory.join("echo")).unwrap();
    run_file(&scratch).command([directory.join("echo").as_os_str(), OsStr::new("hi")]).output().success();
    let outcome = run_file(&scratch).arg("-c").arg(OsStr::from_bytes(b"printf 'a\xffb'")).output();
    outcome.success();
    assert_eq!(outcome.stdout_bytes(), b"a\xffb");
    // What follows the command is the command's, with and without `--`.
    run_file(&scratch).args(["echo", "-n", "--key", "x", "--", "-v"]).output().success().stdout_is("--key x -- -v");
}

#[test]
fn environment_values_are_bytes_too() {
    let scratch = Scratch::new();
    let value = OsStr::from_bytes(b"a\xffb\n");
    let outcome = run_file(&scratch).env("ODD", value).shell(r#"printf %s "$ODD""#).output();
    outcome.success();
    assert_eq!(outcome.stdout_bytes(), value.as_bytes());
}

#[test]
fn a_lock_directory_may_have_any_name() {
    let scratch = Scratch::new();
    let name = OsString::from_vec(b"d %?#\n\xff@:".to_vec());
    fs::create_dir(scratch.path(&name)).unwrap();
    let url = format!("file://{}/d%20%25%3F%23%0A%FF@:", scratch.root().display());
    scratch.dlock().run("k").backend(url).command(["true"]).output().success();
    assert_eq!(names(&scratch.path(&name)), BTreeSet::from(["k.lock".into()]));
}

#[test]
fn a_closed_standard_input_stays_closed() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    for url in [scratch.file_url(), redis.url()] {
        let run = scratch.dlock().run("k").backend(url).without_fd(0);
        run.shell("[ -e /proc/$$/fd/0 ] || printf closed").output().success().stdout_is("closed");
    }
}

#[test]
fn a_wrong_value_of_a_variable_is_refused_like_a_wrong_flag() {
    let scratch = Scratch::new();
    for (name, value) in [
        ("TTL", "0"),
        ("WAIT", "soon"),
        ("CONFLICT_EXIT_CODE", "256"),
        ("KILL_AFTER", "16s"),
        ("MIN_HOLD", "11years"),
        ("LOCK_DELAY", "soon"),
        ("ONCE_PER", "0.5"),
        ("ON_LOST", "nothing"),
        ("LEFTOVERS", "all"),
        ("MAX_RUN", "0"),
        ("NAMESPACE", "a\tb"),
        ("CONNECT_TIMEOUT", "-1"),
        ("PASSWORD_FILE", "/nonexistent"),
        ("NONBLOCK", "maybe"),
        ("QUIET", "2"),
        ("STRICT_FENCING", "please"),
        ("SHARED", "perhaps"),
        ("SLOTS", "0"),
        ("SLOTS", "1001"),
        ("REPLICAS", "many"),
        ("REPLICAS", "-1"),
        ("REPLICAS", "4294967296"),
    ] {
        let name = format!("DLOCK_{name}");
        let outcome = run_file(&scratch).env(&name, value).command(["touch", "ran"]).output();
        outcome.code(64).stderr_is_one_line(&name);
        assert!(!outcome.stderr().contains("--backend"), "{outcome:?}");
    }
    let run = scratch.dlock().run("k").env("DLOCK_BACKEND", "nonsense").command(["touch", "ran"]);
    run.output().code(64).stderr_is_one_line("DLOCK_BACKEND: ");
    assert!(!scratch.path("ran").exists() && names(&scratch.lock_dir()).is_empty());
}

#[test]
fn every_option_has_a_variable_and_a_test_that_is_named_after_it() {
    let scratch = Scratch::new();
    let help = scratch.dlock().args(["run", "--help"]).output();
    help.success();
    let help = help.stdout();
    let offered: BTreeSet<&str> =
        help.split("[env: DLOCK_").skip(1).filter_map(|rest| rest.split(']').next()).collect();
    let tests = own_tests(&[]);
    let names = tests.iter().filter_map(|test| test.strip_prefix("cli::input::variables::"));
    let names = names.map(|test| test.strip_prefix("connection::").unwrap_or(test));
    let tested: BTreeSet<String> = names.flat_map(|name| name.split("_and_")).map(str::to_uppercase).collect();
    assert_eq!(offered, tested.iter().map(String::as_str).collect());
    // What an option does is indented further than its name.
    let is_option = |line: &&str| line.find('-').is_some_and(|at| at < 8 && line[..at].trim().is_empty());
    let options = help.lines().filter(|line| is_option(line) && line.contains("--")).count();
    assert_eq!(options, tested.len() + 3, "all but --key, --help and --version have one:\n{help}");
}

/// What can be seen of a file, and would show any change to it.
#[derive(Debug, PartialEq, Eq)]
struct Seal {
    inode: u64,
    mode: u32,
    owner: u32,
    modified: (i64, i64),
    changed: (i64, i64),
    content: Vec<u8>,
}

/// Everything at `path` and below it.
fn seal(path: &Path) -> BTreeMap<PathBuf, Seal> {
    let mut found = BTreeMap::new();
    let Ok(about) = fs::symlink_metadata(path) else { return found };
    let content = if about.is_file() {
        fs::read(path).unwrap()
    } else if about.is_symlink() {
        fs::read_link(path).unwrap().into_os_string().into_vec()
    } else {
        Vec::new()
    };
    let seal_of_this = Seal {
        inode: about.ino(),
        mode: about.mode(),
        owner: about.uid(),
        modified: (about.mtime(), about.mtime_nsec()),
        changed: (about.ctime(), about.ctime_nsec()),
        content,
    };
    found.insert(path.to_owned(), seal_of_this);
    // One that we may not read is sealed by its own times.
    for entry in fs::read_dir(path).into_iter().flatten() {
        found.append(&mut seal(&entry.unwrap().path()));
    }
    found
}

/// Runs it with a command that would leave a mark: refused with `code` in one line that holds `hint`, without having
/// run anything, created anything or changed anything below `sealed`.
#[track_caller]
fn refused(scratch: &Scratch, dlock: Dlock, code: i32, hint: &str, sealed: &Path) -> Outcome {
    let before = seal(sealed);
    let outcome = dlock.output();
    outcome.code(code).stderr_is_one_line(hint).stdout_is("");
    assert!(!outcome.stderr().chars().any(|c| c.is_control() && c != '\n'), "{outcome:?}");
    assert!(!scratch.path("ran").exists(), "the command was run: {outcome:?}");
    assert_eq!(seal(sealed), before, "{outcome:?}");
    outcome
}

#[test]
fn keys_that_cannot_be_are_refused() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let long = "x".repeat(513);
    let keys: &[(&[u8], &str)] = &[
        (b"", "give the lock a name"),
        (long.as_bytes(), "shorten it"),
        (b"a\nb", "remove them"),
        (b"a\x1b[2Jb", "remove them"),
        (b"a\x7f", "remove them"),
        ("a\u{85}b".as_bytes(), "remove them"),
        (b"\xff", "must be UTF-8"),
        (b"a\xc3(", "must be UTF-8"),
        (b"\xed\xa0\x80", "must be UTF-8"),
    ];
    for (key, hint) in keys {
        for url in [scratch.file_url(), redis.url()] {
            let run = run_key(&scratch, OsStr::from_bytes(key)).backend(url).command(["touch", "ran"]);
            refused(&scratch, run, 64, hint, &scratch.lock_dir());
        }
    }
    assert!(redis.keys().is_empty());
}

#[test]
fn urls_that_cannot_be_are_refused() {
    let scratch = Scratch::new();
    for (url, hint) in [
        ("localhost", "add the scheme"),
        ("localhost:6379", "add the scheme"),
        ("127.0.0.1:6379", "add the scheme"),
        ("//host", "add the scheme"),
        ("://host", "use file: or redis://"),
        ("/var/lock", "add the scheme"),
        ("mysql://host", "name the database"),
        ("http://host", "use etcd:// for etcd"),
        ("https://one:2379", "use etcds://"),
        ("zookeeper://one", "use zk://"),
        ("etcd://one,etcd://two", "the scheme stands once"),
        ("etcd://one:2379,2380", "only a number, not a host"),
        ("postgres://one,one/db", "is named twice"),
        ("postgres://one/db?sslmode=prefer", "use require"),
        ("postgresql://user:secret@host/db?secret=1", "only sslmode, table, trust-table and auth may follow"),
        ("mariadb://user:secret@host/db?secret=1", "only sslmode, table and trust-table may follow"),
        ("k8s://host", "no backend for the Kubernetes API"),
        ("consul://host", "no backend for Consul"),
        ("carrier-pigeon://coop", "use file: or redis://"),
        ("redis://host:port", "use redis://"),
        ("redis://host:65536", "use redis://"),
        ("redis://host:-1", "use redis://"),
        ("redis://host:0", "use redis://"),
        ("redis://", "use redis://"),
        ("redis:", "use redis://"),
        ("redis:///0", "use redis://"),
        ("redis://one,two", "redlock://"),
        ("rediss://host?x", "use redis://"),
        ("redis+unix://host/path", "use redis+unix:///path"),
        ("redis+unix://", "use redis+unix:///path"),
        ("redis+unix:///path?database=1", "use redis+unix:///path"),
        ("redis+unix", "redis+unix://"),
        ("redis+sentinel://host", "/NAME"),
        ("redis+sentinel://host/name/zero", "/NAME"),
        ("redlock://one,two,one", "one:6379 is named twice"),
        ("redlock://one,,two", "use redlock://"),
        ("etcd://one:2379/path", "use --namespace"),
        ("etcd://one,two:x", "use etcd://"),
        ("zk://host//chroot", "use zk://"),
        ("zk://host/../chroot", "use zk://"),
        ("redis://:6379", "use redis://"),
        ("redis://user:password@", "use redis://"),
        ("redis://host?timeout=1", "use redis://"),
        ("redis://host/0?", "use redis://"),
        ("redis://host#fragment", "use redis://"),
        ("redis://host/zero", "use redis://"),
        ("redis://host/-1", "use redis://"),
        ("redis://host/1/2", "use redis://"),
        ("redis://[::1", "use redis://"),
        ("redis://ho st", "use redis://"),
        ("file://", "use file:///dir"),
        ("file:relative", "use file:///dir"),
        ("file://host/dir", "use file:///dir"),
        ("file:///tmp?remote=yes", "?remote=trust"),
        ("file:///tmp?x", "?remote=trust"),
        ("file:///%00", "NUL"),
    ] {
        let run = || scratch.dlock().run("k").command(["touch", "ran"]);
        refused(&scratch, run().env("DLOCK_BACKEND", url), 64, hint, &scratch.lock_dir());
        let run = scratch.dlock().run("k").backend(url).command(["touch", "ran"]);
        refused(&scratch, run, 64, hint, &scratch.lock_dir());
    }
    let run = scratch.dlock().run("k").backend(OsStr::from_bytes(b"redis://\xff")).command(["touch", "ran"]);
    refused(&scratch, run, 64, "percent-encode", &scratch.lock_dir());
}

#[test]
fn options_that_cannot_be_are_refused() {
    let scratch = Scratch::new();
    let too_long = ["10years1s", "11y", "315576001", "99999999999999999999999999", "18446744073709551616s"];
    let garbage =
        ["-1", "-1s", "NaN", "nan", "inf", "infinity", "-inf", "1e3", "0x10", "1.2.3", ".", "", "soon", "1 parsec"];
    for option in ["--wait", "--ttl", "--kill-after", "--max-run", "--connect-timeout"] {
        for value in too_long.iter().chain(&garbage) {
            let run = run_file(&scratch).arg(option).arg(value).command(["touch", "ran"]);
            refused(&scratch, run, 64, option, &scratch.lock_dir());
        }
    }
    let cases: &[(&[&str], &str)] = &[
        (&["--ttl", "0"], "at least 1s"),
        (&["--ttl", "0.5"], "at least 1s"),
        (&["--ttl", "999ms"], "at least 1s"),
        (&["--max-run", "0"], "more than 0"),
        (&["--connect-timeout", "0"], "more than 0"),
        (&["--kill-after", "15001ms"], "--kill-after may be at most half of --ttl"),
        (&["--ttl", "2", "--kill-after", "1.1"], "--kill-after may be at most half of --ttl"),
        (&["-E", "256"], "must be a whole number from 0 to 255"),
        (&["-E", "-1"], "must be a whole number from 0 to 255"),
        (&["-E", "x"], "--conflict-exit-code"),
        (&["--on-lost", "nothing"], "stop, kill, ignore"),
        (&["--leftovers", "x"], "leave, wait, kill"),
        (&["--namespace", "a\nb"], "remove them"),
        (&["--namespace", "a\u{1b}b"], "remove them"),
        (&["--unknown"], "there is no option --unknown; see dlock run --help"),
        (&["-Z"], "see dlock run --help"),
        (&["--nonblok"], "there is no option --nonblok: did you mean --nonblock?"),
        (&["--nonblock=maybe"], "--nonblock"),
        (&["--ttl", "0", "--ttl", "3"], "at least 1s"),
        (&["--key", "second", "--slots", "2"], "--slots is for one --key"),
        (&["--key", "second", "--key", ""], "--key: a key must not be empty"),
        (&["--password-file", "missing"], "name a readable file"),
        (&["--password-file", "fd:99"], "not open"),
        (&["--password-file", "fd:x"], "fd: takes a number"),
        (&["--password-file", "/dev/null"], "first line is empty"),
        (&["-c", "touch ran"], "use one of them"),
    ];
    for (arguments, hint) in cases {
        let run = run_file(&scratch).args(*arguments).command(["touch", "ran"]);
        refused(&scratch, run, 64, hint, &scratch.lock_dir());
    }
    for (run, hint) in [
        (run_file(&scratch), "add -- COMMAND"),
        (run_file(&scratch).arg("--"), "add -- COMMAND"),
        (run_file(&scratch).command([""]), "name a program"),
        (scratch.dlock().arg("run").backend(scratch.file_url()).command(["touch", "ran"]), "--key"),
        (scratch.dlock(), "no command given; try: dlock run"),
        (scratch.dlock().arg("mutex"), "there is no subcommand mutex; see dlock --help"),
        (scratch.dlock().arg(OsStr::from_bytes(b"\xff")), "see dlock --help"),
    ] {
        refused(&scratch, run, 64, hint, &scratch.lock_dir());
    }
    let long = "n".repeat(201);
    let run = run_file(&scratch).args(["--namespace", &long]).command(["touch", "ran"]);
    refused(&scratch, run, 64, "shorten it", &scratch.lock_dir());
}

/// As for a wrapper with `exec dlock run -w 1h "$@"`.
#[test]
fn the_last_of_options_that_are_repeated_or_exclude_each_other_counts() {
    let scratch = Scratch::new();
    let held = hold(&scratch);
    let run = |flags: &[&str]| run_file(&scratch).args(flags).command(["echo", "ran"]).output();
    for flags in [&["-w", "1h", "-w", "0"][..], &["-w", "1h", "-n"], &["-n", "-w", "1h", "--nb"], &["-n", "-n"]] {
        run(flags).code(75).stderr_is_one_line("did not get 'k'");
    }
    for flags in [&["-w", "1h", "-w", "0.3"][..], &["-n", "-w", "0.3"], &["-n", "--timeout", "0.3"]] {
        let waited = run(flags);
        waited.code(75).stderr_is_one_line("did not get 'k' within 300ms");
        assert!(waited.elapsed().as_millis() >= 300, "{waited:?}");
    }
    run(&["-n", "-v", "-q"]).code(75).quiet();
    run(&["-n", "-q", "-v"]).code(75).stderr_is_one_line("did not get 'k'");
    run(&["-q", "-n", "-E", "3", "-E", "4"]).code(4).quiet();
    drop(held);
    let other = scratch.directory("other", 0o700);
    let two = run_file(&scratch).backend(format!("file://{}", other.display())).args(["-k", "l"]).command(["true"]);
    two.output().quiet().success();
    assert_eq!(names(&other), BTreeSet::from(["k.lock".into(), "l.lock".into()]));
    // Where there is one lock, the other one is not forgotten.
    for words in
        [&["status"][..], &["acquire", "--while-pid", "1"], &["break", "--owner", "e457f1b7"], &["latch", "forget"]]
    {
        let twice = scratch.dlock().args(words).args(["-k", "k", "-k", "l"]).backend(scratch.file_url()).output();
        twice.code(64).stdout_is("").stderr_is_one_line("--key can be given only once");
    }
}

#[test]
fn the_limits_themselves_are_allowed() {
    let scratch = Scratch::new();
    for arguments in [
        &["--ttl", "1"][..],
        &["--ttl", "10years", "--kill-after", "5years"],
        &["--kill-after", "15"],
        &["--kill-after", "0"],
        &["-E", "255"],
        &["--wait", "315576000"],
        &["--namespace", "any thing/at:all"],
    ] {
        run_file(&scratch).args(arguments).command(["true"]).output().success();
    }
}

/// A dlock that is to be refused for its lock directory or for what lies in it.
fn run_in(scratch: &Scratch, directory: &Path) -> Dlock {
    scratch.dlock().run("k").backend(format!("file://{}", directory.display())).command(["touch", "ran"])
}

#[test]
fn lock_directories_that_cannot_be_used_are_refused() {
    let scratch = Scratch::new();
    let missing = scratch.path("missing");
    refused(&scratch, run_in(&scratch, &missing), 73, "make it", &missing);
    let file = scratch.file("file", "data");
    refused(&scratch, run_in(&scratch, &file), 73, "not a directory", &file);
    refused(&scratch, run_in(&scratch, &file.join("below")), 73, "not a directory", &file);
    let dangling = scratch.path("dangling");
    symlink("nowhere", &dangling).unwrap();
    refused(&scratch, run_in(&scratch, &dangling), 73, "make it", &dangling);
    for mode in [0o777, 0o702] {
        let open = scratch.directory(&format!("open-{mode:o}"), mode);
        refused(&scratch, run_in(&scratch, &open), 73, "chmod", &open);
        fs::set_permissions(&open, Permissions::from_mode(mode | 0o1000)).unwrap();
        run_in(&scratch, &open).output().success();
        fs::remove_file(scratch.path("ran")).unwrap();
    }
    // The mark of the command must not fail for a reason of its own below.
    fs::set_permissions(scratch.root(), Permissions::from_mode(0o777)).unwrap();
    for mode in [0o500, 0o000] {
        let read_only = scratch.directory(&format!("read-only-{mode:o}"), mode);
        scratch.give_away(&read_only);
        refused(&scratch, run_in(&scratch, &read_only).unprivileged(), 73, "this user must be able to", &read_only);
        // For the clean-up.
        fs::set_permissions(&read_only, Permissions::from_mode(0o700)).unwrap();
    }
    if process::is_root() {
        // Only root can make a directory of another user.
        let others = scratch.directory("others", 0o755);
        scratch.give_away(&others);
        refused(&scratch, run_in(&scratch, &others), 73, "another user", &others);
        let roots = scratch.directory("roots", 0o755);
        refused(&scratch, run_in(&scratch, &roots).unprivileged(), 73, "must be able to write", &roots);
    }
}

#[test]
fn what_is_no_lock_file_is_refused_and_left_as_it_is() {
    let scratch = Scratch::new();
    let precious = scratch.file("precious", "precious data\n");
    fs::set_permissions(&precious, Permissions::from_mode(0o640)).unwrap();
    let plant = |name: &str, make: &dyn Fn(&Path), hint: &str| {
        let directory = scratch.directory(name, 0o700);
        make(&directory.join("k.lock"));
        let sealed = seal(&precious);
        for waiting in [&["-n"][..], &["-w", "0.1"], &[]] {
            let url = format!("file://{}", directory.display());
            let run = scratch.dlock().run("k").backend(url).args(waiting).command(["touch", "ran"]);
            refused(&scratch, run, 73, hint, &directory);
        }
        assert_eq!(seal(&precious), sealed);
    };
    plant("link", &|lock| symlink(&precious, lock).unwrap(), "symbolic link");
    plant("dangling", &|lock| symlink(scratch.path("ran"), lock).unwrap(), "symbolic link");
    plant("fifo", &|lock| drop(Fifo::new(lock)), "not a regular file");
    plant("socket", &|lock| drop(UnixListener::bind(lock).unwrap()), "not a regular file");
    plant("directory", &|lock| fs::create_dir(lock).unwrap(), "directory");
    plant("device", &|lock| symlink("/dev/null", lock).unwrap(), "symbolic link");
    for (number, data) in
        [&b"precious data\n"[..], b"4711\n", b"\0", b"\n", b"dlock:2 17\n", b" dlock:1 17\n"].iter().enumerate()
    {
        let make = |lock: &Path| {
            fs::write(lock, data).unwrap();
            fs::set_permissions(lock, Permissions::from_mode(0o604)).unwrap();
        };
        plant(&format!("data-{number}"), &make, "not dlock's");
    }
}

#[test]
fn a_foreign_file_stays_what_it_is_also_while_somebody_holds_it() {
    let scratch = Scratch::new();
    let lock = scratch.lock_dir().join("k.lock");
    fs::write(&lock, "precious data\n").unwrap();
    let held = File::open(&lock).unwrap();
    held.lock().unwrap();
    let before = seal(&lock);
    let waiting = run_file(&scratch).command(["touch", "ran"]).spawn();
    waiting.wait_stderr("waiting for 'k'");
    drop(held);
    waiting.wait().code(73).stderr_ends_with_line("not dlock's");
    assert_eq!(seal(&lock), before);
    assert!(!scratch.path("ran").exists());
}

/// A `/bin/sh` that is root in a mount namespace of its own, runs `script` there, and finds dlock and its arguments in
/// `"$@"`. No root is needed: it is made through a user namespace, in which there is nobody else.
fn in_mount_namespace(dlock: Dlock, script: &str) -> Dlock {
    in_namespaces(&["--user", "--map-root-user", "--mount"], dlock, script)
}

/// With fresh `/run`, `/run/lock` and `/tmp`. dlock works there even where it lies below one of them.
fn in_namespaces(namespaces: &[&str], dlock: Dlock, script: &str) -> Dlock {
    let prelude = r#"
        set -e
        program=$1
        shift
        mount -t tmpfs -o mode=0755 tmpfs /run
        touch /run/program
        mount --bind "$program" /run/program
        mkdir -m 1777 /run/lock
        mount -t tmpfs -o mode=1777 tmpfs /tmp
        set +e
        set -- /run/program "$@"
    "#;
    let unshare = need("unshare", "util-linux").into_os_string();
    let shell = ["/bin/sh", "-c", &format!("{prelude}{script}"), "sh"].map(OsString::from);
    let namespaces = namespaces.iter().map(OsString::from);
    dlock.wrapped_by([unshare].into_iter().chain(namespaces).chain(shell))
}

/// A dlock with fresh directories that runs as user 1000; `prepare` runs as root before.
fn as_a_user(dlock: Dlock, prepare: &str) -> Dlock {
    let become_user = r#"exec unshare --user --map-user=1000 --map-group=1000 "$@""#;
    in_mount_namespace(dlock, &format!("{prepare}\n{become_user}"))
}

const THIS_HOST: &str = "this lock holds on this host and for this user only";

/// What a command says about the lock directory: mode, owner, name.
const LOOK: &str = "stat -c '%a %u %n' /run/dlock* /run/lock/dlock* /tmp/dlock* 2>/dev/null; true";

#[test]
fn the_default_directory_of_root_is_run_dlock() {
    let scratch = Scratch::new();
    let run =
        |args: &[&str]| in_mount_namespace(scratch.dlock().run("k").args(args).shell(LOOK), r#"exec "$@""#).output();
    run(&[]).code(0).stdout_is("700 0 /run/dlock\n").stderr_is_one_line(THIS_HOST);
    run(&["-q"]).code(0).stdout_is("700 0 /run/dlock\n").quiet();
    run(&["--backend", "file:"]).code(0).stdout_is("700 0 /run/dlock\n").quiet();
    run(&["--backend", "file"]).code(0).stdout_is("700 0 /run/dlock\n").quiet();
    // An empty variable chooses nothing.
    let empty =
        in_mount_namespace(scratch.dlock().run("k").env("DLOCK_BACKEND", "").shell(LOOK), r#"exec "$@""#).output();
    empty.code(0).stdout_is("700 0 /run/dlock\n").stderr_is_one_line(THIS_HOST);
    // No variable decides, so that a shell and a crontab meet.
    let misled = scratch.dlock().run("k").arg("-q").env("TMPDIR", "/tmp").env("XDG_RUNTIME_DIR", "/tmp").shell(LOOK);
    in_mount_namespace(misled, r#"exec "$@""#).output().success().stdout_is("700 0 /run/dlock\n");
}

#[test]
fn the_line_about_this_host_comes_once() {
    let scratch = Scratch::new();
    // Among the others, where there are others.
    let outcome = in_mount_namespace(scratch.dlock().run("k").arg("-v").command(["true"]), r#"exec "$@""#).output();
    outcome.code(0).stderr_ends_with_line("released 'k'");
    assert_eq!(outcome.stderr().matches(THIS_HOST).count(), 1, "{outcome:?}");
    assert_eq!(outcome.stderr().lines().count(), 3, "{outcome:?}");
}

#[test]
fn the_default_directory_of_a_user_is_below_run_lock_or_else_below_tmp() {
    let scratch = Scratch::new();
    let run = |prepare: &str| as_a_user(scratch.dlock().run("k").arg("-q").shell(LOOK), prepare).output();
    run("").success().stdout_is("700 1000 /run/lock/dlock-1000\n");
    // /run/lock is not writable for all users, or not sticky, or missing.
    for unusable in
        ["chmod 0755 /run/lock", "chmod 0777 /run/lock", "rmdir /run/lock", "rmdir /run/lock; touch /run/lock"]
    {
        run(unusable).success().stdout_is("700 1000 /tmp/dlock-1000\n");
    }
    let umask = r#"umask 0; exec unshare --user --map-user=1000 --map-group=1000 "$@""#;
    let open = in_mount_namespace(scratch.dlock().run("k").arg("-q").shell(LOOK), umask).output();
    open.success().stdout_is("700 1000 /run/lock/dlock-1000\n");
    as_a_user(scratch.dlock().run("k").shell(LOOK), "").output().code(0).stderr_is_one_line(THIS_HOST);
}

#[test]
fn a_default_directory_that_somebody_else_made_is_refused() {
    let scratch = Scratch::new();
    // A user namespace has no ids for another owner, but /usr belongs to the real root, who is `nobody` here unless the test
    // runs as root.
    let theirs = "mkdir /run/lock/dlock-1000; mount --bind /usr /run/lock/dlock-1000";
    let ours = "mkdir -m 0700 /run/lock/dlock-1000; chmod 0777 /run/lock/dlock-1000";
    let readable = "mkdir -m 0750 /run/lock/dlock-1000";
    let link = "mkdir -m 0700 /tmp/mine; ln -s /tmp/mine /run/lock/dlock-1000";
    let file = "touch /run/lock/dlock-1000";
    let run = || scratch.dlock().run("k").arg("-q").command(["echo", "ran"]);
    // What another user made in a sticky directory cannot be removed.
    let (another, chmod) = ("name another directory with --backend file:///dir", "chmod 0700 it");
    let of_theirs = if process::is_root() { chmod } else { another };
    for (prepare, advice) in [(theirs, of_theirs), (ours, chmod), (readable, chmod), (link, another), (file, another)] {
        let outcome = as_a_user(run(), prepare).output();
        outcome.code(73).stdout_is("").stderr_is_one_line("could not use the lock directory /run/lock/dlock-1000");
        assert!(outcome.stderr().contains(advice), "{outcome:?}");
    }
    let below_tmp = "rmdir /run/lock; mkdir /tmp/dlock-1000; chmod 0777 /tmp/dlock-1000";
    let outcome = as_a_user(run(), below_tmp).output();
    outcome.code(73).stdout_is("").stderr_is_one_line("/tmp/dlock-1000");
    let roots = "mkdir -m 0777 /run/dlock; chmod 0777 /run/dlock";
    let outcome = in_mount_namespace(run(), &format!("{roots}\n{}", r#"exec "$@""#)).output();
    outcome.code(73).stdout_is("").stderr_is_one_line("/run/dlock");
}

#[test]
fn a_default_directory_of_mode_0700_that_belongs_to_another_user_is_refused() {
    if !process::is_root() {
        // Only root can make one; for others the case above has another owner and another mode at once.
        return;
    }
    let scratch = Scratch::new();
    // Root himself may enter it, and still must not: whoever owns it can exchange what is in it.
    let script = r#"mkdir -m 0700 /run/dlock; chown 1 /run/dlock; "$@"; echo $? $(ls -A /run/dlock)"#;
    let run = scratch.dlock().run("k").arg("-q").command(["echo", "ran"]);
    // A user namespace would know one user only.
    let outcome = in_namespaces(&["--mount"], run, script).output();
    outcome.code(0).stdout_is("73\n").stderr_is_one_line("another user made it: name another directory");
}

#[test]
fn a_full_disk_is_refused_and_nothing_is_lost() {
    let scratch = Scratch::new();
    let script = r#"
        mkdir /run/disk && mount -t tmpfs -o mode=0700,size=16k,nr_inodes=8 tmpfs /run/disk && cd /run/disk || exit 1
        "$@"; echo "first $?"
        cp k.lock /run/before
        cat /dev/zero > fill 2>/dev/null
        # No room for a word: a new lock file cannot be written.
        mv k.lock other.lock
        "$@"; echo "full $?"
        cmp other.lock /run/before && echo same
        rm -f k.lock
        mv other.lock k.lock
        # No room for a file: none can be made, and the one that is there still works.
        for i in 1 2 3 4 5 6 7 8; do touch $i 2>/dev/null; done
        mv k.lock other.lock
        "$@"; echo "crowded $?"
        mv other.lock k.lock
        cmp k.lock /run/before && echo same
        rm -f fill [1-8]
        "$@"; echo "again $?"
    "#;
    let run = scratch.dlock().run("k").backend("file:///run/disk").shell("echo $DLOCK_TOKEN");
    let outcome = in_mount_namespace(run, script).output();
    outcome.code(0);
    let stdout = outcome.stdout();
    let lines: Vec<&str> = stdout.lines().collect();
    let [first, "first 0", "full 73", "same", "crowded 73", "same", last, "again 0"] = lines[..] else {
        panic!("{outcome:?}");
    };
    assert!(first.parse::<u64>().unwrap() < last.parse::<u64>().unwrap(), "{outcome:?}");
    let stderr = outcome.stderr();
    let messages: Vec<&str> = stderr.lines().collect();
    assert_eq!(messages.len(), 2, "{outcome:?}");
    assert!(
        messages.iter().all(|line| line.starts_with("dlock: did not get 'k': could not use the lock file")),
        "{outcome:?}"
    );
}

/// A file system in user space of one directory, in memory. `argv[1]` is where it is mounted, the rest is run in it,
/// and its exit code is passed on.
const FUSE: &str = r#"
import ctypes, os, struct, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40755,user_id={os.getuid()},group_id={os.getgid()}"
if libc.mount(b"test", sys.argv[1].encode(), b"fuse", 0, options.encode()) != 0:
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
nodes, names = {1: None}, {}  # None is the directory

def attributes(node):
    data = nodes[node]
    mode, size = (0o40755, 0) if data is None else (0o100644, len(data))
    return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)

def entry(node):
    return struct.pack("<4Q2I", node, 0, 0, 0, 0, 0) + attributes(node)

def answer(operation, node, body):
    if operation == 26:  # INIT
        return struct.pack("<4I2H2I2HI28x", 7, 31, 65536, 0, 16, 12, 65536, 1, 16, 0, 0)
    if operation == 3:  # GETATTR
        return bytes(16) + attributes(node)
    if operation == 1:  # LOOKUP
        name = body.rstrip(b"\0")
        return entry(names[name]) if name in names else -2
    if operation in (14, 27):  # OPEN, OPENDIR
        return bytes(16)
    if operation == 35:  # CREATE
        name = body[16:].split(b"\0")[0]
        names[name] = len(nodes) + 1
        nodes[names[name]] = bytearray()
        return entry(names[name]) + bytes(16)
    if operation == 17:  # STATFS
        return struct.pack("<5Q4I24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0)
    if operation in (15, 16):  # READ, WRITE
        _, offset, size = struct.unpack("<2QI", body[:20])
        if operation == 15:
            return bytes(nodes[node][offset:offset + size])
        nodes[node][offset:offset + size] = body[40:40 + size]
        return struct.pack("<2I", size, 0)
    if operation == 4:  # SETATTR
        if body[0] & 8:
            del nodes[node][struct.unpack("<Q", body[16:24])[0]:]
        return bytes(16) + attributes(node)
    return b"" if operation in (18, 25, 29) else -38  # RELEASE, FLUSH, RELEASEDIR; else ENOSYS

def serve():
    while True:
        request = os.read(device, 1 << 20)
        _, operation, unique, node = struct.unpack("<2I2Q", request[:24])
        if operation in (2, 42):  # FORGET wants no answer
            continue
        reply = answer(operation, node, request[40:])
        error, data = (reply, b"") if isinstance(reply, int) else (0, reply)
        os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)

threading.Thread(target=serve, daemon=True).start()
status = os.waitpid(os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ), 0)[1]
print(" ".join(sorted(name.decode() for name in names)), flush=True)
os._exit(os.waitstatus_to_exitcode(status))
"#;

#[test]
fn a_remote_file_system_is_refused_unless_it_is_trusted() {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    if !process::is_root() && device.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        // Where it is for root only, so is this test.
        return;
    }
    device.expect("missing /dev/fuse: modprobe fuse");
    let python = need("python3", "python3");
    let scratch = Scratch::new();
    let mounted = scratch.directory("mounted", 0o755);
    let run = |query: &str| {
        let run = scratch.dlock().run("k").backend(format!("file://{}{query}", mounted.display()));
        let fuse: [&OsStr; 8] = [
            "unshare".as_ref(),
            "--user".as_ref(),
            "--map-root-user".as_ref(),
            "--mount".as_ref(),
            python.as_os_str(),
            "-c".as_ref(),
            FUSE.as_ref(),
            mounted.as_os_str(),
        ];
        run.shell("[ $DLOCK_TOKEN -gt 0 ] && echo ran").wrapped_by(fuse).output()
    };
    run("").code(73).stdout_is("\n").stderr_is_one_line("remote=trust");
    run("?remote=trust").success().stdout_is("ran\nk.lock\n");
}

/// There is no list of all remote file systems.
#[test]
fn a_file_system_of_a_type_that_nobody_knows_is_refused_with_that_type() {
    let scratch = Scratch::new();
    let outcome = scratch.dlock().run("k").backend("file:///proc").command(["echo", "ran"]).output();
    outcome.code(73).stdout_is("").stderr_is_one_line("not known to be local (type 0x9fa0), ");
    assert!(outcome.stderr().contains("?remote=trust"), "{outcome:?}");
}
