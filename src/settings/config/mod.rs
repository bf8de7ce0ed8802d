/*!
Config files: one of the user, and one of the system. A profile in either of them overrides the top of both.

They hold values for options, checked like those on the command line. Nothing is read from the working directory.
*/

mod document;
mod file;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use self::document::FLOCK_PATHS;
use self::document::{Document, Entry, Mistake, PASSWORD, document};
use self::file::{Candidate, Text, candidates};
use crate::backend::url::password_in;
use crate::exit::{Exit, Failure};
use crate::report::event::Event;
use crate::settings::origin::Origin;
use crate::variables::CONFIG;

/// The entries of one file in one place: at its top, or in a profile.
#[derive(Debug)]
pub(crate) struct Section {
    path: Arc<Path>,
    profile: Option<String>,
    entries: Vec<Entry>,
}

impl Section {
    /// Returns the values, except the password, by the long names of their options.
    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        let options = self.entries.iter().filter(|entry| entry.option != PASSWORD);
        options.map(|entry| (entry.option.clone(), entry.value.clone())).collect()
    }

    /// Returns the password itself.
    pub(crate) fn password(&self) -> Option<&str> {
        Some(self.entry(PASSWORD)?.value.as_str())
    }

    /// Returns the patterns of the paths that `dlock flock` locks at the backend.
    pub(crate) fn flock_paths(&self) -> Option<Vec<String>> {
        // This JSON was made when the file was read.
        serde_json::from_str(&self.entry(FLOCK_PATHS)?.value).ok()
    }

    /// Returns the origin of a value for `option`: the file, the line and the profile.
    pub(crate) fn origin(&self, option: &str) -> Origin {
        let line = self.entry(option).map(|entry| format!(":{}", entry.line)).unwrap_or_default();
        let profile = self.profile.as_ref().map(|profile| format!(" [profile.{profile}]")).unwrap_or_default();
        let place = format!("{}{line}{profile}", self.path.display()).into();
        Origin::File { option: option.into(), place }
    }

    fn entry(&self, option: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.option == option)
    }
}

/// A profile that was chosen, and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// Its name; empty for no profile, even if a file chooses one.
    pub name: String,
    /// The option, the variable or the line that chooses it.
    pub origin: Origin,
}

/// The contents of the config files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The profile in use.
    pub profile: Option<Chosen>,
    /// Their sections; the first one that has an option takes precedence.
    pub sections: Vec<Section>,
}

/// Reads the files for the `chosen` profile, or else for the one that a file chooses.
pub(crate) fn files(chosen: Option<Chosen>) -> Result<Files, Failure> {
    let variable = |name: &str| std::env::var_os(name);
    let mut files = Vec::new();
    for candidate in candidates(variable(CONFIG), variable("XDG_CONFIG_HOME"), variable("HOME")).map_err(config)? {
        files.extend(read(&candidate)?);
    }
    arranged(files, chosen)
}

/// Returns the contents of config files of the user and the system with these texts.
#[cfg(test)]
pub(super) fn files_of(user: &str, system: &str, profile: Option<&str>) -> Result<Files, Failure> {
    let file = |path: &str, text| (Path::new(path).into(), document(text, Path::new("/")).expect("right"));
    let chosen = profile.map(|name| Chosen { name: name.to_owned(), origin: Origin::Flag("profile".into()) });
    arranged(vec![file("u", user), file("s", system)], chosen)
}

/// A file that was read.
type Read = (Arc<Path>, Document);

fn read(candidate: &Candidate) -> Result<Option<Read>, Failure> {
    let path: &Path = &candidate.path;
    let read = file::read(candidate).map_err(|why| whole(path, &why))?;
    let Some(Text { text, is_exposed }) = read else { return Ok(None) };
    let directory = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    let document = document(&text, &directory).map_err(|Mistake { line, text }| wrong(path, line, &text))?;
    if is_exposed {
        let is_secret = |entry: &&Entry| {
            entry.option == PASSWORD || entry.option == "backend" && password_in(&entry.value).is_some()
        };
        let mut entries = document.top.iter().chain(document.profiles.values().flatten());
        if let Some(secret) = entries.find(is_secret) {
            let why =
                format!("there is a password here, and other users can read the file: chmod 600 {}", path.display());
            return Err(wrong(path, secret.line, &why));
        }
    }
    Ok(Some((path.into(), document)))
}

