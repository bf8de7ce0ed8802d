/*!
What every backend says of itself, so that nothing outside of its folder names it: how its URLs are written and read, and
what it can do.
*/

use std::fmt;

use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::{Options, Service};

/// A kind of lock service.
pub(crate) struct Driver {
    /// Its name in `DLOCK_BACKEND_KIND`.
    pub name: &'static str,
    /// The forms of its URLs, in the order in which they are listed for users.
    pub forms: &'static [Form],
    /// Schemes of other clients, and what is probably meant where one is used here.
    pub meant: &'static [(&'static str, &'static str)],
    /// Which part of a lease may at most be between SIGTERM and SIGKILL: one of so many.
    pub kill_after_share: u32,
    /// How many times as long as `--lock-delay` the rest of a lease must be at least, so that it can be renewed in time; none
    /// where the option means nothing, because a lock ends with the last process of its command.
    pub delay_share: Option<u32>,
    /// Whether locks end by themselves when they are not renewed.
    pub has_lease: bool,
    /// Which options mean something there.
    pub abilities: Abilities,
    /// What an administrator may have to run at the service before it can be used, for `dlock generate`; none where there
    /// is nothing of the kind.
    pub setup: Option<fn() -> String>,
}

/// Which options mean something at a backend, and which subcommands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// `--replicas`.
    pub replicas: bool,
    /// `--strict-fencing`.
    pub strict_fencing: bool,
    /// What `dlock break` can do.
    pub breaks: Breaks,
    /// `dlock acquire`: a lock can outlive the process that took it.
    pub handles: bool,
    /// Where processes can wait for each other.
    pub meetings: Meetings,
}

/// What `dlock break` can do at a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// Ask a holder to stop.
    #[default]
    Asking,
    /// Ask a holder to stop, and take the lock away.
    Taking,
}

/// Which meeting points a backend has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meetings {
    /// Latches.
    #[default]
    Latches,
    /// Latches and barriers.
    Both,
}

/// Reads what follows `scheme://` (or what follows `scheme:`, see [`Follows::Anything`]). The last argument says how to
/// write such a URL. The error says what to do, and holds no part of the URL that could be a password.
pub(crate) type Read = fn(&'static Scheme, &str, &str) -> Result<Box<dyn Place>, String>;

/// One form of a backend's URLs.
pub(crate) struct Form {
    /// What its URLs begin with.
    pub schemes: &'static [Scheme],
    /// How they are written in the help text.
    pub short: &'static str,
    /// How they are written in full, for who got it wrong.
    pub full: &'static str,
    /// What may follow a scheme.
    pub follows: Follows,
    /// Reads what follows a scheme.
    pub read: Read,
}

impl Form {
    /// How a URL of this form is written, for the end of an error.
    #[must_use]
    pub(crate) fn hint(&self) -> String {
        format!("use {}, with @ : / , ? # % in a password as %40 %3A %2F %2C %3F %23 %25", self.full)
    }
}

/// What may follow a scheme in a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    /// A colon and anything, or nothing: [`Form::read`] decides.
    Anything,
    /// `://` and the servers; the scheme alone is the server on this host.
    ServersOrNothing,
    /// `://` and the servers.
    Servers,
}

/// A scheme: what a URL begins with, without the colon.
#[derive(Debug)]
pub(crate) struct Scheme {
    /// Its name.
    pub name: &'static str,
    /// Whether what travels to the servers is encrypted; none where nothing leaves this host.
    pub tls: Option<bool>,
    /// The port that such servers listen on by default.
    pub port: u16,
}

impl Scheme {
    /// A scheme for servers that listen on `port` by default, for plain text.
    pub(crate) const fn plain(name: &'static str, port: u16) -> Self {
        Self { name, tls: Some(false), port }
    }

    /// A scheme for servers that listen on `port` by default, for TLS.
    pub(crate) const fn tls(name: &'static str, port: u16) -> Self {
        Self { name, tls: Some(true), port }
    }

    /// A scheme for what is on this host.
    pub(crate) const fn local(name: &'static str) -> Self {
        Self { name, tls: None, port: 0 }
    }
}

/// Where the locks of one backend are, as a URL says it. Shown and debugged without the password; what is shown means the
/// same when it is read again.
pub(crate) trait Place: fmt::Debug + fmt::Display {
    /// The servers and who we are there, for credentials from elsewhere; none where there are no servers.
    fn location(&mut self) -> Option<&mut Location> {
        None
    }

    /// The name of the master that the servers are asked for, where they tell which servers get the credentials.
    fn master(&self) -> Option<&str> {
        None
    }

    /// Whether all keys there are the same lock.
    fn is_one_lock(&self) -> bool {
        false
    }

    /// Whether what travels to the servers is encrypted, where that does not follow from the scheme.
    fn is_tls(&self) -> Option<bool> {
        None
    }

    /// What an administrator may have to run there, as [`Driver::setup`] has it for the default place; none where there is
    /// nothing of the kind.
    fn setup(&self) -> Option<String> {
        None
    }

    /// The service there. `tls` is what the URL asks for. Nothing is sent yet.
    fn open(&self, options: &Options, tls: Option<Tls>) -> Box<dyn Service>;
}
