//! What redis alone has, as it is run in production.

mod names;
mod production;
