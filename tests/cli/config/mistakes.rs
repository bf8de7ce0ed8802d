//! What is wrong in a config file is said with its line before anything is run.

use super::with;
use crate::support::scratch::Scratch;

#[test]
fn what_is_wrong_in_a_file_is_said_with_its_line() {
    let scratch = Scratch::new();
    for (text, said) in [
        ("wait = 1\nwiat = 2\n", "config.toml:2: there is no option wiat: did you mean wait?"),
        ("wait = 1\r\nwiat = 2\r\n", "config.toml:2: there is no option wiat: did you mean wait?"),
        ("[profile.x]\nwiat = 2\n", "config.toml:2: there is no option wiat: did you mean wait?"),
        ("ttl = \"0\"", "config.toml:1: ttl: a lease lasts at least 1s"),
        ("nonblock = true\nwait = 5", "config.toml:1: nonblock and wait are mutually exclusive"),
        ("\nquiet = true\nverbose = true", "config.toml:2: quiet and verbose are mutually exclusive"),
        ("shared = true\nslots = 5", "config.toml:1: shared and slots are mutually exclusive"),
        ("password = \"a\"\npassword-file = \"b\"", "config.toml:2: password and password-file are mutually exclusive"),
        ("backend = \"nonsense\"", "backend ("),
        ("wait = ", "config.toml:1: "),
        ("wait = 1\n\u{0}", "config.toml:2: "),
        ("require-backend = true", "config.toml:1): no backend was chosen"),
        ("kill-after = \"1h\"", "config.toml:1) may be at most half of --ttl"),
        ("lock-delay = 5", "config.toml:1) is only for locks with a lease, not for file:"),
        ("once-per = \"1h\"\nslots = 2", "config.toml:2) are mutually exclusive"),
        ("tls-ca = \"ca\"\nbackend = \"redis://h\"", "config.toml:1) is given, but redis://h:6379 does not use TLS"),
        ("profile = \"x\"", "config.toml:1): no config file has a profile x: there are none"),
        ("profile = \"x\"\n[profile.x]", "config.toml:2: a file that has profiles cannot choose one"),
        ("[ci]\nwait = 1", "config.toml:1: there is no table ci: did you mean [profile.ci]?"),
    ] {
        let file = scratch.secret("config.toml", text);
        let run = with(&scratch, &file).run("k").command(["echo", "ran"]).output();
        run.code(78).stdout_is("").stderr_is_one_line(&scratch.root().display().to_string()).stderr_is_one_line(said);
        for other in ["config", "check"] {
            let outcome = with(&scratch, &file).arg(other).output();
            assert_eq!(outcome.code(78).stdout_is("").stderr(), run.stderr(), "{other}: {text}");
        }
    }
    // It opens none of the files that are named there.
    let file = scratch.secret("config.toml", "password-file = \"none\"\nbackend = \"redis://h\"");
    let run = with(&scratch, &file).run("k").command(["echo", "ran"]).output();
    run.code(78).stdout_is("").stderr_is_one_line("config.toml:1): could not read ");
    with(&scratch, &file).arg("config").output().quiet().success();
}

#[test]
fn what_is_no_text_is_refused_and_what_says_nothing_is_not() {
    let scratch = Scratch::new();
    let run = |bytes: &[u8]| with(&scratch, &scratch.secret("config.toml", bytes)).arg("config").output();
    for empty in [&b""[..], b"\n\r\n", b"# wait = 1", b"\xef\xbb\xbf", b"[profile.a]\n"] {
        run(empty).quiet().success();
    }
    let marked = run(b"\xef\xbb\xbfwait = 7\n");
    assert!(marked.quiet().success().stdout().contains("config.toml:1\n"), "{marked:?}");
    for no_text in [&b"reason = \"\xff\""[..], b"\xff\xfew\0a\0i\0t\0"] {
        run(no_text).code(78).stderr_is_one_line("config.toml: the config file is not UTF-8");
    }
    run(&vec![b'#'; 65536]).quiet().success();
    run(&vec![b'#'; 65537]).code(78).stderr_is_one_line("config.toml: the config file is longer than 65536 bytes");
    for deep in ["[", "x=[", "a.", "{", "x={a="] {
        let said = run(deep.repeat(10_000).as_bytes());
        said.code(78).stderr_is_one_line("config.toml:1: ");
    }
    // One line, without control characters, of a bearable length, and without a password.
    let odd = run(format!("\"a\\u001b[2J\\n{}\" = 1", "x".repeat(10_000)).as_bytes());
    odd.code(78).stderr_is_one_line("there is no option a\\u{1b}[2J\\n");
    assert!(odd.stderr().len() < 300, "{odd:?}");
    let secret = run(b"\"redis://u:secret@h\" = 1");
    assert!(!secret.code(78).stderr_is_one_line("there is no option redis://u@h").stderr().contains("secret"));
}

#[test]
fn a_profile_that_no_file_has_is_refused_with_those_that_there_are() {
    let scratch = Scratch::new();
    let file = scratch.secret("config.toml", "[profile.b]\n[profile.a]\n");
    let missing = "no config file has a profile c: use one of a, b";
    let words = [
        &["run", "-k", "k", "--profile", "c", "true"][..],
        &["status", "-k", "k", "--profile", "c"],
        &["list", "--profile", "c"],
        &["config", "--profile", "c"],
        &["latch", "-k", "k", "--profile", "c", "forget"],
        &["barrier", "-k", "k", "--parties", "1", "--profile", "c"],
    ];
    for words in words {
        with(&scratch, &file).args(words).output().code(78).stderr_is_one_line(&format!("--profile: {missing}"));
    }
    let variable = with(&scratch, &file).env("DLOCK_PROFILE", "c").args(["list"]).output();
    variable.code(78).stderr_is_one_line(&format!("DLOCK_PROFILE: {missing}"));
    let none = scratch.dlock().args(["list", "--profile", "c"]).output();
    none.code(78).stderr_is_one_line("no config file has a profile c: there are none");
}

#[test]
fn help_and_pages_need_no_config_file() {
    let scratch = Scratch::new();
    let broken = scratch.secret("config.toml", "wiat = 1");
    for words in [&["help", "run"][..], &["run", "--help"], &["generate", "man"], &["generate", "bash"], &["--version"]]
    {
        with(&scratch, &broken).args(words).output().quiet().success();
    }
}
