/*!
The command never outlives its lease, whatever becomes of the server and of the way to it.

What is measured is the server's own account against the end of the last process of a stubborn tree ([`Tree`]): the
lease can end at the server a ttl after the server carried out the last acquire or renewal (`PTTL`, or `MONITOR` where
the server cannot be asked any more), and by then everything has to be dead. A waiter that reaches the server all the
time, and the witness, find out whether two commands ever overlapped.
*/

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::dlock::Running;
use crate::support::netns::Netns;
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{Fifo, Gate, Lifeline, boottime, eventually, last_until};
use crate::support::scene::{KEY, Scene, TTL, assert_in_time, assert_lost, assert_taken_over, behind};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, need};
use crate::support::tree::Tree;
use crate::support::witness::Witness;

mod server {
    use super::*;

    #[test]
    fn a_server_that_is_frozen_for_three_ttl_is_survived_by_no_command() {
        let redis = Redis::start();
        let scene = Scene::start(&redis, &redis.url(), &[]);
        let waiter = scene.wait_behind(&redis.url());
        scene.monitor.wait_renewed(KEY);
        redis.stop();
        let stopped = boottime();
        scene.assert_dies_in_time(stopped);
        last_until(stopped + 3 * TTL);
        redis.cont();
        scene.assert_lost("does not answer").taken_over_by(waiter);
    }

    #[test]
    fn a_server_that_is_killed_for_good_is_survived_by_no_command() {
        let redis = Redis::start();
        let scene = Scene::start(&redis, &redis.url(), &[]);
        scene.monitor.wait_renewed(KEY);
        redis.kill();
        scene.assert_dies_in_time(boottime());
        scene.assert_lost("refused");
    }

    #[test]
    fn a_server_that_comes_back_empty_after_the_lease_finds_no_command() {
        let redis = Redis::start();
        let scene = Scene::start(&redis, &redis.url(), &[]);
        let waiter = scene.wait_behind(&redis.url());
        scene.monitor.wait_renewed(KEY);
        redis.kill();
        scene.assert_dies_in_time(boottime());
        redis.restart();
        scene.assert_lost("refused").taken_over_by(waiter);
    }

    #[test]
    fn a_server_that_comes_back_empty_at_once_ends_the_command_at_the_next_renewal() {
        let redis = Redis::start();
        let mut scene = Scene::start(&redis, &redis.url(), &["-t", "2s"]);
        scene.monitor.wait_renewed(KEY);
        redis.kill();
        let killed = boottime();
        redis.restart();
        let lease = Lease { ends: scene.monitor.expiry(KEY, killed), ttl: 2 * TTL };
        lease.ends_at_the_next_renewal(&mut scene.tree);
        let aftermath = scene.assert_lost("its key is gone from the server");
        // Only now: for the time until that renewal nothing but the token protects.
        let next = aftermath.next(&redis.url(), "true");
        aftermath.taken_over_by(next);
    }
}

mod network {
    use super::*;

    #[test]
    fn packets_dropped_both_ways_are_survived_by_no_command() {
        const PORT: u16 = 6379;
        let net = Netns::start();
        let scratch = Scratch::new();
        let server = ServerInside::start(&net, &scratch, PORT);
        let url = format!("redis://127.0.0.1:{PORT}");
        let mut tree = Tree::new(&scratch);
        let witness = Witness::in_dir(scratch.root());
        let inside = || scratch.dlock().wrapped_by(net.prefix()).run("job").backend(&url).args(["-t", "1s"]);
        let holder = inside().command(witness.command(&tree.work())).lifeline(tree.end()).spawn();
        tree.wait_grown();
        let waiter = inside().command(witness.command("true")).spawn();
        waiter.wait_stderr("waiting for job");

        net.drop_port(PORT);
        // By a way that the fault does not touch. What was under way and got through has come by now.
        let expiry = server.expiry(KEY);
        let died = tree.died_at();
        assert_in_time(died, expiry);
        let cut = boottime();
        last_until(cut + 2 * TTL);
        net.heal();
        assert_lost(&holder.wait(), "does not answer");
        assert_taken_over(&witness, waiter);
    }

