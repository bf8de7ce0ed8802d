//! The pages and completions that are made from the command line's definitions: committed, current, and accepted by
//! the programs that read them. Stale ones are written anew, and their tests fail once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

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

/// Brings the file at `place` up to date; returns `true` if it was stale.
fn renew(place: &str) -> bool {
    let (directory, name) = place.split_once('/').unwrap();
    let (name, section) = name.rsplit_once('.').unwrap();
    let arguments = match (directory, name.strip_prefix("dlock-"), section) {
        ("completions", ..) => vec![section],
        (_, None, _) => vec!["man"],
        (_, Some("config"), "5") => vec!["man", "config.5"],
        (_, Some(name), _) => vec!["man", name],
    };
    let (path, fresh) = (project().join(place), generate(&arguments));
    let is_stale = fs::read(&path).ok().as_deref() != Some(&fresh[..]);
    if is_stale {
        fs::write(path, fresh).unwrap();
    }
    is_stale
}

/// The files that were stale: the first test that needs one brings all of them up to date.
static STALE: LazyLock<Vec<String>> = LazyLock::new(|| {
    let files = |directory| fs::read_dir(project().join(directory)).unwrap().map(|entry| entry.unwrap().file_name());
    let in_both = ["man", "completions"].map(|directory| (directory, files(directory)));
    let places = in_both
        .into_iter()
        .flat_map(|(directory, names)| names.map(move |name| format!("{directory}/{}", name.to_str().unwrap())));
    places.filter(|place| renew(place)).collect()
});

/// Returns the path of the file at `place`; fails if it is not what is generated now.
fn current(place: &str) -> PathBuf {
    let is_stale = STALE.iter().any(|stale| stale == place) || renew(place);
    assert!(!is_stale, "{place} was stale and has been written anew: commit it");
    project().join(place)
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
    for place in [
        "man/dlock.1",
        "man/dlock-run.1",
        "man/dlock-status.1",
        "man/dlock-list.1",
        "man/dlock-held.1",
        "man/dlock-break.1",
        "man/dlock-acquire.1",
        "man/dlock-renew.1",
        "man/dlock-release.1",
        "man/dlock-generate.1",
    ] {
        let path = current(place);
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
        let path = current(&format!("man/dlock-{name}.1"));
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
    let path = current("man/dlock-flock.1");
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
    let path = current("man/dlock-check.1");
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
    let command = current("man/dlock-config.1");
    let format = current("man/dlock-config.5");
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
    let path = current("man/dlock-json.7");
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
        let path = current(&format!("completions/dlock.{shell}"));
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
