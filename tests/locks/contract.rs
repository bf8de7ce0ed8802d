/*!
What the words of the contract mean: one suite for every backend, and one line per backend at its end. For other ways to the
same backend, such as TLS, it is a shorter one.

Nothing here knows which backend it runs on. What only one backend promises is tested in the files named after
behaviours.
*/

mod ending;
mod holding;
mod queueing;
mod refusing;

use crate::support::database_services::{
    MysqlService, MysqlTlsService, PostgresService, PostgresTlsService, SocketService,
};
use crate::support::mysql::MariaDb;
use crate::support::postgres::PostgreSql;
use crate::support::redis_services::{
    RedissService, Redlock3, Redlock5, RedlocksService, ReplicasService, SentinelService, UnixService,
};
use crate::support::service::{
    EtcdClusterService, EtcdService, EtcdTlsService, FileService, RedisService, Service, ZooKeeperEnsembleService,
    ZooKeeperService, ZooKeeperTlsService,
};

/// Names tests, file by file, and defines the macro that runs them on one backend. A test that is missing here is dead
/// code, which the compiler reports.
macro_rules! contract {
    (#[$when:meta] $holds_on:ident: $($part:ident { $($test:ident)* })*) => {
        macro_rules! $holds_on {
            ($backend:ident: $service:ty) => {
                mod $backend {
                    #[allow(unused_imports)]
                    use super::*;
                    $($(#[$when] #[test] fn $test() { super::$part::$test(&<$service>::fresh()) })*)*
                }
            };
        }
    };
}

contract! {
    #[cfg(test)]
    holds_on:
    refusing {
        a_second_run_is_refused_in_one_line_that_says_who_holds_it
        a_wait_that_runs_out_is_a_refusal
    }
    queueing {
        who_waits_gets_the_lock_when_it_is_free
        many_contenders_never_overlap
        waiters_are_served_in_the_order_in_which_they_came
        a_dead_waiter_delays_the_others_by_less_than_a_ttl
        a_signal_ends_the_wait_at_once
    }
    holding {
        tokens_strictly_rise
        the_command_is_told_about_its_lock
        different_keys_do_not_exclude_each_other
        odd_keys_exclude_themselves_and_nobody_else
    }
    ending {
        the_lock_is_free_after_every_end_of_the_command
        nothing_is_left_behind
    }
}

// What no service can break, on one that has leases and one that has none.
contract! {
    #[cfg(test)]
    means:
    refusing {
        the_conflict_code_is_the_users_choice
        a_refusal_is_silent_with_q
        a_wait_of_0_does_not_wait
        flags_beat_the_environment_across_wait_and_nonblock
    }
    holding {
        a_string_is_run_by_the_shell
    }
    ending {
        verbose_says_when_it_is_acquired_and_released
        leftovers_are_left_alone_by_default
        leftovers_can_be_waited_for
        leftovers_that_are_waited_for_can_be_stopped
        leftovers_can_be_killed
        max_run_ends_the_command
        max_run_ends_all_that_the_command_started
    }
}

// What another way to the same servers, or another number of them, could break.
contract! {
    #[ignore = "a variant: tests/run all"]
    varies_with:
    refusing {
        a_second_run_is_refused_in_one_line_that_says_who_holds_it
        a_wait_that_runs_out_is_a_refusal
    }
    queueing {
        who_waits_gets_the_lock_when_it_is_free
        many_contenders_never_overlap
        waiters_are_served_in_the_order_in_which_they_came
        a_dead_waiter_delays_the_others_by_less_than_a_ttl
    }
    holding {
        tokens_strictly_rise
        the_command_is_told_about_its_lock
        odd_keys_exclude_themselves_and_nobody_else
    }
    ending {
        the_lock_is_free_after_every_end_of_the_command
        nothing_is_left_behind
    }
}

holds_on!(file: FileService);

means!(words_on_file: FileService);

holds_on!(redis: RedisService);

means!(words_on_redis: RedisService);

varies_with!(redis_socket: UnixService);

varies_with!(redis_tls: RedissService);

varies_with!(redis_replicas: ReplicasService);

varies_with!(redis_sentinel: SentinelService);

holds_on!(etcd: EtcdService);

varies_with!(etcd_cluster: EtcdClusterService);

varies_with!(etcd_tls: EtcdTlsService);

holds_on!(zookeeper: ZooKeeperService);

varies_with!(zookeeper_ensemble: ZooKeeperEnsembleService);

varies_with!(zookeeper_tls: ZooKeeperTlsService);

holds_on!(postgres: PostgresService);

varies_with!(postgres_socket: SocketService<PostgreSql>);

varies_with!(postgres_tls: PostgresTlsService);

holds_on!(mysql: MysqlService);

varies_with!(mysql_socket: SocketService<MariaDb>);

varies_with!(mysql_tls: MysqlTlsService);

holds_on!(redlock_3: Redlock3);

varies_with!(redlock_5: Redlock5);

varies_with!(redlock_tls: RedlocksService);
