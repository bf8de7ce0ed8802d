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
    ($holds_on:ident: $($part:ident { $($test:ident)* })*) => {
        macro_rules! $holds_on {
            ($backend:ident: $service:ty) => {
                mod $backend {
                    #[allow(unused_imports)]
                    use super::*;
                    $($(#[test] fn $test() { super::$part::$test(&<$service>::fresh()) })*)*
                }
            };
        }
    };
}

contract! {
    holds_on:
    refusing {
        a_second_run_is_refused_in_one_line_that_says_who_holds_it
        the_conflict_code_is_the_users_choice
        a_refusal_is_silent_with_q
        a_wait_that_runs_out_is_a_refusal
        a_wait_of_0_does_not_wait
        flags_beat_the_environment_across_wait_and_nonblock
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
        a_string_is_run_by_the_shell
        odd_keys_exclude_themselves_and_nobody_else
    }
    ending {
        the_lock_is_free_after_every_end_of_the_command
        verbose_says_when_it_is_acquired_and_released
        nothing_is_left_behind
        leftovers_are_left_alone_by_default
        leftovers_can_be_waited_for
        leftovers_can_be_killed
        max_run_ends_the_command
        max_run_ends_all_that_the_command_started
    }
}

// What another way to the same servers, or another number of them, could break.
contract! {
    holds_by:
    refusing {
        a_second_run_is_refused_in_one_line_that_says_who_holds_it
        a_wait_that_runs_out_is_a_refusal
    }
    queueing {
        who_waits_gets_the_lock_when_it_is_free
        many_contenders_never_overlap
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

holds_on!(redis: RedisService);

holds_by!(redis_socket: UnixService);

holds_by!(redis_tls: RedissService);

holds_by!(redis_replicas: ReplicasService);

holds_on!(redis_sentinel: SentinelService);

holds_on!(etcd: EtcdService);

holds_on!(etcd_cluster: EtcdClusterService);

holds_by!(etcd_tls: EtcdTlsService);

holds_on!(zookeeper: ZooKeeperService);

holds_on!(zookeeper_ensemble: ZooKeeperEnsembleService);

holds_by!(zookeeper_tls: ZooKeeperTlsService);

holds_on!(postgres: PostgresService);

holds_by!(postgres_socket: SocketService<PostgreSql>);

holds_by!(postgres_tls: PostgresTlsService);

holds_on!(mysql: MysqlService);

holds_by!(mysql_socket: SocketService<MariaDb>);

holds_by!(mysql_tls: MysqlTlsService);

holds_on!(redlock_3: Redlock3);

holds_by!(redlock_5: Redlock5);

holds_by!(redlock_tls: RedlocksService);