    /// A redis in a namespace that can also be asked through the file system.
    struct ServerInside {
        child: std::process::Child,
        socket: std::path::PathBuf,
    }

    impl ServerInside {
        fn start(net: &Netns, scratch: &Scratch, port: u16) -> Self {
            let socket = scratch.path("redis.sock");
            let mut command = net.command(need("redis-server", "redis-server"));
            command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
            command.arg("--unixsocket").arg(&socket).arg("--dir").arg(scratch.root());
            command.stdout(std::process::Stdio::null());
            let server = Self { child: command.spawn().unwrap(), socket };
            eventually("redis to answer", || server.ask("PING").filter(|reply| reply == "+PONG"));
            server
        }

        fn ask(&self, request: &str) -> Option<String> {
            let mut stream = UnixStream::connect(&self.socket).ok()?;
            stream.write_all(format!("{request}\r\n").as_bytes()).ok()?;
            let mut reply = String::new();
            BufReader::new(stream).read_line(&mut reply).ok()?;
            Some(reply.trim_end().to_owned())
        }

        fn expiry(&self, key: &str) -> Duration {
            let now = boottime();
            let reply = self.ask(&format!("PTTL {key}")).expect("an answer");
            let left: u64 = reply.trim_start_matches(':').parse().expect("a key that expires");
            now + Duration::from_millis(left - 1)
        }
    }

    impl Drop for ServerInside {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

mod proxy {
    use super::*;

    #[test]
    fn silence_both_ways_is_survived_by_no_command() {
        lost_behind(Mode::Silent, "does not answer");
    }

    /// At the server the lease is extended, but nobody here can know that.
    #[test]
    fn renewals_whose_answers_are_lost_do_not_count() {
        lost_behind(Mode::DropReplies, "does not answer");
    }

    #[test]
    fn requests_that_are_lost_are_survived_by_no_command() {
        lost_behind(Mode::DropRequests, "does not answer");
    }

    #[test]
    fn connections_that_are_reset_are_survived_by_no_command() {
        // How it is called depends on what the reset came upon.
        lost_behind(Mode::Reset, "no renewal was confirmed");
    }

    #[test]
    fn connections_that_are_refused_are_survived_by_no_command() {
        lost_behind(Mode::Refuse, "refused");
    }

    #[test]
    fn answers_that_drip_do_not_count() {
        lost_behind(Mode::Drip(Duration::from_millis(100)), "does not answer");
    }

    /// The holder reaches the server through the fault, the waiter past it.
    fn lost_behind(mode: Mode, why: &str) {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        let scene = Scene::start(&redis, &behind(&proxy), &[]);
        let waiter = scene.wait_behind(&redis.url());
        // The next renewal is far: what is confirmed now is the last one.
        scene.monitor.wait_renewed(KEY);
        let confirmed = boottime();
        proxy.set(mode);
        let asked = proxy.counts().accepted;
        scene.assert_dies_in_time(confirmed);
        if !matches!(mode, Mode::Refuse) {
            assert!(proxy.counts().accepted > asked, "no renewal was retried on a new connection");
        }
        scene.assert_lost(why).taken_over_by(waiter);
    }

    /// A deadline that counted from the answer would be late by as much as the answer.
    #[test]
    fn a_deadline_counts_from_when_the_renewal_was_sent() {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        // With nothing of the lease for the way from SIGTERM to SIGKILL, a renewal may take 740 ms; the margin is 450 ms.
        let scene = Scene::start(&redis, &behind(&proxy), &["-t", "4s", "--kill-after", "0"]);
        let waiter = scene.wait_behind(&redis.url());
        proxy.set(Mode::DelayReplies(Duration::from_millis(650)));
        let answered = proxy.counts().replies;
        scene.monitor.wait_renewed(KEY);
        eventually("a late answer", || (proxy.counts().replies > answered).then_some(()));
        let confirmed = boottime();
        proxy.set(Mode::Silent);
        scene.assert_dies_in_time(confirmed);
        scene.assert_lost("does not answer").taken_over_by(waiter);
    }

