/*!
The messages between dlock and its guard on a `SOCK_SEQPACKET` socket. They have a fixed size, so that the guard neither
parses nor allocates.
*/

use std::time::Duration;

use crate::clock::Instant;
use crate::supervise::tokens::{MOST_LOCKS, Tokens};

/// A tag and the fields of the longest message, besides the token of each lock.
const WORDS: usize = 9 + MOST_LOCKS;
/// The length of every message, in bytes.
pub(crate) const LENGTH: usize = WORDS * 8;
/// An encoded message.
pub(crate) type Packet = [u8; LENGTH];

/// The times at which the command is told to end, and is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    /// The time at which SIGTERM is due.
    pub stop_at: Instant,
    /// The time at which SIGKILL is due.
    pub kill_at: Instant,
}

/// The instructions for starting and supervising a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spawn {
    /// The fencing tokens for `DLOCK_TOKEN`, which is the first one, and `DLOCK_TOKENS`.
    pub tokens: Tokens,
    /// The number of the slot for `DLOCK_SLOT`; `None` if the lock has no slots.
    pub slot: Option<u32>,
    /// The granted lease for `DLOCK_LEASE_TTL`; `None` for a lock without one.
    pub ttl: Option<Duration>,
    /// The deadline of the lease; `None` for a lock without one.
    pub lease: Option<Deadline>,
    /// The time between SIGTERM and SIGKILL when dlock is gone.
    pub kill_after: Duration,
    /// The command goes on when dlock or the guard dies, instead of being stopped.
    pub outlives: bool,
    /// The number of descriptors sent with this message that the command inherits: the first ones.
    pub inherit: usize,
    /// The guard stays until everything the command started is gone, also after a normal end.
    pub stay: bool,
}

/// A message from dlock to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start the command. Up to [`MOST_LOCKS`] descriptors may travel with it.
    Spawn(Spawn),
    /// The lease was renewed.
    Extend(Deadline),
    /// Stop everything the command started: SIGTERM now, SIGKILL at this instant.
    Stop(Instant),
    /// dlock got this signal from this process: pass it on, unless the command got it too.
    Forward {
        /// The signal's number.
        signal: i32,
        /// The sender's process id, 0 if it is outside this PID namespace.
        sender: i32,
        /// The time at which dlock read it from its signal descriptor.
        read_at: Instant,
    },
    /// dlock has said that the command is suspended: stop dlock too.
    Suspend,
}

/// A message from the guard to dlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The guard can do its work.
    Ready,
    /// The guard cannot do its work here; the number is an [`Unfit`].
    Unfit(u64),
    /// The command's process exists.
    Spawned(i32),
    /// No process could be created, for this errno.
    NotSpawned(i32),
    /// The lease had all but ended before the command was started, so it was not.
    TooLate,
    /// The command ended with this wait status, or could not be executed.
    Exited {
        /// The status as `wait(2)` gives it.
        status: i32,
        /// The errno of the failed execution, or 0.
        exec_errno: i32,
        /// `true` if the guard is stopping what the command left behind, and sends [`Notice::Gone`] when that is done.
        stopping: bool,
    },
    /// A signal suspended the command.
    Suspended,
    /// The lease's deadline has passed, and the guard has begun to stop the command on its own.
    Deadline,
    /// The process with this id may not be signalled by this user.
    Unkillable(i32),
    /// Everything that the command started is gone.
    Gone,
    /// The command has ended, and a nested run that its lock covers is stopped first.
    Covering,
    /// Everything that is left of the command is killed.
    Killing,
    /// The control group has used up its CPU quota: a stop would begin this much earlier than at the lease's deadline.
    Throttled(Duration),
}

/// The reason why a guard cannot work here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// `prctl(PR_SET_CHILD_SUBREAPER)` is refused.
    Subreaper,
    /// `/proc` is missing or hides the process's own children.
    Proc,
    /// `/proc` shows the processes of another PID namespace.
    OtherProc,
    /// Timers or signal descriptors cannot be made.
    Descriptors,
}

impl Unfit {
    /// Returns the reason with this number. An unknown number counts as the last one.
    #[must_use]
    pub(crate) fn of(code: u64) -> Self {
        let known = [Self::Subreaper, Self::Proc, Self::OtherProc];
        known.into_iter().find(|unfit| *unfit as u64 == code).unwrap_or(Self::Descriptors)
    }
}

const NONE: u64 = u64::MAX;

fn packet(tag: u64, fields: &[u64]) -> Packet {
    with_tokens(tag, fields, &[])
}

fn with_tokens(tag: u64, fields: &[u64], tokens: &[u64]) -> Packet {
    let mut packet = [0; LENGTH];
    for (place, word) in packet.chunks_exact_mut(8).zip(std::iter::once(&tag).chain(fields).chain(tokens)) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    packet
}

fn words(packet: &Packet) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, place) in words.iter_mut().zip(packet.chunks_exact(8)) {
        *word = u64::from_ne_bytes(place.try_into().unwrap_or_default());
    }
    words
}

