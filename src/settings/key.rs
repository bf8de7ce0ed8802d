/*!
The name of a lock, as users give it.
*/

use std::ffi::OsStr;
use std::path::Path;

use crate::exit::Failure;
use crate::key::Key;
use crate::settings::usage::usage;

/// The lock with this name. Fails where no lock can have it.
pub(super) fn key(name: &OsStr) -> Result<Key, Failure> {
    let key = Key::parse(name).map_err(|error| usage(format!("--key: {error}")))?;
    // Many clients of the same servers use --key for the private key of a certificate.
    if name.as_encoded_bytes().to_ascii_lowercase().ends_with(b".pem") && Path::new(name).exists() {
        return Err(usage("--key is the lock's name, and not a file: name a TLS key with --tls-key FILE"));
    }
    Ok(key)
}
