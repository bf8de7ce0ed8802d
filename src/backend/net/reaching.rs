/*!
Checks whether a server can be reached, and until when its certificate is valid, by a test connection.
*/

use std::fmt;
use std::time::Duration;

use crate::backend::error::Error;
use crate::backend::net::tls::{Noted, Tls};
use crate::backend::net::wire::{Address, Wire};
use crate::clock::Instant;

/// The result of a connection attempt.
#[derive(Debug)]
pub(crate) struct Reached {
    /// The connection, encrypted if requested, the time that it took without TLS, and the address.
    pub wire: Result<(Wire, Duration, String), Error>,
    /// The error is about TLS: it came after the connection was made.
    pub is_of_tls: bool,
    /// The end of the certificate's validity, in seconds since 1970, if the server showed a valid one.
    pub ends: Option<u64>,
}

/// Connects to `address`, with TLS if `tls` is given. There is no time limit.
///
/// Errors call the server `name`.
pub(crate) async fn reach(name: &(dyn fmt::Display + Sync), address: &Address, tls: Option<&Tls>) -> Reached {
    let begun = Instant::now();
    let wire = match Wire::dial(name, address, None).await {
        Ok(wire) => wire,
        Err(error) => return Reached { wire: Err(error), is_of_tls: false, ends: None },
    };
    let took = Instant::now().since(begun);
    let place = wire.ways().taken.map_or_else(|| address.to_string(), |taken| taken.to_string());
    let Some(tls) = tls else { return Reached { wire: Ok((wire, took, place)), is_of_tls: false, ends: None } };
    let noted = Noted::default();
    let wire = wire.secure(name, address, &tls.noting(noted.clone())).await;
    Reached { is_of_tls: wire.is_err(), wire: wire.map(|wire| (wire, took, place)), ends: noted.ends() }
}
