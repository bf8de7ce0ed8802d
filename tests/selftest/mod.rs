//! Does the support itself keep its word? What the other tests stand on, tried by itself.

// Starting dlock, rendezvous and `/proc`; needs no working dlock.
mod basics;

// The tools that break things: proxy, terminal, witness, network namespaces.
mod faults;

// Wall clocks that are moved.
mod clock;

// Descriptors, processes and disks that run out.
mod exhausted;

// Programs that are hard to stop, and what makes them slow or short of memory.
mod programs;

// etcd, ZooKeeper and certificates.
mod servers;

// Sets of redis servers, and how the contract suite looks at them.
mod redis_sets;

// Other programs that take locks: each is let alone with its like, to see that it is one.
mod foreign;
