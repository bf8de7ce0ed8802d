//! What the tests stand on. Every helper waits for an event, never for a time, and leaves nothing behind.

// Each test file uses its own part of this.
#![allow(dead_code)]

pub mod dlock;
pub mod netns;
pub mod process;
pub mod proxy;
pub mod pty;
pub mod recorder;
pub mod rendezvous;
pub mod scene;
pub mod scratch;
pub mod servers;
pub mod service;
pub mod tree;
pub mod witness;
