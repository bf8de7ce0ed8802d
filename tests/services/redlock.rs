/*!
What only a majority of independent redis servers has: which servers count, what a minority may do, when a majority is
lost, what failed attempts leave behind, and tokens from independent counters.
*/

mod groups;

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::services::redis::counters::micros_ahead;
use crate::support::dlock::DLOCK;
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis_services::Redlock3;
use crate::support::redis_sets::{RedisGroup, RedisReplicas};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::scene::assert_in_time;
use crate::support::scratch::Scratch;
use crate::support::servers::{Monitor, Redis, runs_script};
use crate::support::service::{Gated, Service};
use crate::support::tree::Tree;

/// The key of the lock `job`.
const KEY: &str = "dlock:job";
/// The key of its fencing counter.
const FENCE: &str = "{dlock:job}\u{1}fence";

fn urls(ports: impl IntoIterator<Item = u16>) -> String {
    let places: Vec<String> = ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redlock://{}", places.join(","))
}

/// A proxy in front of each server.
fn proxies(service: &Redlock3) -> Vec<Proxy> {
    service.servers.iter().map(|redis| Proxy::to(redis.port())).collect()
}

fn set_all(proxies: &[Proxy], mode: Mode) {
    for proxy in proxies {
        proxy.set(mode);
    }
}

/// The number of servers on which the lock is held.
fn votes(servers: &RedisGroup) -> usize {
    servers.running().filter(|redis| redis.get(KEY).is_some()).count()
}

/// The scripts that clients ran at a server, by the number of their keys: 6 for a request for a vote, 7 for a release.
fn scripts(monitor: &Monitor) -> Vec<String> {
    monitor.scripts().into_iter().map(|words| words[2].clone()).collect()
}

/// Runs the command that prints its token.
fn token(service: &Redlock3) -> u64 {
    let outcome = service.run("job").shell("echo $DLOCK_TOKEN").output();
    outcome.success().stdout().trim_end().parse().unwrap()
}

mod who_counts {
    use super::*;

    #[test]
    fn two_names_for_one_server_are_refused() {
        let (scratch, servers) = (Scratch::new(), RedisGroup::start(2));
        let [one, other] = [servers[0].port(), servers[1].port()];
        for places in [
            format!("127.0.0.1:{one},localhost:{one},127.0.0.1:{other}"),
            format!("127.0.0.1:{other},127.0.0.1:{one},localhost:{one}"),
        ] {
            let dlock = scratch.dlock().run("job").backend(format!("redlock://{places}"));
            let refused = dlock.command(["echo", "overlap"]).output();
            refused.code(69).stdout_is("").stderr_is_one_line("are the same server");
            let line = refused.stderr();
            assert!(line.contains(&format!("127.0.0.1:{one} and redlock://localhost:{one}")), "{line:?}");
            assert_eq!(votes(&servers), 0);
        }
    }

    #[test]
    fn a_replica_has_no_vote() {
        let (scratch, set, other) = (Scratch::new(), RedisReplicas::start(1), Redis::start());
        for replica in [&set[1], &set[0]] {
            let url = urls([replica.port(), other.port(), Redis::start().port()]);
            let outcome = scratch.dlock().run("job").backend(url).command(["echo", "run"]).output();
            if replica.port() == set[0].port() {
                // Nothing is wrong with its master; the third server is gone.
                outcome.success().stdout_is("run\n");
            } else {
                outcome.code(69).stdout_is("").stderr_is_one_line("is a replica");
                assert!(outcome.stderr().contains(&replica.port().to_string()), "{outcome:?}");
            }
            assert_eq!((set[0].get(KEY), other.get(KEY)), (None, None));
        }
    }

    #[test]
    fn an_even_number_is_warned_about() {
        let (scratch, servers) = (Scratch::new(), RedisGroup::start(2));
        let outcome = scratch.dlock().run("job").backend(servers.url()).command(["echo", "run"]).output();
        outcome.code(0).stdout_is("run\n").stderr_is_one_line("use an odd number of them");
    }