/// Arranges the sections of `files`, whose first one takes precedence.
fn arranged(files: Vec<Read>, chosen: Option<Chosen>) -> Result<Files, Failure> {
    let by_file = || {
        let (path, document) = files.iter().find(|(_, document)| document.profile.is_some())?;
        let (name, line) = document.profile.clone()?;
        let place = format!("{}:{line}", path.display()).into();
        Some(Chosen { name, origin: Origin::File { option: "profile".into(), place } })
    };
    let chosen = chosen.or_else(by_file).filter(|chosen| !chosen.name.is_empty());
    if let Some(Chosen { name, origin }) = &chosen {
        known(&files, name, origin)?;
    }
    let (mut profiles, mut tops) = (Vec::new(), Vec::new());
    for (path, mut document) in files {
        let entries =
            chosen.as_ref().and_then(|chosen| Some((chosen.name.clone(), document.profiles.remove(&chosen.name)?)));
        if let Some((name, entries)) = entries {
            profiles.push(Section { path: Arc::clone(&path), profile: Some(name), entries });
        }
        tops.push(Section { path, profile: None, entries: document.top });
    }
    profiles.append(&mut tops);
    Ok(Files { profile: chosen, sections: profiles })
}

/// Fails if no file has a profile of this name.
fn known(files: &[Read], name: &str, origin: &Origin) -> Result<(), Failure> {
    let mut names: Vec<&str> = files.iter().flat_map(|(_, file)| file.profiles.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    if names.contains(&name) {
        return Ok(());
    }
    let there = if names.is_empty() { "there are none".to_owned() } else { format!("use one of {}", names.join(", ")) };
    Err(config(format!("{origin}: no config file has a profile {name}: {there}")))
}

/// Returns `true` if `place`, from the origin of a value, is in the config file for all users.
pub(super) fn is_of_all(place: &str) -> bool {
    place.strip_prefix(file::SYSTEM).is_some_and(|rest| rest.starts_with(':'))
}

/// The failure for a file as a whole.
fn whole(path: &Path, why: &str) -> Failure {
    config(format!("{}: the config file {why}", path.display()))
}

/// The failure for a line of a file.
fn wrong(path: &Path, line: usize, text: &str) -> Failure {
    config(format!("{}:{line}: {text}", path.display()))
}

/// The failure for wrong settings in a config file; `message` says what is wrong and what to do.
pub(super) fn config(message: String) -> Failure {
    Failure::new(Exit::Config, Event::Settings(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrange(user: &str, system: &str, profile: Option<&str>) -> Result<Vec<String>, String> {
        let told = |section: &Section| format!("{}={}", section.origin("wait").place(), section.values()["wait"]);
        match files_of(user, system, profile) {
            Ok(files) => {
                Ok(files.sections.iter().filter(|section| section.entry("wait").is_some()).map(told).collect())
            }
            Err(failure) => match failure.event.as_deref() {
                Some(Event::Settings(text)) => Err(text.clone()),
                other => panic!("{other:?}"),
            },
        }
    }

    #[test]
    fn a_profile_comes_before_the_top_and_the_user_before_the_system() {
        let user = "wait = 1\n[profile.a]\nwait = 2\n";
        let system = "wait = 3\n[profile.a]\nwait = 4\n[profile.b]\nwait = 5";
        for (profile, expected) in [
            (None, &["u:1=1", "s:1=3"][..]),
            (Some("a"), &["u:3 [profile.a]=2", "s:3 [profile.a]=4", "u:1=1", "s:1=3"]),
            (Some("b"), &["s:5 [profile.b]=5", "u:1=1", "s:1=3"]),
        ] {
            assert_eq!(arrange(user, system, profile), Ok(expected.iter().map(|&one| one.to_owned()).collect()));
        }
        let missing = "--profile: no config file has a profile c: use one of a, b";
        assert_eq!(arrange(user, system, Some("c")), Err(missing.to_owned()));
        let none = "--profile: no config file has a profile c: there are none";
        assert_eq!(arrange("", "", Some("c")), Err(none.to_owned()));
    }

    #[test]
    fn a_file_may_choose_a_profile_of_the_other_one() {
        let system = "[profile.a]\nwait = 4";
        assert_eq!(arrange("profile = \"a\"", system, None), Ok(vec!["s:2 [profile.a]=4".to_owned()]));
        let missing = "profile (u:1): no config file has a profile b: use one of a";
        assert_eq!(arrange("profile = \"b\"", system, None), Err(missing.to_owned()));
        assert_eq!(arrange("profile = \"b\"", system, Some("a")), Ok(vec!["s:2 [profile.a]=4".to_owned()]));
        assert_eq!(arrange("wait = 1\nprofile = \"a\"", system, Some("")), Ok(vec!["u:1=1".to_owned()]));
    }
}
