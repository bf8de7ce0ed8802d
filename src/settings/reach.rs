/*!
The servers that a password is for. A password in a config file is for those of the backend that is configured with it,
and is not sent to others that a flag or a variable names. With a handle, that also holds for a variable's password.
*/

use std::ffi::OsString;

use crate::backend::url::Target;
use crate::exit::Failure;
use crate::report::event::Event;
use crate::settings::layers::{Given, Layers, Secret};
use crate::settings::origin::Origin;
use crate::settings::usage::{refused, usage};

/// The backends that variables and config files name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Configured {
    /// The backend of the variable.
    pub variable: Option<Given<OsString>>,
    /// The backend of the config files.
    pub files: Option<Given<OsString>>,
    /// `true` if a handle names the backend.
    pub by_handle: bool,
}

impl Configured {
    /// Returns the backends of these layers.
    pub(super) fn of<A>(layers: &Layers<A>) -> Self {
        let [variable, files] = layers.backends();
        Self { variable, files, by_handle: false }
    }

    /// Decides if the `secret` is sent to the `target`, which `backend` names: `None` if it is, else the report. Fails
    /// if a handle names servers that neither the secret nor, for a file's secret, the variable's backend is for.
    pub(super) fn withhold(
        &self,
        secret: &Given<Secret>,
        backend: Option<&Given<OsString>>,
        target: &mut Target,
    ) -> Result<Option<Event>, Failure> {
        let beside = match &secret.origin {
            // Meant for this command line.
            Origin::Flag(_) | Origin::Default => return Ok(None),
            Origin::Variable(_) if !self.by_handle => return Ok(None),
            Origin::Variable(_) => self.variable.as_ref().or(self.files.as_ref()),
            Origin::File { .. } => self.files.as_ref().or(self.variable.as_ref().filter(|_| self.by_handle)),
        };
        // Values in the files belong together.
        let is_of_files = backend.is_some_and(|given| !given.is_of_this_run()) && !self.by_handle;
        let Some(beside) = beside.filter(|_| target.has_servers() && !is_of_files) else { return Ok(None) };
        let mut owner = parsed(beside)?;
        // A password that is configured with lock files on this host cannot be for them.
        if !owner.has_servers() || owner.covers(target) {
            return Ok(None);
        }
        let (origin, belongs_to, place) = (secret.origin.to_string(), owner.to_string(), target.to_string());
        let is_withheld = match (&secret.origin, &self.variable) {
            _ if !self.by_handle => true,
            // The lock was also taken without the files' password.
            (Origin::File { .. }, Some(variable)) => parsed(variable)?.covers(target),
            _ => false,
        };
        if is_withheld {
            return Ok(Some(Event::PasswordWithheld { origin, belongs_to, place }));
        }
        let meant = match secret.origin {
            Origin::Variable(_) => format!("set DLOCK_BACKEND={place}, or use --password-file"),
            _ => "use --password-file".to_owned(),
        };
        Err(usage(format!(
            "the handle is for {place}, but {origin} is for {belongs_to} ({}), and is not sent to other servers, nor in plain text \
             where TLS is configured: if that is meant, {meant}",
            beside.origin
        )))
    }
}

fn parsed(given: &Given<OsString>) -> Result<Target, Failure> {
    let wrong = |error: &str| refused(&given.origin, format!("{}: {error}", given.origin));
    let url = given.value.to_str().ok_or_else(|| wrong("the URL is not UTF-8: percent-encode it"))?;
    Target::parse(url).map_err(|error| wrong(&error))
}