    #[test]
    fn strict_fencing_wants_every_server_to_sync_always() {
        let (scratch, lasting) = (Scratch::new(), ["--appendonly", "yes", "--appendfsync", "always"]);
        let servers = RedisGroup::with(3, lasting);
        let strict = || scratch.dlock().run("job").backend(servers.url()).arg("--strict-fencing");
        strict().command(["true"]).output().success();
        for (server, setting, value) in
            [(0, "appendfsync", "everysec"), (1, "appendonly", "no"), (2, "appendfsync", "no")]
        {
            let before = servers[server].cli(&["CONFIG", "GET", setting]).lines().nth(1).unwrap().to_owned();
            servers[server].cli(&["CONFIG", "SET", setting, value]);
            let monitors: Vec<_> = servers.iter().map(Redis::monitor).collect();
            let refused = strict().command(["echo", "run"]).output();
            refused.code(69).stdout_is("").stderr_is_one_line(&format!("its {setting} is {value} and not"));
            assert!(refused.stderr().contains(&servers[server].port().to_string()), "{refused:?}");
            assert!(monitors.iter().all(|monitor| scripts(monitor).is_empty()), "something was asked for");
            drop(monitors);
            // Without the option, this is no reason to refuse.
            scratch.dlock().run("job").backend(servers.url()).command(["true"]).output().success();
            servers[server].cli(&["CONFIG", "SET", setting, &before]);
        }
        // A server that does not say counts as one that does not keep its counter.
        servers[1].cli(&["ACL", "SETUSER", "default", "-config"]);
        let refused = strict().command(["echo", "run"]).output();
        refused.code(69).stdout_is("").stderr_is_one_line("may forget its counter");
    }

    #[test]
    fn a_majority_that_refuses_the_credentials_is_77_and_a_minority_a_warning() {
        let (scratch, servers) = (Scratch::new(), RedisGroup::start(3));
        let run = || scratch.dlock().run("job").backend(servers.url()).command(["echo", "run"]);
        servers[1].cli(&["ACL", "SETUSER", "default", "-eval"]);
        let outcome = run().output();
        outcome.code(0).stdout_is("run\n").stderr_is_one_line("one server less: ");
        assert!(
            outcome.stderr().contains(&format!("{}: the user default lacks rights", servers[1].port())),
            "{outcome:?}"
        );
        servers[2].cli(&["ACL", "SETUSER", "default", "-eval"]);
        run().output().code(77).stdout_is("").stderr_is_one_line("the user default lacks rights");
        assert_eq!(votes(&servers), 0);
    }

    #[test]
    fn users_who_may_not_listen_or_tell_lock_as_before() {
        let (scratch, servers) = (Scratch::new(), RedisGroup::start(3));
        for redis in servers.iter() {
            redis.cli(&["ACL", "SETUSER", "default", "-blpop", "-lpush"]);
        }
        let run = || scratch.dlock().run("job").backend(servers.url());
        let holder = Gated::spawn(&scratch, run());
        holder.wait_held();
        let waiter = Gated::spawn(&scratch, run());
        waiter.running.wait_stderr("waiting for 'job'");
        holder.let_go().success().quiet();
        waiter.wait_held();
        assert!(!waiter.let_go().code(0).stderr().contains("rights"));
        assert_eq!(votes(&servers), 0);
    }
}

mod a_minority {
    use super::*;

    #[test]
    fn that_is_silent_keeps_nobody_waiting() {
        let service = Redlock3::fresh();
        service.servers[1].stop();
        // At the default ttl, a server has a second for every answer.
        let outcome = service.run("job").command(["echo", "run"]).output();
        outcome.success().stdout_is("run\n");
        assert!(outcome.elapsed() < Duration::from_secs(1), "{outcome:?}");
        // What was sent to it while it was frozen leaves nothing behind either.
        service.run("job").arg("-n").command(["true"]).output().success();
        let holder = service.hold("job");
        service.run("job").args(["-n", "-q"]).command(["true"]).output().code(75);
        service.run("job").args(["-w", "0.3", "-q"]).command(["true"]).output().code(75);
        holder.let_go().success();
        service.servers[1].cont();
        assert_eq!(votes(&service.servers), 0);
    }

