//! Config files: which are read, what comes before what, which of them are trusted, and what `dlock config` says of them.

mod mistakes;
mod trust;
mod uses;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::dlock::Dlock;
use crate::support::scratch::Scratch;

/// Where a user's file is, below the home directory.
pub(super) const USER: &str = ".config/dlock/config.toml";

/// A dlock that reads this file alone.
pub(super) fn with(scratch: &Scratch, file: &Path) -> Dlock {
    scratch.dlock().env("DLOCK_CONFIG", file)
}

/// Puts `text` into a file that everybody may read.
pub(super) fn put(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let file = scratch.path(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    file
}

/// A dlock with the `etc` of this directory instead of the real one.
pub(super) fn with_etc(scratch: &Scratch, dlock: Dlock) -> Dlock {
    fs::create_dir_all(scratch.path("etc")).unwrap();
    // What is needed of the real one.
    fs::copy("/etc/passwd", scratch.path("etc/passwd")).unwrap();
    let script = "mount --bind \"$0\" /etc && exec \"$@\"";
    let unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script].map(Into::into);
    dlock.wrapped_by(unshare.into_iter().chain([scratch.path("etc").into_os_string()]))
}

/// The settings that `dlock` shows: value and origin by option.
#[track_caller]
fn settings(dlock: Dlock) -> impl Fn(&str) -> (String, String) {
    let outcome = dlock.arg("config").arg("--json").output();
    let text = outcome.quiet().success().stdout();
    assert!(text.starts_with("{\"v\":1,\"settings\":[{") && text.ends_with("]}\n"), "{text}");
    let document: Value = serde_json::from_str(&text).unwrap();
    move |option| {
        let all = document["settings"].as_array().unwrap();
        let setting = all.iter().find(|setting| setting["option"] == option).expect(option);
        (setting["value"].as_str().unwrap_or("-").to_owned(), setting["origin"].as_str().unwrap().to_owned())
    }
}

fn pair(value: &str, origin: impl std::fmt::Display) -> (String, String) {
    (value.to_owned(), origin.to_string())
}

/// Right values for each option, one for each place; of a switch there is one.
const VALUES: &[(&str, [&str; 6])] = &[
    ("backend", ["rediss://a", "rediss://b", "rediss://c", "rediss://d", "rediss://e", "rediss://f"]),
    ("namespace", ["a", "b", "c", "d", "e", "f"]),
    ("require-backend", ["true"; 6]),
    ("time", ["utc", "local", "utc", "local", "utc", "local"]),
    ("nonblock", ["true"; 6]),
    ("wait", ["1s", "2s", "3s", "4s", "5s", "6s"]),
    ("exclusive", ["true"; 6]),
    ("shared", ["true"; 6]),
    ("slots", ["1", "2", "3", "4", "5", "6"]),
    ("conflict-exit-code", ["1", "2", "3", "4", "5", "6"]),
    ("ttl", ["1h", "2h", "3h", "4h", "5h", "6h"]),
    ("min-hold", ["1s", "2s", "3s", "4s", "5s", "6s"]),
    ("lock-delay", ["1s", "2s", "3s", "4s", "5s", "6s"]),
    ("once-per", ["1s", "2s", "3s", "4s", "5s", "6s"]),
    ("kill-after", ["1s", "2s", "3s", "4s", "5s", "6s"]),
    ("on-lost", ["kill", "ignore", "stop", "kill", "ignore", "stop"]),
    ("max-run", ["1s", "2s", "3s", "4s", "5s", "6s"]),
    ("leftovers", ["wait", "kill", "leave", "wait", "kill", "leave"]),
    ("close", ["true"; 6]),
    ("reason", ["a", "b", "c", "d", "e", "f"]),
    ("events", ["/flag", "/env", "/up", "/sp", "/u", "/s"]),
    ("quiet", ["true"; 6]),
    ("verbose", ["true"; 6]),
    ("connect-timeout", ["1s", "2s", "3s", "4s", "5s", "6s"]),
    ("user", ["a", "b", "c", "d", "e", "f"]),
    ("password-file", ["/a", "/b", "/c", "/d", "/e", "/f"]),
    ("tls-ca", ["/a", "/b", "/c", "/d", "/e", "/f"]),
    ("tls-cert", ["/a", "/b", "/c", "/d", "/e", "/f"]),
    ("tls-key", ["/a", "/b", "/c", "/d", "/e", "/f"]),
    ("tls-server-name", ["a", "b", "c", "d", "e", "f"]),
    ("replicas", ["1", "2", "3", "4", "5", "6"]),
    ("strict-fencing", ["true"; 6]),
    ("as", ["a", "b", "c", "d", "e", "f"]),
    ("count", ["1", "2", "3", "4", "5", "6"]),
    ("keep", ["1s", "2s", "3s", "4s", "5s", "6s"]),
    ("parties", ["1", "2", "3", "4", "5", "6"]),
    ("patient", ["true"; 6]),
];

