/*!
The names of locks, as users give them.
*/

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::exit::Failure;
use crate::key::{Key, Keys, MOST_KEYS};
use crate::settings::layers::Layers;
use crate::settings::usage::usage;

/// Parses the name of a lock. Fails if no lock can have it, and if it is an existing PEM file.
fn key(name: &OsStr) -> Result<Key, Failure> {
    let key = Key::parse(name).map_err(|error| usage(format!("--key: {error}")))?;
    // Many clients of the same servers use --key for the private key of a certificate.
    if name.as_encoded_bytes().to_ascii_lowercase().ends_with(b".pem") && Path::new(name).exists() {
        return Err(usage("--key is the lock's name, and not a file: name a TLS key with --tls-key FILE"));
    }
    Ok(key)
}

/// Returns the names of all `--key` options.
fn names<A>(layers: &Layers<A>, key: impl Fn(&A) -> &Vec<OsString>) -> Vec<OsString> {
    let given = layers.find("key", |args| Some(key(args).clone()).filter(|names| !names.is_empty()));
    given.map(|given| given.value).unwrap_or_default()
}

/// Returns the only lock that was named. A missing option counts as an empty name.
pub(super) fn one_key<A>(layers: &Layers<A>, names_of: impl Fn(&A) -> &Vec<OsString>) -> Result<Key, Failure> {
    match &*names(layers, names_of) {
        [] => key(OsStr::new("")),
        [name] => key(name),
        _ => Err(usage("--key can be given only once")),
    }
}

/// Returns the locks that were named, without repetitions. A missing option counts as an empty name.
pub(super) fn keys<A>(layers: &Layers<A>, names_of: impl Fn(&A) -> &Vec<OsString>) -> Result<Keys, Failure> {
    let names = names(layers, names_of);
    let names = names.iter().map(|name| key(name)).collect::<Result<Vec<_>, _>>()?;
    let keys = Keys::of(names).map_or_else(|| key(OsStr::new("")).map(Keys::from), Ok)?;
    if keys.count() > MOST_KEYS {
        return Err(usage(format!(
            "--key is given for {} locks, and one run holds at most {MOST_KEYS}: take the others in a dlock run inside this one",
            keys.count()
        )));
    }
    Ok(keys)
}
