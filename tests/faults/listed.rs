//! All faults: what each is called, and on which services it is tried.

use super::episode::Episode;
use super::faults::{
    breaks, clocks, crowds, failover, files, group, kept, leftovers, limits, lock_delay, meetings, min_hold, mixed,
    multitude, neighbours, nested, network, partitions, process, redis, servers, signals, storms, tampering, terminal,
    together, under, unseen,
};
use super::matrix::{Class, Fault, Needs};
use super::world::Column;
use Class::{Documented, Safe};
use Column::{Etcd, File, Mysql, Postgres, Redis, Redlock, Redlock3, Sentinel, ZooKeeper};

const EVERYWHERE: &[(Column, Class)] =
    &[(File, Safe), (Redis, Safe), (Redlock, Safe), (Etcd, Safe), (ZooKeeper, Safe), (Postgres, Safe), (Mysql, Safe)];
const SERVERS: &[(Column, Class)] =
    &[(Redis, Safe), (Redlock, Safe), (Etcd, Safe), (ZooKeeper, Safe), (Postgres, Safe), (Mysql, Safe)];
/// Where a holder can be asked to stop.
const BREAKABLE: &[(Column, Class)] = &[
    (File, Safe),
    (Redis, Safe),
    (Sentinel, Safe),
    (Redlock, Safe),
    (Etcd, Safe),
    (ZooKeeper, Safe),
    (Postgres, Safe),
    (Mysql, Safe),
];
/// Where commands run under handles.
const HANDLES: &[(Column, Class)] =
    &[(Redis, Safe), (Sentinel, Safe), (Redlock, Safe), (Etcd, Safe), (Postgres, Safe), (Mysql, Safe)];
const REDIS: &[(Column, Class)] = &[(Redis, Safe), (Redlock, Safe)];
const MAJORITIES: &[(Column, Class)] = &[(Redlock, Safe), (Etcd, Safe), (ZooKeeper, Safe)];

