/*!
The place of a lock of `dlock flock`: on this host, or at a backend, like that of a `dlock run`.
*/

use std::ffi::{CString, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::flock::{FlockOptions, Object, Operation, Timeout};
use crate::cli::is_on;
use crate::exit::Failure;
use crate::key::{Key, Keys};
use crate::printable::{flag, shown};
use crate::settings::RunSettings;
use crate::settings::config::{Chosen, FLOCK_PATHS, Section, config, files};
use crate::settings::layers::Layers;
use crate::settings::origin::Origin;
use crate::settings::run::RunValues;
use crate::settings::usage::usage;
use crate::variables::{BACKEND, PROFILE, REQUIRE_BACKEND};

/// The longest wait of a run.
const LONGEST: Duration = Duration::from_secs(315_576_000);

/// Reads the settings of the run that takes a lock at a backend, and the password file; `None` for a lock on this host.
pub(crate) fn run_of_flock(options: &FlockOptions, object: &Object) -> Result<Option<RunSettings>, Failure> {
    let path = path(object);
    let profile = variable(PROFILE)
        .map(|name| Chosen { name: name.to_string_lossy().into_owned(), origin: Origin::Variable("profile".into()) });
    let has_variable = variable(BACKEND).is_some();
    // Without the variable and a config file, nothing else is read.
    let sections = files(profile)?.sections;
    if !has_variable && !is_named(&sections, &path)? {
        return require_backend(&path).map(|()| None);
    }
    match object {
        Object::Descriptor(number) => Err(descriptor(*number, options, &path)),
        Object::Path { .. } if options.operation == Some(Operation::Unlock) => {
            Err(usage(format!("flock -u: {UNLOCK}")))
        }
        Object::Path { argv, .. } => settings(options, &path, argv, sections).map(Some),
    }
}

/// The remedy for `-u`.
const UNLOCK: &str = "a lock on a server is not released through the file: end the command that holds it, or use dlock release HANDLE (from dlock acquire)";

/// Returns the path that is locked: for a descriptor, its path if known, or else an empty one.
fn path(object: &Object) -> PathBuf {
    match object {
        // An empty path has no absolute form, and is refused where it is used.
        Object::Path { file, .. } => std::path::absolute(file).unwrap_or_default(),
        Object::Descriptor(number) => of_descriptor(*number).unwrap_or_default(),
    }
}

fn of_descriptor(number: RawFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{number}")).ok().filter(|path| path.is_absolute())
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns `true` if config files name both this path and a backend. Fails if they name the path but no backend.
fn is_named(sections: &[Section], path: &Path) -> Result<bool, Failure> {
    let Some((patterns, section)) = sections.iter().find_map(|section| Some((section.flock_paths()?, section))) else {
        return Ok(false);
    };
    if !patterns.iter().any(|pattern| matches(pattern, path)) {
        return Ok(false);
    }
    if sections.iter().any(|section| section.values().contains_key("backend")) {
        return Ok(true);
    }
    let (origin, path) = (section.origin(FLOCK_PATHS), shown(path.as_os_str().as_bytes()));
    Err(config(format!("{origin} names {path}, but no config file has a backend: add backend = \"URL\"")))
}

/// Returns `true` if `path` matches this shell pattern, in which no wildcard matches a slash.
fn matches(pattern: &str, path: &Path) -> bool {
    let (Ok(pattern), Ok(path)) = (CString::new(pattern), CString::new(path.as_os_str().as_bytes())) else {
        return false;
    };
    // SAFETY: two C strings, which are only read.
    unsafe { libc::fnmatch(pattern.as_ptr(), path.as_ptr(), libc::FNM_PATHNAME) == 0 }
}

/// Fails for a lock on this host if [`REQUIRE_BACKEND`] says that there must be a backend.
fn require_backend(path: &Path) -> Result<(), Failure> {
    let Some(value) = variable(REQUIRE_BACKEND) else { return Ok(()) };
    let value = value.to_string_lossy();
    match is_on(&value) {
        Ok(false) => Ok(()),
        Ok(true) => {
            let path = path.as_os_str().as_bytes();
            let what = shown(if path.is_empty() { b"this descriptor" } else { path });
            Err(usage(format!(
                "{REQUIRE_BACKEND}: no backend was chosen for {what}: name one with {BACKEND}, or the path with {FLOCK_PATHS} \
                 beside the backend in a config file"
            )))
        }
        Err(why) => Err(usage(format!("{REQUIRE_BACKEND}={value}: {why}"))),
    }
}

/// The failure for a descriptor, with the lines to write instead.
fn descriptor(number: RawFd, options: &FlockOptions, path: &Path) -> Failure {
    let said = format!("flock {number}: a server cannot lock an open descriptor");
    if options.operation == Some(Operation::Unlock) {
        return usage(format!("flock -u {number}: {UNLOCK}"));
    }
    let (file, key) = match path.to_str().filter(|path| !path.is_empty()) {
        Some(path) => (flag("", path).trim_start().to_owned(), flag("-k", path)),
        None => ("FILE".to_owned(), " -k FILE".to_owned()),
    };
    let nonblock = if options.nonblock { " -n" } else { "" };
    usage(format!(
        "{said}: write flock{nonblock} {file} COMMAND, or to hold the lock until a script ends, dlock acquire{nonblock}{key} \
         --while-pid $$ >/dev/null || exit"
    ))
}

/// Reads the settings of a run with this path as its key.
fn settings(
    options: &FlockOptions,
    path: &Path,
    argv: &[OsString],
    sections: Vec<Section>,
) -> Result<RunSettings, Failure> {
    let key = Key::parse(path.as_os_str()).map_err(|error| {
        usage(format!("flock {}: its absolute path is the lock's key: {error}", shown(path.as_os_str().as_bytes())))
    })?;
    let layers = Layers::of_words(&words(options, path, argv), sections)?;
    RunSettings::with(&layers, RunValues::settle(&layers).of_flock(), || Ok(Keys::from(key)))
}

/// The command line of the run.
fn words(options: &FlockOptions, path: &Path, argv: &[OsString]) -> Vec<OsString> {
    let mut key = OsString::from("--key=");
    key.push(path);
    let mut words: Vec<OsString> = vec!["dlock".into(), "run".into(), key];
    let mut add = |is_given: bool, word: &str| words.extend(is_given.then(|| OsString::from(word)));
    add(options.nonblock, "--nonblock");
    add(options.operation == Some(Operation::Shared), "--shared");
    add(options.operation == Some(Operation::Exclusive), "--exclusive");
    add(options.close, "--close");
    add(options.verbose, "--verbose");
    if let Some(Timeout::For(length)) = options.timeout.filter(|_| !options.nonblock) {
        add(true, &format!("--wait={}", length.min(LONGEST).as_secs_f64()));
    }
    if let Some(code) = options.conflict {
        add(true, &format!("--conflict-exit-code={code}"));
    }
    add(true, "--");
    words.extend_from_slice(argv);
    words
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::settings::config::files_of;

    #[test]
    fn a_path_is_named_as_a_shell_names_it() {
        for (pattern, path, expected) in [
            ("/var/lock/jobs/*", "/var/lock/jobs/backup", true),
            ("/var/lock/jobs/*", "/var/lock/jobs/.hidden", true),
            ("/var/lock/jobs/*", "/var/lock/jobs/a/b", false),
            ("/var/lock/jobs/*", "/var/lock/jobs/../apt", false),
            ("/var/lock/jobs/*", "/var/lock/jobs", false),
            ("/var/lock/job-?", "/var/lock/job-1", true),
            ("/var/lock/[ab]", "/var/lock/b", true),
            ("/var/lock/x", "/var/lock/x", true),
            ("/var/lock/x", "/var/lock/xy", false),
        ] {
            assert_eq!(matches(pattern, Path::new(path)), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_config_file_names_the_paths_of_its_backend() {
        let sections = |text| files_of(text, "", None).expect("right").sections;
        let named = |text, path: &str| is_named(&sections(text), Path::new(path)).map_err(|_| "refused");
        let (backend, paths) = ("backend = \"redis\"\n", "flock-paths = [\"/a/*\", \"/b\"]\n");
        let both = &format!("{backend}{paths}");
        assert_eq!(named(backend, "/a/x"), Ok(false));
        assert_eq!(named(both, "/a/x"), Ok(true));
        assert_eq!(named(both, "/b"), Ok(true));
        assert_eq!(named(both, "/c"), Ok(false));
        assert_eq!(named(paths, "/c"), Ok(false));
        assert_eq!(named(paths, "/b"), Err("refused"));
    }

    #[test]
    fn the_run_has_the_options_of_flock() {
        let length = Duration::from_millis(1500);
        let options = FlockOptions {
            operation: Some(Operation::Shared),
            timeout: Some(Timeout::For(length)),
            conflict: Some(7),
            verbose: true,
            ..FlockOptions::default()
        };
        let said = |options: &FlockOptions| {
            let words = words(options, Path::new("/f"), &["-F".into(), "x".into()]);
            words.join(OsStr::new(" ")).into_string().expect("text")
        };
        assert_eq!(said(&options), "dlock run --key=/f --shared --verbose --wait=1.5 --conflict-exit-code=7 -- -F x");
        let options = FlockOptions { nonblock: true, close: true, ..options };
        assert_eq!(
            said(&options),
            "dlock run --key=/f --nonblock --shared --close --verbose --conflict-exit-code=7 -- -F x"
        );
        assert_eq!(said(&FlockOptions::default()), "dlock run --key=/f -- -F x");
    }
}