    #[test]
    fn a_server_that_is_far_away_serves() {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        // A renewal of this lease may take 194 ms: a third of what is left then until SIGTERM.
        proxy.set(Mode::Delay(Duration::from_millis(60)));
        outlives_unnoticed(&redis, &behind(&proxy), 3, || {});
    }

    #[test]
    fn an_acquire_whose_answer_is_lost_ends_in_time_and_leaves_no_lock() {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        proxy.set(Mode::DropReplies);
        let monitor = redis.monitor();
        let scratch = Scratch::new();
        // With a lease that would outlast this test by far.
        let dlock = scratch.dlock().run("job").backend(behind(&proxy)).args(["-t", "10m"]).shell("echo ran");
        let outcome = dlock.output();
        outcome.code(69).stdout_is("").stderr_is_one_line("did not get job: ");
        // Every request has two seconds at most: the acquire, and what takes it back.
        assert!(outcome.elapsed() < Duration::from_secs(8), "{outcome:?}");
        // It was granted all the same, and given back.
        monitor.expiry(KEY, boottime());
        eventually("the lock to be given back", || redis.get(KEY).is_none().then_some(()));
    }

    /// It is a lock all the same, until it is given back.
    #[test]
    fn a_grant_that_comes_with_too_little_left_is_not_used() {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        // With half of the lease for SIGTERM, it is of use for 1.6 s after the request; an answer may take 2 s.
        proxy.set(Mode::DelayReplies(Duration::from_millis(1940)));
        let scratch = Scratch::new();
        let dlock = scratch.dlock().run("job").backend(behind(&proxy)).args(["-t", "6s", "--kill-after", "3s"]);
        dlock.shell("echo ran").output().code(69).stdout_is("").stderr_is_one_line("did not get job: ");
        assert_eq!(redis.get(KEY), None);
    }

    /// The lease is what bounds it when not even that can be done.
    #[test]
    fn an_acquire_that_cannot_be_taken_back_leaves_the_lock_for_no_more_than_a_lease() {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        proxy.set(Mode::CutReplyAfter(0));
        let monitor = redis.monitor();
        let scratch = Scratch::new();
        let dlock = scratch.dlock().run("job").backend(behind(&proxy)).args(["-t", "1s"]).shell("echo ran").spawn();
        monitor.wait_until("the acquire", |words| words.iter().any(|words| words[0] == "EVAL"));
        proxy.set(Mode::Silent);
        dlock.wait().code(69).stdout_is("").stderr_is_one_line("did not get job: ");
        let scratch = Scratch::new();
        let next = scratch.dlock().run("job").backend(redis.url()).args(["-t", "1s", "-q"]).shell("true");
        next.output().success();
    }
}

mod short_outage {
    use super::*;

    #[test]
    fn a_server_frozen_for_half_a_lease_is_not_noticed() {
        let redis = Redis::start();
        outlives_unnoticed(&redis, &redis.url(), 1, || {
            redis.stop();
            last_until(boottime() + TTL);
            redis.cont();
        });
    }

    #[test]
    fn a_moment_of_refusals_is_not_noticed() {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        outlives_unnoticed(&redis, &behind(&proxy), 1, || {
            proxy.set(Mode::Refuse);
            last_until(boottime() + TTL);
            proxy.set(Mode::Forward);
        });
    }

    #[test]
    fn a_moment_of_silence_is_not_noticed() {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        outlives_unnoticed(&redis, &behind(&proxy), 1, || {
            proxy.set(Mode::Silent);
            // Until one renewal has got no answer.
            eventually("a lost renewal", || (proxy.counts().lost_requests > 0).then_some(()));
            let connections = proxy.counts().accepted;
            eventually("another try", || (proxy.counts().accepted > connections).then_some(()));
            proxy.set(Mode::Forward);
        });
    }

