//! What goes wrong, by where it does.

pub mod clocks;
pub mod mixed;
pub mod network;
pub mod process;
pub mod servers;