    #[test]
    fn that_was_silent_joins_as_soon_as_it_can() {
        let service = Redlock3::fresh();
        service.servers[2].stop();
        let holder = service.hold("job");
        service.servers[2].cont();
        let value = eventually("the late server's vote", || service.servers[2].get(KEY));
        assert_eq!(Some(value), service.servers[0].get(KEY));
        holder.let_go().success();
        assert_eq!(votes(&service.servers), 0);
    }

    #[test]
    fn that_was_dead_joins_after_a_renewal_and_learns_the_token() {
        let service = Redlock3::fresh();
        service.servers[2].kill();
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "2s"]));
        holder.wait_held();
        service.servers[2].restart();
        let value = eventually("the late server's vote", || service.servers[2].get(KEY));
        assert_eq!(Some(value), service.servers[0].get(KEY));
        assert_eq!(service.servers[2].get(FENCE), service.servers[0].get(FENCE));
        // Its vote counts from now on: the lock survives the loss of another server.
        service.servers[0].kill();
        for _ in 0..2 {
            service.servers[2].monitor().wait_renewed(KEY);
        }
        holder.let_go().success();
        assert_eq!(votes(&service.servers), 0);
    }

    #[test]
    fn that_lost_its_vote_never_gets_it_again() {
        let service = Redlock3::fresh();
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "1s"]));
        holder.wait_held();
        let monitor = service.servers[0].monitor();
        service.servers[1].cli(&["DEL", KEY]);
        for _ in 0..3 {
            monitor.wait_renewed(KEY);
            assert_eq!(service.servers[1].get(KEY), None, "a renewal made the key again");
        }
        service.assert_held("job");
        holder.let_go().success();
    }

    #[test]
    fn that_restarts_empty_changes_nothing() {
        let service = Redlock3::fresh();
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "1s"]));
        holder.wait_held();
        service.servers[1].restart();
        let monitor = service.servers[0].monitor();
        for _ in 0..3 {
            monitor.wait_renewed(KEY);
            assert_eq!(service.servers[1].get(KEY), None, "a renewal made the key again");
        }
        service.assert_held("job");
        holder.let_go().success();
    }

    #[test]
    fn that_others_hold_is_left_to_them() {
        let service = Redlock3::fresh();
        for (server, value) in [(0, "SET"), (1, "HSET")] {
            let foreign: &[&str] = if value == "SET" { &["SET", KEY, "theirs"] } else { &["HSET", KEY, "a", "b"] };
            service.servers[server].cli(foreign);
            service.run("job").arg("-n").command(["echo", "run"]).output().success().stdout_is("run\n");
            assert_eq!(service.servers[server].cli(&["EXISTS", KEY]), "1");
            service.servers[server].cli(&["DEL", KEY]);
        }
    }

    #[test]
    fn that_others_took_is_left_to_them() {
        let service = Redlock3::fresh();
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "1s"]));
        holder.wait_held();
        service.servers[1].cli(&["SET", KEY, "theirs"]);
        service.servers[0].monitor().wait_renewed(KEY);
        holder.let_go().success();
        assert_eq!(service.servers.iter().filter_map(|redis| redis.get(KEY)).collect::<Vec<_>>(), ["theirs"]);
        assert_eq!(service.servers[1].pttl(KEY), -1);
    }
}

mod a_majority {
    use super::*;