    #[test]
    fn a_connection_that_is_killed_is_made_again() {
        let redis = Redis::start();
        outlives_unnoticed(&redis, &redis.url(), 2, || {
            let clients = redis.clients();
            assert_eq!(clients.len(), 1, "{clients:?}");
            let id = clients[0].split(' ').find_map(|word| word.strip_prefix("id=")).expect("an id");
            assert_eq!(redis.cli(&["CLIENT", "KILL", "ID", id]), "1");
        });
    }

    #[test]
    fn scripts_that_are_flushed_are_sent_again() {
        let redis = Redis::start();
        outlives_unnoticed(&redis, &redis.url(), 2, || {
            redis.cli(&["SCRIPT", "FLUSH"]);
        });
    }
}

/// The server itself says that the lock is not ours any more.
mod taken_away {
    use super::*;

    #[test]
    fn a_key_that_is_deleted_ends_the_command_at_the_next_renewal() {
        let redis = Redis::start();
        taken_away_by(&redis, "redis.call('DEL', KEYS[1])", "its key is gone from the server");
        assert_eq!(redis.get(KEY), None);
    }

    #[test]
    fn a_key_that_is_anothers_ends_the_command_and_stays_anothers() {
        let redis = Redis::start();
        taken_away_by(&redis, "redis.call('SET', KEYS[1], 'theirs', 'PX', 600000)", "its key is held by");
        assert_eq!(redis.get(KEY).as_deref(), Some("theirs"));
        // Neither shortened nor extended to our lease.
        assert!(redis.pttl(KEY) > 500_000);
    }

    #[test]
    fn a_key_that_became_a_list_ends_the_command_and_stays_a_list() {
        let redis = Redis::start();
        let list = "redis.call('DEL', KEYS[1]); redis.call('RPUSH', KEYS[1], 'a', 'b')";
        taken_away_by(&redis, list, "something else is at its key");
        assert_eq!(redis.cli(&["LRANGE", KEY, "0", "-1"]), "a\nb");
        assert_eq!(redis.pttl(KEY), -1);
    }

    fn taken_away_by(redis: &Redis, change: &str, why: &str) {
        let mut scene = Scene::start(redis, &redis.url(), &["-t", "2s"]);
        let lease = Lease { ends: replace(redis, change), ttl: 2 * TTL };
        lease.ends_at_the_next_renewal(&mut scene.tree);
        scene.assert_lost(why);
    }

    #[test]
    fn a_key_deleted_just_before_the_command_ends_is_told_as_a_loss() {
        let redis = Redis::start();
        let scratch = Scratch::new();
        let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
        let script = format!("{}; {}; echo all done", words.say("running"), gate.wait());
        // No renewal comes before the end.
        let dlock = scratch.dlock().run("job").backend(redis.url()).args(["-t", "10m"]).shell(script).spawn();
        words.expect("running");
        assert_eq!(redis.cli(&["DEL", KEY]), "1");
        gate.open();
        let outcome = dlock.wait();
        assert_lost(&outcome, "not ours any more when it ended");
        outcome.stdout_is("all done\n");
    }

    #[test]
    fn a_key_overwritten_just_before_the_command_ends_is_not_deleted() {
        let redis = Redis::start();
        let scratch = Scratch::new();
        let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
        let script = format!("{}; {}", words.say("running"), gate.wait());
        let dlock = scratch.dlock().run("job").backend(redis.url()).args(["-t", "10m"]).shell(script).spawn();
        words.expect("running");
        redis.cli(&["SET", KEY, "theirs"]);
        gate.open();
        assert_lost(&dlock.wait(), "not ours any more when it ended");
        assert_eq!(redis.get(KEY).as_deref(), Some("theirs"));
    }
}

/// `--on-lost` and `--kill-after`.
mod ladder {
    use super::*;