/// Process ids, signals, errnos and wait statuses travel as the 32 bits they are.
fn narrow(word: u64) -> i32 {
    ((word & 0xffff_ffff) as u32).cast_signed()
}

fn wide(number: i32) -> u64 {
    u64::from(number.cast_unsigned())
}

/// Decodes a number of locks or of descriptors.
fn count(word: u64) -> usize {
    usize::try_from(word).unwrap_or(MOST_LOCKS).min(MOST_LOCKS)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NONE - 1)
}

impl Order {
    /// Encodes the order.
    #[must_use]
    pub(crate) fn encode(&self) -> Packet {
        match *self {
            Self::Spawn(spawn) => {
                let flags = u64::from(spawn.outlives) | u64::from(spawn.stay) << 1;
                let (stop_at, kill_at) =
                    spawn.lease.map_or((NONE, NONE), |lease| (lease.stop_at.as_nanos(), lease.kill_at.as_nanos()));
                let ttl = spawn.ttl.map_or(NONE, millis);
                let slot = spawn.slot.map_or(NONE, u64::from);
                let [inherit, count] = [spawn.inherit, spawn.tokens.as_slice().len()].map(|count| count as u64);
                let fields = [ttl, stop_at, kill_at, millis(spawn.kill_after), flags, slot, inherit, count];
                with_tokens(1, &fields, spawn.tokens.as_slice())
            }
            Self::Extend(deadline) => packet(2, &[deadline.stop_at.as_nanos(), deadline.kill_at.as_nanos()]),
            Self::Stop(kill_at) => packet(3, &[kill_at.as_nanos()]),
            Self::Forward { signal, sender, read_at } => packet(4, &[wide(signal), wide(sender), read_at.as_nanos()]),
            Self::Suspend => packet(5, &[]),
        }
    }

    /// Decodes an order; `None` for a packet that no dlock sends.
    #[must_use]
    pub(crate) fn decode(packet: &Packet) -> Option<Self> {
        let [tag, fields @ ..] = words(packet);
        let [first, second, third, ..] = fields;
        Some(match tag {
            1 => {
                let [ttl, stop_at, kill_at, kill_after, flags, slot, inherit, tokens, numbers @ ..] = fields;
                let deadline =
                    Deadline { stop_at: Instant::from_nanos(stop_at), kill_at: Instant::from_nanos(kill_at) };
                Self::Spawn(Spawn {
                    tokens: Tokens::new(&numbers[..count(tokens)]),
                    slot: u32::try_from(slot).ok(),
                    ttl: (ttl != NONE).then(|| Duration::from_millis(ttl)),
                    lease: (stop_at != NONE).then_some(deadline),
                    kill_after: Duration::from_millis(kill_after),
                    outlives: flags & 1 != 0,
                    inherit: count(inherit),
                    stay: flags & 2 != 0,
                })
            }
            2 => Self::Extend(Deadline { stop_at: Instant::from_nanos(first), kill_at: Instant::from_nanos(second) }),
            3 => Self::Stop(Instant::from_nanos(first)),
            4 => Self::Forward { signal: narrow(first), sender: narrow(second), read_at: Instant::from_nanos(third) },
            5 => Self::Suspend,
            _ => return None,
        })
    }
}

impl Notice {
    /// Encodes the notice.
    #[must_use]
    pub(crate) fn encode(&self) -> Packet {
        match *self {
            Self::Ready => packet(1, &[]),
            Self::Unfit(code) => packet(2, &[code]),
            Self::Spawned(pid) => packet(3, &[wide(pid)]),
            Self::NotSpawned(errno) => packet(4, &[wide(errno)]),
            Self::TooLate => packet(5, &[]),
            Self::Exited { status, exec_errno, stopping } => {
                packet(6, &[wide(status), wide(exec_errno), u64::from(stopping)])
            }
            Self::Suspended => packet(7, &[]),
            Self::Deadline => packet(8, &[]),
            Self::Unkillable(pid) => packet(9, &[wide(pid)]),
            Self::Gone => packet(10, &[]),
            Self::Covering => packet(11, &[]),
            Self::Killing => packet(12, &[]),
            Self::Throttled(earlier) => packet(13, &[millis(earlier)]),
        }
    }

