//! The pages and completions that are made from the command line's definitions: committed, current, and accepted by
//! the programs that read them. A stale one is written anew, and the test fails once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::dlock::DLOCK;
use crate::support::scratch::Scratch;
use crate::support::servers::need;

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generate(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(*DLOCK).arg("generate").args(arguments).env_clear().output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "generate {arguments:?}: {output:?}");
    output.stdout
}

/// Fails if `place` is not what is generated now, after bringing it up to date.
fn current(place: &str, arguments: &[&str]) -> PathBuf {
    let path = project().join(place);
    let fresh = generate(arguments);
    let stale = fs::read(&path).ok().as_deref() != Some(&fresh[..]);
    if stale {
        fs::write(&path, &fresh).unwrap();
    }
    assert!(!stale, "{place} was stale and has been written anew: commit it");
    path
}

/// The exit codes of a run.
const CODES: &[&str] = &["75", "79", "69", "77", "64", "73", "78", "70", "124", "126, 127"];

/// A section that only the pages of dlock and of its run have.
const PROMISE: &str = "WHAT DLOCK DOES NOT PROMISE";

/// Runs a checker that must accept a file without a word.
fn accepted(program: &str, package: &str, arguments: &[&str], file: &Path) {
    let output = Command::new(need(program, package)).args(arguments).arg(file).stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{program}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn man_pages_are_current_clean_and_complete() {
    for (place, arguments) in [
        ("man/dlock.1", &["man"][..]),
        ("man/dlock-run.1", &["man", "run"]),
        ("man/dlock-status.1", &["man", "status"]),
        ("man/dlock-list.1", &["man", "list"]),
        ("man/dlock-held.1", &["man", "held"]),
        ("man/dlock-break.1", &["man", "break"]),
        ("man/dlock-acquire.1", &["man", "acquire"]),
        ("man/dlock-renew.1", &["man", "renew"]),
        ("man/dlock-release.1", &["man", "release"]),
        ("man/dlock-generate.1", &["man", "generate"]),
    ] {
        let path = current(place, arguments);
        accepted("mandoc", "mandoc", &["-Tlint", "-Wwarning"], &path);
        let page = fs::read_to_string(&path).unwrap();
        let about_locks: &[&str] = if ["man/dlock.1", "man/dlock-run.1"].contains(&place) {
            &["BACKENDS", "ENVIRONMENT", "FILES", PROMISE]
        } else {
            assert!(page.contains("See WHAT DLOCK DOES NOT PROMISE and BUGS in dlock(1)."), "{place}: {page}");
            assert!(!page.contains(&format!(".SH \"{PROMISE}\"")), "{place}: what dlock(1) says is repeated");
            &[]
        };
        let others = ["EXIT STATUS", "EXAMPLES", "BUGS", "SEE ALSO"];
        for section in others.iter().chain(about_locks) {
            assert!(
                page.contains(&format!(".SH \"{section}\"")) || page.contains(&format!(".SH {section}")),
                "{place}: no {section}"
            );
        }
        // What runs no command does not end as one does, and not every answer is about one lock.
        let others: &[&str] = match place {
            "man/dlock-status.1" | "man/dlock-acquire.1" | "man/dlock-held.1" => &["79", "124", "126, 127"],
            "man/dlock-list.1" => &["75", "79", "124", "126, 127"],
            "man/dlock-generate.1" => &["69", "73", "75", "77", "78", "79", "124", "126, 127"],
            "man/dlock-break.1" => &["124", "126, 127"],
            "man/dlock-renew.1" | "man/dlock-release.1" => &["73", "75", "124", "126, 127"],
            _ => &[],
        };
        for code in CODES {
            let is_there = page.contains(&format!("\\fB{code}\\fR"));
            assert_eq!(is_there, !others.contains(code), "{place}: exit code {code}");
        }
    }
}

#[test]
fn pages_of_latches_and_barriers_are_current_clean_and_complete() {
    for name in ["latch", "barrier"] {
        let path = current(&format!("man/dlock-{name}.1"), &["man", name]);
        accepted("mandoc", "mandoc", &["-Tlint", "-Wwarning"], &path);
        let page = fs::read_to_string(&path).unwrap();
        for section in ["EXIT STATUS", "BACKENDS", "ENVIRONMENT", "FILES", "EXAMPLES", "BUGS", "SEE ALSO"] {
            let is_there =
                [format!(".SH \"{section}\""), format!(".SH {section}")].iter().any(|head| page.contains(head));
            assert!(is_there, "{name}: no {section}");
        }
        // They run no command.
        for code in ["0"].iter().chain(CODES).filter(|code| !code.starts_with("12")) {
            assert!(page.contains(&format!("\\fB{code}\\fR")), "{name}: no exit code {code}");
        }
    }
}

#[test]
fn the_page_about_flock_is_current_clean_and_complete() {
    let path = current("man/dlock-flock.1", &["man", "flock"]);
    accepted("mandoc", "mandoc", &["-Tlint", "-Wwarning"], &path);
    let page = fs::read_to_string(path).unwrap();
    for section in ["EXIT STATUS", "WITH A BACKEND", "EXAMPLES", "BUGS", "SEE ALSO"] {
        let is_there = [format!(".SH \"{section}\""), format!(".SH {section}")].iter().any(|head| page.contains(head));
        assert!(is_there, "no {section}");
    }
    for code in ["1", "64", "65", "66", "69", "71", "73", "78"] {
        assert!(page.contains(&format!("\\fB{code}\\fR")), "no exit code {code}");
    }
}

#[test]
fn the_page_about_checks_is_current_clean_and_complete() {
    let path = current("man/dlock-check.1", &["man", "check"]);
    accepted("mandoc", "mandoc", &["-Tlint", "-Wwarning"], &path);
    let page = fs::read_to_string(path).unwrap();
    for code in ["0", "69", "77", "64", "73", "78", "70"] {
        assert!(page.contains(&format!("\\fB{code}\\fR")), "no exit code {code}");
    }
    // Each probe that the document may name is explained.
    let document = String::from_utf8(generate(&["man", "json"])).unwrap();
    let names = document.split(".SH PROBES").nth(1).unwrap().split("fBname").nth(1).unwrap();
    let names = names.split(';').next().unwrap().split_whitespace().skip(1).map(|name| name.trim_matches(','));
    let mut count = 0;
    for name in names.filter(|name| !name.starts_with('\\') && !name.starts_with('.')) {
        assert!(page.contains(&format!("\\fB{name}\\fR")), "no probe {name}");
        count += 1;
    }
    assert!(count > 15, "{count}: {document}");
}

#[test]
fn the_pages_about_config_files_are_current_clean_and_complete() {
    let command = current("man/dlock-config.1", &["man", "config"]);
    let format = current("man/dlock-config.5", &["man", "config.5"]);
    for path in [&command, &format] {
        accepted("mandoc", "mandoc", &["-Tlint", "-Wwarning"], path);
    }
    let page = fs::read_to_string(command).unwrap();
    for code in ["0", "64", "78"] {
        assert!(page.contains(&format!("\\fB{code}\\fR")), "no exit code {code}");
    }
    let page = fs::read_to_string(format).unwrap();
    for section in ["FILES", "ORDER", "PROFILES", "OPTIONS", "TRUST", "EXAMPLES"] {
        assert!(page.contains(&format!(".SH {section}")), "no {section}");
    }
    for option in ["backend, ", "password\\-file, ", "wait", "patient, ", "password = TEXT"] {
        assert!(page.contains(option), "no {option}");
    }
    assert!(!page.contains(" command,") && !page.contains(" key,"), "{page}");
}

#[test]
fn the_page_about_documents_is_current_and_clean() {
    let path = current("man/dlock-json.7", &["man", "json"]);
    accepted("mandoc", "mandoc", &["-Tlint", "-Wwarning"], &path);
    let page = fs::read_to_string(path).unwrap();
    for section in
        ["STATUS", "HOLDERS", "WAITERS", "LIST", "ACQUIRE", "CONFIG", "SETTINGS", "CHECK", "PROBES", "LATENCY"]
    {
        assert!(page.contains(&format!(".SH {section}")), "no {section}");
    }
    assert!(page.contains("\\fBheld_ms\\fR"), "{page}");
}

#[test]
fn every_option_of_the_help_is_in_the_page_and_in_the_completions() {
    for name in ["run", "flock", "acquire", "check", "latch", "barrier"] {
        every_option_is_offered(name);
    }
}

fn every_option_is_offered(subcommand: &str) {
    let help = Command::new(*DLOCK).args([subcommand, "--help"]).env_clear().output().unwrap();
    assert!(help.status.success() && help.stderr.is_empty());
    let help = String::from_utf8(help.stdout).unwrap();
    let options: Vec<&str> = help
        .split_whitespace()
        .filter(|word| {
            word.starts_with("--") && word.len() > 3 && word[2..].bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
        })
        .collect();
    assert!(options.len() > 10, "{options:?}");
    let page = String::from_utf8(generate(&["man", subcommand])).unwrap();
    let bash = String::from_utf8(generate(&["bash"])).unwrap();
    for option in options {
        assert!(page.contains(&option.replace('-', "\\-")), "man {subcommand}: no {option}");
        assert!(bash.contains(option), "completions: no {option}");
    }
}

#[test]
fn completions_are_current_and_load_without_a_message() {
    for (shell, package, arguments) in [
        ("bash", "bash", &["--norc", "-e", "-u"][..]),
        ("zsh", "zsh", &["-f", "-c", "autoload -Uz compinit && compinit -u -D && source $1", "zsh"]),
        ("fish", "fish", &["--no-config"]),
    ] {
        let path = current(&format!("completions/dlock.{shell}"), &[shell]);
        accepted(shell, package, arguments, &path);
    }
}

#[test]
fn generate_refuses_what_it_does_not_know() {
    for arguments in
        [&["generate", "man", "fly"][..], &["generate", "bash", "run"], &["generate", "tcsh"], &["generate"]]
    {
        let output = Command::new(*DLOCK).args(arguments).env_clear().output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {said}");
        assert!(said.starts_with("dlock: ") && said.lines().count() == 1 && output.stdout.is_empty(), "{said}");
    }
}

/// What bash offers for the words of a line, of which the last is to be completed.
fn bash_offers(words: &[&str]) -> Vec<String> {
    let script = r#". "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dlock dlock "${@: -1}" "${@: -2:1}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let completions = project().join("completions/dlock.bash");
    let mut bash = Command::new(need("bash", "bash"));
    bash.args(["--norc", "-c", script, "bash"]).arg(completions).arg("dlock").args(words);
    let output = bash.env_clear().env("PATH", "/usr/bin:/bin").current_dir(project()).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What fish offers for a line.
fn fish_offers(line: &str) -> Vec<String> {
    let script = format!("source completions/dlock.fish; complete -C '{line}'");
    // Fish keeps files there, and makes the directory if there is none.
    let home = Scratch::new();
    let mut fish = Command::new(need("fish", "fish"));
    fish.args(["--no-config", "-c", &script]).env("HOME", home.root()).current_dir(project());
    let output = fish.stdin(Stdio::null()).output().unwrap();
    let offers = String::from_utf8(output.stdout).unwrap();
    offers.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn completions_offer_commands_and_files_after_two_dashes_and_forms_of_values() {
    for (words, offered) in [
        (&["run", "-k", "k", "--", "unshar"][..], "unshare"),
        (&["run", "-k", "k", "--", "ls", "Cargo.t"], "Cargo.toml"),
        (&["run", "-w", ""], "10m"),
        (&["run", "--ttl", "3"], "30s"),
        (&["run", "-b", "etc"], "etcd://"),
        (&["run", "--backend", "fil"], "file:"),
        (&["run", "--requ"], "--require-backend"),
        (&["latch", "-k", "k", "forg"], "forget"),
        (&["latch", "-b", "etc"], "etcd://"),
        (&["latch", "--keep", "24"], "24h"),
        (&["barrier", "--par"], "--parties"),
    ] {
        let bash = bash_offers(words);
        assert!(bash.iter().any(|word| word == offered), "bash: {words:?}: {bash:?}");
        let fish = fish_offers(&format!("dlock {}", words.join(" ")));
        assert!(fish.iter().any(|word| word == offered), "fish: {words:?}: {fish:?}");
    }
    // And nothing of dlock's own among the command's words.
    for offers in [bash_offers(&["run", "--", "ls", "--"]), fish_offers("dlock run -- ls --req")] {
        assert!(!offers.iter().any(|word| word == "--require-backend"), "{offers:?}");
    }
}
