//! The faults, by where they strike.

pub mod breaks;
pub mod clocks;
pub mod crowds;
pub mod failover;
pub mod files;
pub mod group;
pub mod kept;
pub mod leftovers;
pub mod limits;
pub mod lock_delay;
pub mod meetings;
pub mod min_hold;
pub mod mixed;
pub mod multitude;
pub mod network;
pub mod partitions;
pub mod process;
pub mod redis;
pub mod rows;
pub mod servers;
pub mod signals;
pub mod storms;
pub mod tampering;
pub mod terminal;
pub mod together;
pub mod unseen;