    /// Decodes a notice; `None` for a packet that no guard sends.
    #[must_use]
    pub(crate) fn decode(packet: &Packet) -> Option<Self> {
        let [tag, a, b, c, ..] = words(packet);
        Some(match tag {
            1 => Self::Ready,
            2 => Self::Unfit(a),
            3 => Self::Spawned(narrow(a)),
            4 => Self::NotSpawned(narrow(a)),
            5 => Self::TooLate,
            6 => Self::Exited { status: narrow(a), exec_errno: narrow(b), stopping: c != 0 },
            7 => Self::Suspended,
            8 => Self::Deadline,
            9 => Self::Unkillable(narrow(a)),
            10 => Self::Gone,
            11 => Self::Covering,
            12 => Self::Killing,
            13 => Self::Throttled(Duration::from_millis(a)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::property::holds;

    /// Random packets, with the extreme values of each kind of field.
    fn packets() -> impl Strategy<Value = Packet> {
        let word = prop_oneof![
            any::<u64>(),
            0..12_u64,
            select(vec![u64::MAX, u64::MAX - 1, 1 << 63, u64::from(u32::MAX), 1 << 32, 1 << 53]),
        ];
        (0..15_u64, vec(word, WORDS - 1)).prop_map(|(tag, words)| packet(tag, &words))
    }

    #[test]
    fn whatever_comes_is_understood_in_one_way_or_not_at_all() {
        holds(3000, packets(), |packet| {
            let [tag, ..] = words(&packet);
            let (order, notice) = (Order::decode(&packet), Notice::decode(&packet));
            prop_assert_eq!(order.is_some(), (1..=5).contains(&tag));
            prop_assert_eq!(notice.is_some(), (1..=13).contains(&tag));
            // What was decoded is the same when it is encoded and decoded again.
            prop_assert_eq!(order.and_then(|order| Order::decode(&order.encode())), order);
            prop_assert_eq!(notice.and_then(|notice| Notice::decode(&notice.encode())), notice);
            Ok(())
        });
    }

    #[test]
    fn a_deadline_arrives_to_the_nanosecond_and_a_grace_never_longer_than_it_was() {
        let instant = || any::<u64>().prop_map(Instant::from_nanos);
        // Ten years are the longest that can be asked for.
        let length = || (0..315_576_000_u64, 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos));
        let given = (vec(any::<u64>(), 0..=MOST_LOCKS), instant(), instant(), length(), length());
        holds(1000, (given, any::<[bool; 4]>(), any::<[i32; 2]>()), |(given, flags, [one, other])| {
            let (tokens, stop_at, kill_at, ttl, kill_after) = given;
            let [outlives, inherits, stay, leased] = flags;
            let (tokens, inherit) = (Tokens::new(&tokens), if inherits { tokens.len() } else { 0 });
            let lease = (leased && stop_at.as_nanos() != NONE).then_some(Deadline { stop_at, kill_at });
            let slot = stay.then_some(one.unsigned_abs());
            let spawn = Spawn { tokens, slot, ttl: Some(ttl), lease, kill_after, outlives, inherit, stay };
            let Some(Order::Spawn(read)) = Order::decode(&Order::Spawn(spawn).encode()) else {
                return Err(TestCaseError::fail("another order"));
            };
            prop_assert_eq!(Spawn { ttl: read.ttl, kill_after: read.kill_after, ..spawn }, read);
            for (sent, read) in [(kill_after, read.kill_after), (ttl, read.ttl.unwrap_or_default())] {
                prop_assert!(read <= sent && sent.abs_diff(read) < Duration::from_millis(1));
            }
            let deadline = Deadline { stop_at, kill_at };
            let forward = Order::Forward { signal: one, sender: other, read_at: stop_at };
            for order in [Order::Extend(deadline), Order::Stop(kill_at), forward] {
                prop_assert_eq!(Order::decode(&order.encode()), Some(order));
            }
            let exited = Notice::Exited { status: one, exec_errno: other, stopping: flags[0] };
            for notice in [exited, Notice::Spawned(one), Notice::NotSpawned(one), Notice::Unkillable(one)] {
                prop_assert_eq!(Notice::decode(&notice.encode()), Some(notice));
            }
            Ok(())
        });
    }

    #[test]
    fn orders_survive_the_journey() {
        let deadline = Deadline { stop_at: Instant::from_nanos(7), kill_at: Instant::from_nanos(9) };
        let spawn = Spawn {
            tokens: Tokens::new(&[1 << 52, 7]),
            slot: Some(999),
            ttl: Some(Duration::from_millis(1500)),
            lease: Some(deadline),
            kill_after: Duration::from_secs(5),
            outlives: false,
            inherit: 2,
            stay: false,
        };
        for order in [
            Order::Spawn(spawn),
            Order::Spawn(Spawn {
                slot: None,
                ttl: None,
                lease: None,
                outlives: true,
                inherit: 0,
                stay: true,
                tokens: Tokens::new(&[u64::MAX; MOST_LOCKS + 1]),
                ..spawn
            }),
            Order::Extend(deadline),
            Order::Stop(Instant::from_nanos(11)),
            Order::Forward { signal: 15, sender: 4711, read_at: Instant::from_nanos(13) },
            Order::Suspend,
        ] {
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        assert_eq!(Order::decode(&[0xff; LENGTH]), None);
    }

    #[test]
    fn notices_survive_the_journey() {
        for notice in [
            Notice::Ready,
            Notice::Unfit(1),
            Notice::Spawned(-1),
            Notice::NotSpawned(11),
            Notice::TooLate,
            Notice::Exited { status: 0xff00, exec_errno: 2, stopping: true },
            Notice::Suspended,
            Notice::Deadline,
            Notice::Unkillable(3),
            Notice::Gone,
            Notice::Covering,
            Notice::Killing,
            Notice::Throttled(Duration::from_millis(1500)),
        ] {
            assert_eq!(Notice::decode(&notice.encode()), Some(notice));
        }
        assert_eq!(Notice::decode(&[0xff; LENGTH]), None);
    }
}
