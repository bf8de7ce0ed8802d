/*!
What every backend that has servers needs: where they are, the way there, and whom to believe. Knows no lock.
*/

pub(crate) mod bounded;
pub(crate) mod location;
pub(crate) mod race;
pub(crate) mod reaching;
pub(crate) mod tls;
pub(crate) mod wire;
mod witness;
