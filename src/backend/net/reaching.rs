/*!
Whether a server can be reached, and what its certificate is worth: a connection that is made to find that out.
*/

use std::fmt;
use std::time::Duration;

use crate::backend::error::Error;
use crate::backend::net::tls::{Noted, Tls};
use crate::backend::net::wire::{Address, Wire};
use crate::clock::Instant;

/// What became of a connection.
#[derive(Debug)]
pub(crate) struct Reached {
    /// The connection, encrypted where that was asked for, and how long the first step took to which address.
    pub wire: Result<(Wire, Duration, String), Error>,
    /// Whether an error came only after a connection was there: it is about TLS.
    pub is_of_tls: bool,
    /// Until when the server's certificate is good, in seconds since 1970.
    pub ends: Option<u64>,
}

/// Connects to `address`, and speaks TLS there if `tls` is given. Takes as long as it takes.
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