/// The options that `dlock config` has as flags.
const FLAGS: &[&str] = &[
    "backend",
    "namespace",
    "require-backend",
    "time",
    "connect-timeout",
    "user",
    "password-file",
    "tls-ca",
    "tls-cert",
    "tls-key",
    "tls-server-name",
];

/// Options that exclude each other are tried one after the other.
const SETS: [&[&str]; 3] = [
    &["nonblock", "quiet", "shared", "slots"],
    &["wait", "verbose", "exclusive", "slots", "once-per"],
    &["exclusive", "shared", "once-per", "wait", "verbose"],
];

/// Lines for all options but these with their values for this place.
fn lines(without: &[&str], place: usize) -> String {
    let line = |(option, values): &(&str, [&str; 6])| match values[place] {
        _ if without.contains(option) => "\n".to_owned(),
        "true" => format!("{option} = true\n"),
        value => format!("{option} = \"{value}\"\n"),
    };
    VALUES.iter().map(line).collect()
}

fn variable(option: &str) -> String {
    format!("DLOCK_{}", option.replace('-', "_").to_uppercase())
}

#[test]
fn every_option_comes_from_the_nearest_of_all_places() {
    for without in SETS {
        each_but(without);
    }
}

fn each_but(without: &[&str]) {
    let scratch = Scratch::new();
    let lines = |place| lines(without, place);
    let profiled = |profile, top| format!("{}[profile.p]\n{}", lines(top), lines(profile));
    let tried = || VALUES.iter().filter(|(option, _)| !without.contains(option));
    let see = |flags: bool, variables: bool, profile: bool| {
        let mut dlock = with_etc(&scratch, scratch.dlock().env_remove("DLOCK_CONFIG"));
        if variables {
            dlock = tried().fold(dlock, |dlock, (option, values)| dlock.env(variable(option), values[1]));
        }
        if profile {
            dlock = dlock.env("DLOCK_PROFILE", "p");
        }
        let outcome = dlock.arg("config").arg("--json");
        let given = VALUES.iter().filter(|(option, _)| flags && FLAGS.contains(option));
        let outcome = given.fold(outcome, |dlock, (option, values)| match values[0] {
            "true" => dlock.arg(format!("--{option}")),
            value => dlock.arg(format!("--{option}={value}")),
        });
        let outcome = outcome.output();
        serde_json::from_str::<Value>(&outcome.quiet().success().stdout()).unwrap()
    };
    let check = |document: &Value, place: usize, origin: &dyn Fn(usize, &str) -> String| {
        for (at, (option, values)) in VALUES.iter().enumerate().filter(|(_, (option, _))| !without.contains(option)) {
            let place = if place == 0 && !FLAGS.contains(option) { 1 } else { place };
            let origin = if place == 1 { variable(option) } else { origin(at + 1, option) };
            let expected = serde_json::json!({"option": option, "value": values[place], "origin": origin});
            let all = document["settings"].as_array().unwrap();
            assert!(all.contains(&expected), "{expected} of {document}");
        }
        // All options are tried, but for profile, password and flock-paths.
        assert_eq!(document["settings"].as_array().unwrap().len(), VALUES.len() + 3);
    };
    let (user, system) = (scratch.path(USER).display().to_string(), "/etc/dlock/config.toml");
    put(&scratch, USER, &profiled(2, 4));
    put(&scratch, "etc/dlock/config.toml", &profiled(3, 5));
    let below = VALUES.len() + 1;
    check(&see(true, true, true), 0, &|_, _| "flag".to_owned());
    check(&see(false, true, true), 1, &|_, _| unreachable!());
    check(&see(false, false, true), 2, &|line, _| format!("{user}:{} [profile.p]", line + below));
    check(&see(false, false, false), 4, &|line, _| format!("{user}:{line}"));
    put(&scratch, USER, &lines(4));
    check(&see(false, false, true), 3, &|line, _| format!("{system}:{} [profile.p]", line + below));
    fs::remove_file(scratch.path(USER)).unwrap();
    check(&see(false, false, false), 5, &|line, _| format!("{system}:{line}"));
    fs::remove_file(scratch.path("etc/dlock/config.toml")).unwrap();
    let nothing = see(false, false, false);
    let of_defaults = nothing["settings"].as_array().unwrap().iter().filter(|setting| setting["origin"] == "default");
    assert_eq!(of_defaults.count(), VALUES.len() + 3, "{nothing}");
}

