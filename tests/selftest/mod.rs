//! Tests of the test support itself: what the other tests rely on.

// Starting dlock, rendezvous and `/proc`; needs no working dlock.
mod basics;

// The tools that break things: proxy, terminal, witness, network namespaces.
mod faults;

// The witness of locks that several hold.
mod modes;

// Wall clocks that are moved.
mod clock;

// Descriptors, processes and disk space that run out.
mod exhausted;

// Programs that are hard to stop, and tools that make them slow or short of memory.
mod programs;

// etcd, ZooKeeper and certificates.
mod servers;

// Sets of redis servers, and how the contract suite looks at them.
mod redis_sets;

// Other programs that take locks: each is tried with its own kind, to see that it is one.
mod foreign;