    /// Holds the lock with a stubborn tree of processes, does `harm` right after a renewal, and asserts that the tree
    /// is dead before the leases on a majority of the servers can end.
    fn assert_dies_in_time(service: &Redlock3, url: &str, harm: impl FnOnce(), why: &str) {
        let mut tree = Tree::new(service.scratch());
        let dlock = service.scratch().dlock().run("job").backend(url).args(["-t", "1s"]);
        let holder = dlock.shell(tree.work()).lifeline(tree.end()).spawn();
        tree.wait_grown();
        // All in one round, and the next one is some time away: these expiries still hold when the harm is done.
        let mut expiries = eventually("a renewal everywhere", || {
            let expiries: Vec<_> = service.servers.iter().filter_map(|redis| redis.expiry(KEY)).collect();
            let soon = boottime() + Duration::from_millis(850);
            (expiries.len() == 3 && expiries.iter().all(|&expiry| expiry > soon)).then_some(expiries)
        });
        harm();
        expiries.sort_unstable();
        // When the second of three leases has ended, another client can get a majority.
        assert_in_time(tree.died_at(), expiries[1]);
        holder.wait().code(79).stderr_is_one_line(why);
    }

    #[test]
    fn that_is_frozen_is_survived_by_no_command() {
        let service = Redlock3::fresh();
        let harm = || service.servers[1..].iter().for_each(Redis::stop);
        assert_dies_in_time(&service, &service.url(), harm, "not answer");
        service.servers[1..].iter().for_each(Redis::cont);
        service.assert_free("job");
    }

    #[test]
    fn that_answers_late_has_given_the_lock_back() {
        let service = Redlock3::fresh();
        let proxies = proxies(&service);
        let url = urls(proxies.iter().map(Proxy::port));
        let acquired = service.scratch().dlock().args(["acquire", "-k", "job", "-t", "10s", "-b", &url]).output();
        let handle = acquired.success().stdout().trim_end().to_owned();
        set_all(&proxies, Mode::Silent);
        let before: Vec<_> = proxies.iter().map(|proxy| proxy.counts().unheard).collect();
        let release = service.scratch().dlock().args(["release", &handle, "--connect-timeout", "1m"]).spawn();
        // Each try has a connection of its own where the one before was not answered. All servers hear nothing of this one, and
        // all of the next.
        let is_lost = |(proxy, before): (&Proxy, &_)| proxy.counts().unheard >= before + 4;
        eventually("the loss of the fourth try", || proxies.iter().zip(&before).all(is_lost).then_some(()));
        set_all(&proxies, Mode::Forward);
        release.wait().success();
        assert_eq!(votes(&service.servers), 0);
    }

    #[test]
    fn that_is_killed_is_survived_by_no_command() {
        let service = Redlock3::fresh();
        let harm = || service.servers[1..].iter().for_each(Redis::kill);
        assert_dies_in_time(&service, &service.url(), harm, "2 of 3 servers cannot be used: could not reach");
    }

    #[test]
    fn that_is_cut_off_is_survived_by_no_command() {
        let service = Redlock3::fresh();
        let proxies = proxies(&service);
        let harm = || set_all(&proxies[..2], Mode::Hold);
        let url = urls(proxies.iter().map(Proxy::port));
        assert_dies_in_time(&service, &url, harm, "not answer");
        set_all(&proxies, Mode::Forward);
        // Whatever was still on its way must be given back.
        eventually("the lock to be free", || (votes(&service.servers) == 0).then_some(()));
    }

    #[test]
    fn that_lost_the_key_ends_the_command_at_the_next_renewal() {
        let service = Redlock3::fresh();
        let harm = || service.servers[1..].iter().for_each(|redis| drop(redis.cli(&["DEL", KEY])));
        assert_dies_in_time(&service, &service.url(), harm, "its key is gone from 2 of 3 servers");
        assert_eq!(votes(&service.servers), 0);
    }

    #[test]
    fn that_restarts_empty_ends_the_command_at_the_next_renewal() {
        let service = Redlock3::fresh();
        let harm = || service.servers[1..].iter().for_each(Redis::restart);
        assert_dies_in_time(&service, &service.url(), harm, "its key is gone from 2 of 3 servers");
    }