#[test]
fn the_files_are_where_the_variables_say_and_never_in_the_working_directory() {
    let scratch = Scratch::new();
    let user = put(&scratch, USER, "wait = 1\n");
    put(&scratch, "etc/dlock/config.toml", "wait = 2\n");
    // Nothing in the working directory is read.
    let other = put(&scratch, "config.toml", "wait = 9");
    for place in ["dlock/config.toml", ".dlock.toml", "dlock.toml", ".config/config.toml"] {
        put(&scratch, place, "wait = 9");
    }
    let usual = || scratch.dlock().env_remove("DLOCK_CONFIG");
    let wait = |dlock: Dlock| settings(with_etc(&scratch, dlock))("wait");
    let system = || pair("2", "/etc/dlock/config.toml:1");
    assert_eq!(wait(usual()), pair("1", format_args!("{}:1", user.display())));
    assert_eq!(wait(usual().env("XDG_CONFIG_HOME", scratch.path(".config")).env("HOME", "/nowhere")).0, "1");
    assert_eq!(wait(usual().env("XDG_CONFIG_HOME", "/nowhere")), system());
    // A relative or empty one is ignored, as the specification has it.
    for relative in ["dlock/..", ".", ""] {
        assert_eq!(wait(usual().env("XDG_CONFIG_HOME", relative)).0, "1", "{relative}");
        assert_eq!(wait(usual().env("XDG_CONFIG_HOME", relative).env("HOME", "/nowhere")), system(), "{relative}");
    }
    assert_eq!(wait(usual().env_remove("HOME")), system());
    assert_eq!(wait(usual().env("HOME", ".")), system());
    assert_eq!(wait(usual().env("DLOCK_CONFIG", "")).0, "1");
    assert_eq!(wait(usual().env("DLOCK_CONFIG", &other)).0, "9");
    assert_eq!(wait(scratch.dlock().env("DLOCK_CONFIG", "/dev/null")), pair("-", "default"));
    let relative = usual().env("DLOCK_CONFIG", "config.toml").arg("config").output();
    relative.code(78).stderr_is_one_line("DLOCK_CONFIG=config.toml: use an absolute path");
}

#[test]
fn the_nearest_of_options_that_exclude_each_other_is_shown() {
    let scratch = Scratch::new();
    let file = scratch.secret("config.toml", "nonblock = true\nbackend = \"redis://a\"\nquiet = true\nshared = true\n");
    let all = settings(with(&scratch, &file).env("DLOCK_VERBOSE", "1").env("DLOCK_NONBLOCK", "0"));
    assert_eq!(all("nonblock"), pair("false", "DLOCK_NONBLOCK"));
    assert_eq!((all("quiet"), all("verbose")), (pair("false", "default"), pair("true", "DLOCK_VERBOSE")));
    let all = settings(with(&scratch, &file).env("DLOCK_WAIT", "1s").env("DLOCK_SLOTS", "2"));
    assert_eq!((all("nonblock"), all("wait")), (pair("false", "default"), pair("1s", "DLOCK_WAIT")));
    assert_eq!((all("shared"), all("slots")), (pair("false", "default"), pair("2", "DLOCK_SLOTS")));
}