const fn fault(
    name: &'static str,
    title: &'static str,
    cells: &'static [(Column, Class)],
    run: fn(&mut Episode<'_>),
) -> Fault {
    Fault { name, title, cells, needs: Needs::Nothing, run }
}

const fn parted(name: &'static str, title: &'static str, run: fn(&mut Episode<'_>)) -> Fault {
    Fault { needs: Needs::Islands, ..fault(name, title, &[(Etcd, Safe), (ZooKeeper, Safe)], run) }
}

const fn heavy(
    name: &'static str,
    title: &'static str,
    cells: &'static [(Column, Class)],
    run: fn(&mut Episode<'_>),
) -> Fault {
    Fault { needs: Needs::Machine, ..fault(name, title, cells, run) }
}

/// All rows of the matrix.
pub static FAULTS: &[Fault] = &[
    fault("none", "nothing goes wrong", EVERYWHERE, process::none),
    fault("dlock-killed", "kill -9 dlock", EVERYWHERE, process::dlock_killed),
    fault("dlock-frozen", "SIGSTOP dlock for 3 ttl, then CONT", EVERYWHERE, process::dlock_frozen),
    fault(
        "asked",
        "dlock break, by one or two at once, of a dlock that may be frozen for a moment",
        BREAKABLE,
        breaks::asked,
    ),
    fault(
        "kept",
        "a process for which a keeper holds the lock killed or asked to stop, the keeper or the servers frozen",
        EVERYWHERE,
        kept::kept,
    ),
    fault(
        "kept-runs",
        "a run under the handle of a lock whose process ends, is killed or cancelled by `timeout -k`, or that is asked for",
        HANDLES,
        under::kept,
    ),
    fault(
        "released-early",
        "`dlock release` of a handle while what is left of a killed run still stops its command",
        HANDLES,
        under::released,
    ),
    fault("guard-killed", "kill -9 the guard", EVERYWHERE, process::guard_killed),
    fault("guard-frozen", "SIGSTOP the guard", EVERYWHERE, process::guard_frozen),
    fault(
        "all-frozen",
        "SIGSTOP dlock, guard and command together",
        &[
            (File, Safe),
            (Redis, Documented),
            (Redlock, Documented),
            (Etcd, Documented),
            (ZooKeeper, Documented),
            (Postgres, Documented),
            (Mysql, Documented),
        ],
        process::all_frozen,
    ),
    fault("command-killed", "kill -9 the command", EVERYWHERE, process::command_killed),
    fault("command-stubborn", "a command that ignores TERM and double-forks", EVERYWHERE, process::command_stubborn),
    fault(
        "command-ended",
        "the command ends by a signal and its children live on",
        EVERYWHERE,
        leftovers::ended_by_a_signal,
    ),
    fault("group-hit", "SIGKILL or SIGSTOP to the caller's whole process group", EVERYWHERE, group::hit),
    fault("covered-run", "a nested run of the same key left in the background", EVERYWHERE, leftovers::covered_run),
    Fault {
        needs: Needs::Minutes,
        ..fault(
            "nested-1000",
            "1,000 nested runs of one lock beside each other, and 100 deep",
            EVERYWHERE,
            nested::thousand,
        )
    },
    fault(
        "inherited-variables",
        "variables of an outer run meet an inner one with another key",
        EVERYWHERE,
        nested::inherited_variables,
    ),
    heavy(
        "fork-storm",
        "a fork storm or thousands of processes below the guard, and silent servers",
        SERVERS,
        storms::silent,
    ),
    heavy("cpu-quota", "a CPU quota that busy processes use up, and silent servers", SERVERS, storms::throttled),
    fault(
        "unseen",
        "`/proc` of another PID namespace; processes that cannot be listed, the guard killed then",
        EVERYWHERE,
        unseen::unseen,
    ),
    heavy(
        "two-at-once",
        "two at once: the guard killed and no descriptors; a fork storm and silent servers or no guard",
        EVERYWHERE,
        unseen::two_at_once,
    ),
    fault("waiter-killed", "kill -9 one who waits", EVERYWHERE, process::waiter_killed),
    fault("one-of-several", "one of several holders killed or frozen", EVERYWHERE, together::one_of_several),
    fault("min-hold", "the holder ends or is killed before its `--min-hold` is over", EVERYWHERE, min_hold::kept),
    fault(
        "lock-delay",
        "kill -9 dlock, whose lock is to stay taken for `--lock-delay` after its lease",
        &[(Redis, Safe), (Redlock, Safe), (Etcd, Safe), (Postgres, Safe), (Mysql, Safe)],
        lock_delay::kept,
    ),
    fault(
        "party-lost",
        "a party at a `barrier` killed or frozen while the last one comes",
        &[(File, Safe), (Redis, Safe), (Etcd, Safe), (ZooKeeper, Safe), (Postgres, Safe), (Mysql, Safe)],
        meetings::party_lost,
    ),
    fault(
        "names-put-down",
        "SIGSTOP servers while names are put down at a `latch`",
        EVERYWHERE,
        meetings::names_put_down,
    ),
    fault("servers-frozen", "SIGSTOP all servers for 3 ttl", SERVERS, servers::frozen),
    fault("servers-restarted", "kill -9 all servers, restart with their data", SERVERS, servers::restarted),
    fault(
        "server-emptied",
        "kill -9 one server, restart empty within a ttl",
        &[(Redis, Documented), (Redlock3, Documented), (Redlock, Safe)],
        servers::emptied,
    ),
    fault(
        "bare-majority-emptied",
        "kill -9 one server of a bare majority that has the lock, restart empty",
        &[(Redlock, Documented)],
        servers::bare_majority_emptied,
    ),
    fault("minority-killed", "a minority killed, restarted after 2 ttl", MAJORITIES, servers::minority_killed),
    fault(
        "leader-killed",
        "the leader killed, restarted after 2 ttl",
        &[(Etcd, Safe), (ZooKeeper, Safe)],
        servers::leader_killed,
    ),
    fault(
        "leader-frozen",
        "SIGSTOP the leader alone for longer than a ttl, then CONT",
        &[(Etcd, Documented), (ZooKeeper, Safe)],
        servers::leader_frozen,
    ),
    fault(
        "follower-frozen",
        "SIGSTOP one follower for longer than a ttl, then CONT",
        &[(Etcd, Safe), (ZooKeeper, Safe)],
        servers::follower_frozen,
    ),
    fault("majority-killed", "a majority killed, and healed", MAJORITIES, servers::majority_killed),
    fault("majority-frozen", "SIGSTOP a majority for 3 ttl", MAJORITIES, servers::majority_frozen),
    fault("cut-off", "packets to and from the servers dropped for 3 ttl", SERVERS, network::cut_off),
    fault("acquire-answer-lost", "acquire arrives, its answer is lost", SERVERS, network::acquire_answer_lost),
    fault("renew-answer-lost", "renewals arrive, their answers are lost", SERVERS, network::renew_answer_lost),
    fault("release-answer-lost", "release arrives, its answer is lost", SERVERS, network::release_answer_lost),
    fault("refused", "connections refused", SERVERS, network::refused),
    fault("reset", "connections reset", SERVERS, network::reset),
    fault("silent", "connections accepted and silent", SERVERS, network::silent),
    fault("late-then-silent", "answers come late, then none", SERVERS, network::late_then_silent),
    fault("drip", "answers come at one byte a second", SERVERS, network::drip),
    fault("latency", "latency 200 ± 150 ms", SERVERS, network::latency),
    fault("flapping", "one second up, one second down", SERVERS, network::flapping),
    parted("minority-apart", "a follower cut off, with some who want the lock", partitions::minority),
    parted("leader-apart", "the leader cut off, with some who want the lock", partitions::leader),
    parted("one-way-apart", "one member's packets, or those to it, vanish", partitions::one_way),
    parted("all-apart", "all members cut off from each other", partitions::all),
    parted("bridge-member", "two members see the third, and not each other", partitions::bridge),
    parted("members-flapping", "a member one second cut off, one second not", partitions::flapping),
    fault(
        "key-taken",
        "the lock's key deleted or overwritten, its lease revoked, its session closed",
        &[
            (Redis, Documented),
            (Redlock, Documented),
            (Etcd, Documented),
            (ZooKeeper, Documented),
            (Postgres, Documented),
            (Mysql, Documented),
        ],
        tampering::key_taken,
    ),
    fault(
        "foreign-in-the-way",
        "a key of another type, without expiry or binary is in the way",
        SERVERS,
        tampering::foreign_in_the_way,
    ),
    Fault {
        needs: Needs::Own,
        ..fault(
            "neighbour",
            "others in the same database make what is named like tables, functions and operators that are used",
            &[(Postgres, Safe), (Mysql, Safe)],
            neighbours::neighbour,
        )
    },
    fault("script-flush", "SCRIPT FLUSH, again and again", REDIS, redis::script_flush),
    fault("client-kill", "CLIENT KILL, again and again", REDIS, redis::client_kill),
    fault("readonly", "READONLY or NOREPLICAS, for a moment or for longer than a ttl", REDIS, redis::readonly),
    fault("loading", "LOADING, for a moment or for longer than a ttl", REDIS, redis::loading),
    fault("full", "maxclients reached, for a moment or for longer than a ttl", REDIS, redis::full),
    fault("oom", "OOM, also when the lock is given back", REDIS, redis::oom),
    fault("misconf", "MISCONF, for a moment or for longer than a ttl", REDIS, redis::misconf),
    fault("eviction", "maxmemory evicts the lock", &[(Redis, Documented), (Redlock, Documented)], redis::eviction),
    fault(
        "failover",
        "failover by sentinels, the lock not yet replicated",
        &[(Sentinel, Documented)],
        failover::without_the_lock,
    ),
    fault(
        "failover-asked",
        "failover by sentinels while dlock break asks the holder",
        &[(Sentinel, Safe)],
        breaks::asked_in_a_failover,
    ),
    fault(
        "failover-replicated",
        "failover by sentinels, the lock replicated",
        &[(Sentinel, Safe)],
        failover::with_the_lock,
    ),
    Fault {
        needs: Needs::Clocks,
        ..fault(
            "server-clock-forward",
            "a server's clock set forward by an hour",
            &[(Redis, Documented), (Redlock, Safe), (ZooKeeper, Safe), (Postgres, Documented), (Mysql, Documented)],
            clocks::server_forward,
        )
    },
    Fault {
        needs: Needs::Clocks,
        ..fault(
            "server-clock-back",
            "a server's clock set back by an hour",
            &[(Redis, Safe), (Redlock, Safe), (ZooKeeper, Safe), (Postgres, Safe), (Mysql, Safe)],
            clocks::server_back,
        )
    },
    Fault {
        needs: Needs::Clocks,
        ..fault(
            "server-clock-rate",
            "servers' clocks fast or slow by 8.3 %, then silence",
            &[(Redis, Safe), (Redlock, Safe), (ZooKeeper, Safe), (Postgres, Safe), (Mysql, Safe)],
            clocks::server_rate,
        )
    },
    fault(
        "client-clock-rate",
        "the clock of dlock's host slewed by 8.3 %, then silence or SIGSTOP dlock",
        SERVERS,
        clocks::client_rate,
    ),
    Fault {
        needs: Needs::Clocks,
        ..fault(
            "replica-clock-ahead",
            "failover by sentinels to a replica whose clock is 3 s ahead",
            &[(Sentinel, Documented)],
            clocks::replica_ahead,
        )
    },
    // Its tokens are ahead of the clock: with the lock file, which the next fault may remove, that would be forgotten.
    Fault {
        needs: Needs::Own,
        ..fault("client-clock", "the clock of dlock's host jumps by an hour", EVERYWHERE, clocks::client)
    },
    fault("group-signal", "a signal to the whole group", EVERYWHERE, signals::to_the_group),
    fault("signal-storm-release", "INT, TERM and HUP during the release", EVERYWHERE, signals::storm_at_release),
    fault("signal-storm-acquire", "INT, TERM and HUP during the acquire", EVERYWHERE, signals::storm_at_acquire),
    fault("terminal-closed", "HUP of a closed terminal", EVERYWHERE, terminal::terminal_closed),
    fault("broken-pipe", "EPIPE: nobody reads what dlock says", EVERYWHERE, terminal::broken_pipe),
    heavy("contenders-500", "500 contenders on one key", EVERYWHERE, crowds::contenders),
    Fault {
        needs: Needs::Minutes,
        ..fault(
            "crowd-2500",
            "2,500 contenders on one key",
            &[(Redis, Safe), (Etcd, Safe), (ZooKeeper, Safe)],
            multitude::waits_and_is_served,
        )
    },
    // Every lock that is held takes a connection, of which a database has few.
    heavy(
        "keys-500",
        "500 keys at once",
        &[(File, Safe), (Redis, Safe), (Redlock, Safe), (Etcd, Safe), (ZooKeeper, Safe)],
        crowds::keys,
    ),
    fault("queue-churn", "contenders come and go, give up and are killed", EVERYWHERE, crowds::churn),
    fault("lock-file-removed", "the lock file removed or replaced while held", &[(File, Documented)], files::removed),
    fault("planted", "something else planted at the lock file's path", &[(File, Safe)], files::planted),
    fault("exhausted", "no descriptors, no processes, no room for messages", EVERYWHERE, limits::exhausted),
    fault("mixed", "several of these at random, for eight seconds", EVERYWHERE, mixed::mixed),
];
