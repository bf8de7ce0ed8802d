/*!
The contract of a lock service: what it is told, what it has to do, and what it answers. All services keep it, and all
that uses locks relies on it.
*/

pub(crate) mod claim;
pub(crate) mod contender;
pub(crate) mod driver;
pub(crate) mod probing;
#[cfg(test)]
pub(crate) mod rule;
pub(crate) mod service;