#[test]
fn a_profile_is_chosen_by_a_flag_a_variable_or_the_users_file() {
    let scratch = Scratch::new();
    put(&scratch, USER, "profile = \"p\"\nttl = 2");
    put(&scratch, "etc/dlock/config.toml", "[profile.p]\nwait = 1\n[profile.q]\nwait = 2");
    let usual = || scratch.dlock().env_remove("DLOCK_CONFIG");
    let see = |dlock: Dlock, words: &[&str]| {
        let outcome = with_etc(&scratch, dlock).arg("config").args(words).output();
        let shown = outcome.quiet().success().stdout();
        let line = |option: &str| shown.lines().find(|line| line.starts_with(option)).unwrap_or_default().to_owned();
        (line("profile"), line("wait"))
    };
    let (profile, wait) = see(usual(), &[]);
    assert!(profile.contains(" p ") && profile.ends_with("config.toml:1"), "{profile}");
    assert!(wait.contains(" 1 ") && wait.ends_with("/etc/dlock/config.toml:2 [profile.p]"), "{wait}");
    let (profile, wait) = see(usual().env("DLOCK_PROFILE", "q"), &[]);
    assert!(profile.ends_with("DLOCK_PROFILE") && wait.contains(" 2 "), "{profile} {wait}");
    let (profile, wait) = see(usual().env("DLOCK_PROFILE", "none"), &["--profile", "q"]);
    assert!(profile.ends_with("flag") && wait.contains(" 2 "), "{profile} {wait}");
    // None at all, whatever the file says.
    let (_, wait) = see(usual().env("DLOCK_PROFILE", "q"), &["--profile", ""]);
    assert_eq!(wait, "");
}

#[test]
fn the_settings_are_shown_as_a_table_without_passwords() {
    let scratch = Scratch::new();
    let text = "wait = \"10m\"\nreason = \"a\\u001b[2J\"\npassword = \"hush\"\nprofile = \"\"\n";
    let file = scratch.secret("c.toml", text);
    let outcome = with(&scratch, &file).env("DLOCK_TTL", "1m").args(["config", "-b", "redis://u:secret@h"]).output();
    let place = file.display();
    let expected = format!(
        "OPTION              VALUE            ORIGIN\n\
         backend             redis://u:***@h  flag\nnamespace           dlock            default\n\
         time                utc              default\nwait                10m              {place}:1\n\
         conflict-exit-code  75               default\nttl                 1m               DLOCK_TTL\n\
         on-lost             stop             default\nleftovers           leave            default\n\
         reason              a\\u{{1b}}[2J       {place}:2\nconnect-timeout     5s               default\n\
         password            ***              {place}:3\n\
         replicas            0                default\nkeep                24h              default\n"
    );
    outcome.quiet().success().stdout_is(&expected);
    let variable = settings(scratch.dlock().env("DLOCK_PASSWORD", "hush").env("DLOCK_BACKEND", "redis://:hush@h"));
    assert_eq!(variable("password"), pair("***", "DLOCK_PASSWORD"));
    assert_eq!(variable("backend"), pair("redis://:***@h", "DLOCK_BACKEND"));
    // A misspelt variable is told, as everywhere.
    let outcome = scratch.dlock().env("DLOCK_WIAT", "1").arg("config").output();
    outcome.code(0).stderr_is_one_line("DLOCK_WIAT is not a variable of dlock: did you mean DLOCK_WAIT?");
    let outcome = scratch.dlock().env("DLOCK_TTL", "0").arg("config").output();
    outcome.code(64).stderr_is_one_line("DLOCK_TTL=0: a lease lasts at least 1s");
    let outcome = scratch.dlock().env("DLOCK_QUIET", "perhaps").arg("config").output();
    outcome.code(64).stderr_is_one_line("DLOCK_QUIET=perhaps: use 1, yes, true or on");
}
