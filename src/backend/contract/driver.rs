/*!
The description of itself that every backend gives, so that no code outside its folder names it: the syntax of its URLs,
and its abilities.
*/

use std::fmt;

use crate::backend::contract::service::{Options, Service};
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;

/// A kind of lock service.
pub(crate) struct Driver {
    /// The backend's name in `DLOCK_BACKEND_KIND`.
    pub name: &'static str,
    /// The forms of its URLs, in the order in which they are listed for users.
    pub forms: &'static [Form],
    /// Schemes of other clients, with what to use instead.
    pub meant: &'static [(&'static str, &'static str)],
    /// The time between SIGTERM and SIGKILL is at most a lease divided by this number.
    pub kill_after_share: u32,
    /// The rest of a lease must be at least this many times `--lock-delay`, so that it can be renewed in time. `None`
    /// if the option has no meaning, because a lock ends with the last process of its command.
    pub delay_share: Option<u32>,
    /// `true` if locks end by themselves unless they are renewed.
    pub has_lease: bool,
    /// The options that have a meaning at this backend.
    pub abilities: Abilities,
    /// Returns what an administrator may have to run at the service before its first use, for `dlock generate`; `None`
    /// if there is nothing to run.
    pub setup: Option<fn() -> String>,
}

/// The options and subcommands that have a meaning at a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// `--replicas`.
    pub replicas: bool,
    /// `--strict-fencing`.
    pub strict_fencing: bool,
    /// The abilities of `dlock break`.
    pub breaks: Breaks,
    /// `dlock acquire`: a lock can outlive the process that took it.
    pub handles: bool,
    /// The meeting points, where processes wait for each other.
    pub meetings: Meetings,
}

/// The abilities of `dlock break` at a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// Ask a holder to stop.
    #[default]
    Asking,
    /// Ask a holder to stop, and take the lock away.
    Taking,
}

/// The meeting points that a backend has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meetings {
    /// Latches.
    #[default]
    Latches,
    /// Latches and barriers.
    Both,
}

/// Reads the part after `scheme://` (or after `scheme:`, see [`Follows::Anything`]). The last argument says how to
/// write such a URL. The error says what to do, and holds no part of the URL that could be a password.
pub(crate) type Read = fn(&'static Scheme, &str, &str) -> Result<Box<dyn Endpoint>, String>;

/// One form of a backend's URLs.
pub(crate) struct Form {
    /// The schemes with which its URLs begin.
    pub schemes: &'static [Scheme],
    /// The short URL syntax, for the help text.
    pub short: &'static str,
    /// The full URL syntax, for error messages.
    pub full: &'static str,
    /// The parts that may follow a scheme.
    pub follows: Follows,
    /// Reads the part after a scheme.
    pub read: Read,
}

impl Form {
    /// Returns a hint on the syntax of such URLs, for the end of an error.
    #[must_use]
    pub(crate) fn hint(&self) -> String {
        format!("use {}, with @ : / , ? # % in a password as %40 %3A %2F %2C %3F %23 %25", self.full)
    }
}

/// The parts that may follow a scheme in a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    /// A colon and anything, or nothing: [`Form::read`] decides.
    Anything,
    /// `://` and the servers; the scheme alone means the server on this host.
    ServersOrNothing,
    /// `://` and the servers.
    Servers,
}

/// A scheme: the beginning of a URL, without the colon.
#[derive(Debug)]
pub(crate) struct Scheme {
    /// The scheme's name.
    pub name: &'static str,
    /// `true` if traffic to the servers is encrypted; `None` if nothing leaves this host.
    pub tls: Option<bool>,
    /// The default port of such servers.
    pub port: u16,
}

impl Scheme {
    /// A plain-text scheme for servers that listen on `port` by default.
    pub(crate) const fn plain(name: &'static str, port: u16) -> Self {
        Self { name, tls: Some(false), port }
    }

    /// A TLS scheme for servers that listen on `port` by default.
    pub(crate) const fn tls(name: &'static str, port: u16) -> Self {
        Self { name, tls: Some(true), port }
    }

    /// A scheme for a backend on this host.
    pub(crate) const fn local(name: &'static str) -> Self {
        Self { name, tls: None, port: 0 }
    }
}

/// The location of one backend's locks, as given by a URL. `Debug` and `Display` omit the password; the displayed text
/// has the same meaning when it is parsed again.
pub(crate) trait Endpoint: fmt::Debug + fmt::Display {
    /// Returns the servers and the user there, to add credentials from elsewhere; `None` if there are no servers.
    fn location(&mut self) -> Option<&mut Location> {
        None
    }

    /// Returns the name of the master that the servers are asked for, if they decide which servers get the credentials.
    fn master(&self) -> Option<&str> {
        None
    }

    /// Returns `true` if all keys there are the same lock.
    fn is_one_lock(&self) -> bool {
        false
    }

    /// Returns `true` if traffic to the servers is encrypted; `None` if that follows from the scheme.
    fn is_tls(&self) -> Option<bool> {
        None
    }

    /// Returns what an administrator may have to run there, as [`Driver::setup`] does for the default place; `None` if
    /// there is nothing to run.
    fn setup(&self) -> Option<String> {
        None
    }

    /// Returns the service there, without sending anything. `tls` is set if the URL asks for TLS.
    fn open(&self, options: &Options, tls: Option<Tls>) -> Box<dyn Service>;
}
