//! The support that all tests use. Every helper waits for an event, never for a time, and leaves nothing behind.

// Each test file uses its own part of this.
#![allow(dead_code)]

pub mod backends;
pub mod certificates;
pub mod cgroup;
pub mod clock;
pub mod cluster;
pub mod daemon;
pub mod database_services;
pub mod databases;
pub mod dlock;
pub mod ensemble;
pub mod etcd;
pub mod exhausted;
pub mod foreign;
pub mod gated;
pub mod islands;
pub mod mode_witness;
pub mod mysql;
pub mod netns;
pub mod pool;
pub mod postgres;
pub mod process;
pub mod programs;
pub mod proxy;
pub mod pty;
pub mod recorder;
pub mod redis;
pub mod redis_services;
pub mod redis_sets;
pub mod rendezvous;
pub mod scene;
pub mod scratch;
pub mod service;
pub mod taken;
pub mod tree;
pub mod witness;
pub mod zookeeper;
pub mod zookeeper_proxy;

// The name by which most tests know it.
pub use redis as servers;

/// The names of the tests of this test program, from its own `--list` with these options.
pub fn own_tests(options: &[&str]) -> Vec<String> {
    let program = std::env::current_exe().expect("a program of a name");
    let list = std::process::Command::new(program)
        .arg("--list")
        .args(options)
        .output()
        .expect("the test program lists its tests");
    let list = String::from_utf8(list.stdout).expect("names in UTF-8");
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}
