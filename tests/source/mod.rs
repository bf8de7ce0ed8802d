//! What can be seen from the source and from what it generates: layers, pages, claims, and the patches of the mutations.

// Man pages and completions: current, clean, complete.
mod generated;

// Which part of the source may know which.
pub(crate) mod layers;

// README and Cargo.toml: what they claim holds.
mod project;

// The ways of breaking dlock that `tests/run mutations` has the other tests notice: they fit the source as it is.
mod mutations;