    #[test]
    fn on_lost_kill_sends_no_term() {
        let redis = Redis::start();
        let scratch = Scratch::new();
        let mut words = Fifo::new(scratch.path("words"));
        // With so many children that there is time to tell of a SIGTERM before a SIGKILL that follows it.
        let script = format!(
            "exec 9>'{}'; trap 'echo TERM >&9' TERM; for i in $(seq 100); do sleep 1000 & done; echo running >&9
             while :; do wait; done",
            words.path().display()
        );
        let options = ["-t", "1s", "--on-lost", "kill"];
        let dlock = scratch.dlock().run("job").backend(redis.url()).args(options).shell(script);
        let (lifeline, end) = Lifeline::pair();
        let dlock = dlock.lifeline(end).spawn();
        words.expect("running");
        let expiry = replace(&redis, "redis.call('DEL', KEYS[1])");
        assert_in_time(lifeline.closed_at(), expiry);
        assert_eq!(words.closed(), [""; 0], "SIGKILL was to come at the time of the SIGTERM");
        assert_lost(&dlock.wait(), "its key is gone from the server");
    }

    #[test]
    fn on_lost_kill_at_the_deadline_sends_no_term() {
        let redis = Redis::start();
        let mut scene = Scene::start(&redis, &redis.url(), &["--on-lost", "kill"]);
        scene.monitor.wait_renewed(KEY);
        redis.stop();
        scene.assert_dies_in_time(boottime());
        assert!(!scene.tree.was_termed());
        redis.cont();
        scene.assert_lost("does not answer");
    }

    #[test]
    fn on_lost_ignore_leaves_the_command_alone_and_keeps_its_code() {
        let redis = Redis::start();
        let (dlock, words, gate, _scratch) = ignoring(&redis);
        replace(&redis, "redis.call('DEL', KEYS[1])");
        let told = dlock.wait_stderr("lost job");
        assert!(told.contains("its key is gone"), "{told}");
        unharmed(dlock, words, gate);
    }

    #[test]
    fn on_lost_ignore_goes_on_beyond_a_silent_servers_lease() {
        let redis = Redis::start();
        let (dlock, words, gate, _scratch) = ignoring(&redis);
        let expiry = redis.expiry(KEY).unwrap();
        redis.stop();
        let told = dlock.wait_stderr("lost job");
        assert!(told.contains("does not answer"), "{told}");
        last_until(expiry + TTL);
        redis.cont();
        unharmed(dlock, words, gate);
    }

    fn ignoring(redis: &Redis) -> (Running, Fifo, Gate, Scratch) {
        let scratch = Scratch::new();
        let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
        let script = format!(
            "trap '{}' TERM; {}; {}; exit 7",
            words.say("TERM").replace('\'', "\""),
            words.say("running"),
            gate.wait()
        );
        let options = ["-t", "1s", "--on-lost", "ignore"];
        let dlock = scratch.dlock().run("job").backend(redis.url()).args(options).shell(script).spawn();
        words.expect("running");
        (dlock, words, gate, scratch)
    }

    /// The one warning has come.
    fn unharmed(dlock: Running, mut words: Fifo, gate: Gate) {
        gate.open();
        dlock.wait().code(7).stderr_is_one_line("goes on without it");
        assert_eq!(words.try_word(), None);
    }

    #[test]
    fn kill_comes_only_kill_after_term() {
        let redis = Redis::start();
        let mut scene = Scene::start(&redis, &redis.url(), &["-t", "2s", "--kill-after", "900ms"]);
        scene.monitor.wait_renewed(KEY);
        redis.stop();
        let stopped = boottime();
        let termed = scene.tree.termed_at();
        assert!(scene.tree.is_alive());
        scene.assert_dies_in_time(stopped);
        // Half of it, because the command may tell late.
        let grace = scene.tree.died_at() - termed;
        assert!(grace > Duration::from_millis(450), "SIGKILL came only {grace:?} after SIGTERM");
        redis.cont();
        scene.assert_lost("does not answer");
    }

    #[test]
    fn a_kill_after_of_zero_kills_in_time() {
        let redis = Redis::start();
        let scene = Scene::start(&redis, &redis.url(), &["--kill-after", "0"]);
        scene.monitor.wait_renewed(KEY);
        redis.stop();
        scene.assert_dies_in_time(boottime());
        redis.cont();
        scene.assert_lost("does not answer");
    }

