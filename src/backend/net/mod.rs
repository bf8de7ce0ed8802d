/*!
The common parts of all backends with servers: locations, connections, and trust. Knows no lock.
*/

pub(crate) mod bounded;
pub(crate) mod location;
pub(crate) mod race;
pub(crate) mod reaching;
pub(crate) mod tls;
pub(crate) mod wire;
mod witness;