    #[test]
    fn whose_answers_are_late_shortens_the_lease_and_not_the_safety() {
        let service = Redlock3::fresh();
        let proxies = proxies(&service);
        set_all(&proxies, Mode::DelayReplies(Duration::from_millis(300)));
        let mut tree = Tree::new(service.scratch());
        let url = urls(proxies.iter().map(Proxy::port));
        // With this ttl a server may take 400 ms.
        let dlock = service.scratch().dlock().run("job").backend(url).args(["-t", "8s", "--kill-after", "0.1"]);
        let holder = dlock.shell(tree.work()).lifeline(tree.end()).spawn();
        tree.wait_grown();
        set_all(&proxies, Mode::DropRequests);
        let mut expiries: Vec<_> = service.servers.iter().filter_map(|redis| redis.expiry(KEY)).collect();
        expiries.sort_unstable();
        assert_in_time(tree.died_at(), expiries[1]);
        holder.wait().code(79).stderr_is_one_line("not answer");
    }

    #[test]
    fn that_cannot_be_reached_is_told_with_each_reason() {
        let service = Redlock3::fresh();
        service.servers[0].kill();
        service.servers[2].kill();
        let outcome = service.run("job").command(["echo", "run"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("no majority: 2 of 3 servers cannot be used: ");
        // They have one reason.
        assert_eq!(outcome.stderr().matches("connection refused").count(), 1, "{outcome:?}");
        for server in [0, 2] {
            let name = format!("redlock://127.0.0.1:{}", service.servers[server].port());
            assert!(outcome.stderr().contains(&name), "{outcome:?}");
        }
        assert_eq!(votes(&service.servers), 0);
    }
}

mod failed_attempts {
    use super::*;

    #[test]
    fn leave_nothing_where_they_were_granted() {
        let service = Redlock3::fresh();
        service.servers[..2].iter().for_each(|redis| drop(redis.cli(&["SET", KEY, "theirs"])));
        let outcome = service.run("job").arg("-n").command(["echo", "overlap"]).output();
        outcome.code(75).stdout_is("").stderr_is_one_line("did not get 'job': held by another program: theirs");
        assert_eq!(service.servers[2].get(KEY), None);
        assert_eq!(service.servers.iter().filter_map(|redis| redis.get(KEY)).collect::<Vec<_>>(), ["theirs"; 2]);
    }

    #[test]
    fn leave_nothing_where_their_answers_were_lost() {
        let service = Redlock3::fresh();
        service.servers[..2].iter().for_each(|redis| drop(redis.cli(&["SET", KEY, "theirs"])));
        let proxy = Proxy::to(service.servers[2].port());
        let ports = service.servers[..2].iter().map(Redis::port).chain([proxy.port()]);
        let url = urls(ports);
        let monitor = service.servers[2].monitor();
        proxy.set(Mode::DropReplies);
        let dlock = service.scratch().dlock().run("job").backend(url).arg("-n");
        dlock.command(["echo", "overlap"]).output().code(75).stdout_is("").stderr_is_one_line("theirs");
        let seen = monitor.wait_until("a vote that was given and given back", |seen| {
            seen.iter().filter(|words| runs_script(words)).count() == 2
        });
        assert!(seen.iter().any(|words| runs_script(words)));
        eventually("the vote to be given back", || service.servers[2].get(KEY).is_none().then_some(()));
    }

    #[test]
    fn of_which_nobody_heard_leave_nothing() {
        let service = Redlock3::fresh();
        let proxies = proxies(&service);
        set_all(&proxies[1..], Mode::DropReplies);
        let dlock = service.scratch().dlock().run("job").backend(urls(proxies.iter().map(Proxy::port)));
        let outcome = dlock.args(["-t", "2s"]).command(["echo", "run"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("did not get 'job': no majority: 2 of 3");
        eventually("the votes to be given back", || (votes(&service.servers) == 0).then_some(()));
    }

    #[test]
    fn of_two_that_came_at_once_are_not_both_refused() {
        let service = Redlock3::fresh();
        // With two votes left, each can get one.
        service.servers[2].kill();
        for _ in 0..10 {
            let at_once = || service.run("job").args(["-n", "-q", "-E", "75"]).command(["true"]).spawn();
            let both = [at_once(), at_once()].map(|running| running.wait().status().code());
            assert!(both.contains(&Some(0)), "{both:?}");
            assert!(both.iter().all(|code| matches!(code, Some(0 | 75))), "{both:?}");
        }
        assert_eq!(votes(&service.servers), 0);
    }

    /// As in node-redlock #369: dlock is stopped between its request and the answer, until another holder has the lock.
    #[test]
    fn whose_lease_was_over_before_it_was_known_are_no_lock() {
        let service = Redlock3::fresh();
        let proxies = proxies(&service);
        // At this ttl a server may take 250 ms.
        set_all(&proxies, Mode::DelayReplies(Duration::from_millis(200)));
        let dlock = service.scratch().dlock().run("job").backend(urls(proxies.iter().map(Proxy::port)));
        let dlock = dlock.args(["-t", "5s", "-n"]).command(["echo", "overlap"]).spawn();
        eventually("the votes", || (votes(&service.servers) == 3).then_some(()));
        dlock.signal(Signal::SIGSTOP);
        process::wait_stopped(dlock.pid());
        eventually("the lease to end", || (votes(&service.servers) == 0).then_some(()));
        let other = service.hold("job");
        dlock.signal(Signal::SIGCONT);
        let outcome = dlock.wait();
        outcome.stdout_is("").stderr_is_one_line("did not get 'job'");
        assert!(matches!(outcome.status().code(), Some(69 | 75)), "{outcome:?}");
        other.let_go().success();
        eventually("the votes to be given back", || (votes(&service.servers) == 0).then_some(()));
    }
}

mod tokens {
    use super::*;

    #[test]
    fn cost_no_request_while_the_counters_agree() {
        let service = Redlock3::fresh();
        for _ in 0..3 {
            let monitors: Vec<_> = service.servers.iter().map(Redis::monitor).collect();
            token(&service);
            for monitor in &monitors {
                assert_eq!(scripts(monitor), ["6", "7"], "one to get the vote, one to give it back");
            }
        }
        let counters: Vec<_> = service.servers.iter().map(|redis| redis.get(FENCE)).collect();
        assert!(counters.iter().all(|counter| *counter == counters[0]), "{counters:?}");
    }

    #[test]
    fn are_held_by_a_majority_also_when_the_counters_disagree() {
        // Half a year above what the clock proposes.
        let high = micros_ahead(183);
        let service = Redlock3::fresh();
        // The two that grant disagree, whichever answers first.
        service.servers[2].kill();
        service.servers[0].cli(&["SET", FENCE, &high.to_string()]);
        let first = token(&service);
        assert_eq!(first, high + 1);
        let counters: Vec<_> = service.servers.running().filter_map(|redis| redis.get(FENCE)).collect();
        assert_eq!(counters, [first.to_string(), first.to_string()]);
        // The server that had the high counter is gone, and the one that never saw it is back.
        service.servers[2].restart();
        service.servers[0].kill();
        let second = token(&service);
        assert!(second > first, "{second} after {first}");
    }

    #[test]
    fn begin_with_the_clock_and_are_forgotten_after_a_month() {
        let service = Redlock3::fresh();
        let clock = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
        let before = clock();
        let token = u128::from(token(&service));
        assert!((before..=clock()).contains(&token), "{token}");
        for redis in service.servers.iter() {
            assert_eq!(redis.get(FENCE), Some(token.to_string()));
            let days = redis.pttl(FENCE) / 86_400_000;
            assert!((29..=30).contains(&days), "{days}");
        }
    }

    #[test]
    fn are_known_to_a_run_inside() {
        let service = Redlock3::fresh();
        let binary = *DLOCK;
        let script =
            format!("echo $DLOCK_TOKEN; {binary} run -n -k job -b '{}' -- sh -c 'echo $DLOCK_TOKEN'", service.url());
        let outcome = service.run("job").shell(script).output();
        let printed = outcome.success().stdout();
        let tokens: Vec<&str> = printed.lines().collect();
        assert_eq!(tokens.len(), 2);
        assert_eq!(tokens[0], tokens[1]);
    }
}