    #[test]
    fn a_command_that_obeys_term_gets_its_time_to_clean_up() {
        let redis = Redis::start();
        let scratch = Scratch::new();
        let monitor = redis.monitor();
        let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
        let script = format!(
            "clean_up() {{ {}; {}; {}; exit 3; }}
             trap clean_up TERM; {}; while :; do sleep 1000 & wait; done",
            words.say("cleaning"),
            gate.wait(),
            words.say("clean"),
            words.say("running")
        );
        let (lifeline, end) = Lifeline::pair();
        let options = ["-t", "2s", "--kill-after", "1s"];
        let dlock = scratch.dlock().run("job").backend(redis.url()).args(options).shell(script);
        let dlock = dlock.lifeline(end).stderr(fs::File::create(scratch.path("stderr")).unwrap()).spawn();
        words.expect("running");
        monitor.wait_renewed(KEY);
        redis.stop();
        let stopped = boottime();
        words.expect("cleaning");
        assert!(lifeline.is_open());
        gate.open();
        words.expect("clean");
        let died = lifeline.closed_at();
        assert_in_time(died, monitor.expiry(KEY, stopped));
        redis.cont();
        dlock.wait().code(79);
        let told = fs::read_to_string(scratch.path("stderr")).unwrap();
        assert!(told.lines().any(|line| line.starts_with("dlock: lost job at ")), "{told}");
    }
}

/// A lease at the server.
#[derive(Clone, Copy)]
struct Lease {
    ends: Duration,
    ttl: Duration,
}

impl Lease {
    /// Waits for the end of a tree whose lock was taken away. The next renewal has to find out, a third of the lease after
    /// the last one: SIGTERM comes in the lease's first half, and SIGKILL a quarter of a lease later, in its first
    /// three quarters.
    #[track_caller]
    fn ends_at_the_next_renewal(self, tree: &mut Tree) {
        let began = self.ends - self.ttl;
        let termed = tree.termed_at();
        assert!(termed < began + self.ttl / 2, "SIGTERM came {:?} after the last renewal", termed - began);
        let died = tree.died_at();
        assert!(died < began + self.ttl * 3 / 4, "SIGKILL came {:?} after the last renewal", died - began);
    }
}

/// A lock of twice [`TTL`] on `redis` at `url` is held through `outage`, which begins just after a renewal, and is
/// renewed `renewals` times after it: nobody hears of anything, and the command comes to its own end.
fn outlives_unnoticed(redis: &Redis, url: &str, renewals: usize, outage: impl FnOnce()) {
    let scratch = Scratch::new();
    let monitor = redis.monitor();
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let script = format!("{}; {}; exit 5", words.say("running"), gate.wait());
    let dlock = scratch.dlock().run("job").backend(url).args(["-t", "2s"]).shell(script).spawn();
    words.expect("running");
    monitor.wait_renewed(KEY);
    let lease_before = monitor.expiry(KEY, boottime());
    outage();
    for _ in 0..renewals {
        monitor.wait_renewed(KEY);
    }
    // A renewal may have been sent before the outage ended and its answer given up. That dlock knows of one shows when
    // the command lives beyond the lease that it had before.
    last_until(lease_before);
    assert!(process::is_alive(dlock.command_pid()));
    gate.open();
    dlock.wait().code(5).quiet();
    assert_eq!(redis.get(KEY), None);
}

/// Does `change` (Lua, `KEYS[1]` is the lock) at the server; when the lease would have ended, by [`boottime`].
#[track_caller]
fn replace(redis: &Redis, change: &str) -> Duration {
    // In one script, so that no renewal comes in between.
    let script = format!("local left = redis.call('PTTL', KEYS[1]); {change}; return left");
    let now = boottime();
    let left: u64 = redis.cli(&["EVAL", &script, "1", KEY]).parse().expect("a lock that is held");
    now + Duration::from_millis(left - 1)
}
