//! What one service alone promises and suffers, with its servers in ways of their own.

// The first contact with a server: how long it may take, and which failures are retried.
mod first_contact;

// What a hand-over costs the servers, by their own count, for a few and for many who wait.
mod scaling;

// Wall clocks of servers and of dlock itself that are moved by an hour, or run at other rates: what is lost, what is said,
// and the tokens.
mod clocks;

// Servers and lock holders that lie: bounded time, bounded memory, one line, and nothing raw on the terminal.
pub(crate) mod hostile;

// A majority of redis servers: who counts, what a minority may do, what is left where, and the tokens.
mod redlock;

// Lock files: damaged counters, directories that a group shares, files that are locked by their path, readers and slots.
mod files;

// TLS on every backend: who is trusted, who we are, no way to plain text, and passwords that are refused.
mod tls;

// Alerts in plain text: they prove nothing.
mod alerts;

// Redis in production: sentinels, replicas, local sockets, settings that lose locks, and every way in which it says no.
pub(crate) mod redis;

// What etcd alone has: its keys, leases, revisions and watches, what other hands do to them, and who may use it. etcd
// that fails: members that die, freeze or cannot be reached, leaders that change, and answers that are lost. Servers that
// are no etcd, or lie as one.
pub(crate) mod etcd;

// What the locks of all databases promise and suffer: a table that others use, hands that change it.
pub(crate) mod databases;

// What only MySQL's locks promise and suffer: user locks, engines and collations, few connections.
mod mysql;

// What only PostgreSQL's locks promise and suffer: a table that others use, privileges, few connections.
pub(crate) mod postgres;

// What only ZooKeeper's locks promise and suffer: two spellings, sessions that outlive connections, servers that follow.
mod zookeeper;
