/*!
A `dlock run` in the background of a `dlock run` of the same key: it is covered by the outer lock, which is not released
while the covered run lives.
*/

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::backends::{User, on_file_and_redis};
use crate::support::dlock::{DLOCK, Running};
use crate::support::process;
use crate::support::programs::sh;
use crate::support::rendezvous::{Fifo, Gate, boottime, last_until};
use crate::support::service::{FileService, RedisService, Service};
use crate::support::witness::Witness;

on_file_and_redis! {
    the_lock_is_not_given_back_while_a_covered_run_lives
    the_lock_is_not_given_back_while_a_run_below_a_covered_one_lives
    more_runs_beside_each_other_than_anybody_counts_are_covered
}

/// Shell code that does `script` in a run of `key`; the shell knows dlock as `$D`.
fn inner<S: Service>(service: &S, key: &str, options: &str, script: &str) -> String {
    let more: Vec<_> = service.options().into_iter().map(|word| word.into_string().unwrap()).collect();
    let backend = service.url();
    format!("\"$D\" run --key {key} --backend '{backend}' {options} {} -- {}", more.join(" "), sh(script))
}

/// A run whose command leaves covered work behind when it is let go, and a second run that waits.
struct Scene {
    witness: Witness,
    gate: Gate,
    outer: Running,
    waiter: Running,
    /// The process of the covered work, which ignores SIGTERM.
    work: i32,
}

impl Scene {
    /// `cover` turns shell code into the shell code of the covered work.
    #[track_caller]
    fn start<S: Service>(service: &S, user: User, cover: &dyn Fn(&str, &str) -> String) -> Self {
        let key = format!("{user:?}");
        let directory = service.scratch().directory(&key, 0o777);
        let (mut words, gate) = (Fifo::new(directory.join("words")), Gate::new(directory.join("gate")));
        let witness = Witness::in_dir(&directory);
        let work = format!("trap '' TERM; {}; sleep 1000; true", words.say("$$"));
        let work: Vec<String> = witness.command(&work).into_iter().map(|word| word.into_string().unwrap()).collect();
        let work: Vec<String> = work.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let script = format!("{} & {}; exit 3", cover(&key, &work.join(" ")), gate.wait());
        // The real dlock may be in a directory that not every user can reach.
        let outer =
            user.run(service, &key).args(["-t", "10s"]).env("D", own_dlock(service, user)).shell(script).spawn();
        let work = words.word().parse().unwrap();
        let waiter = user.run(service, &key).args(["-q", "-t", "10s"]).command(witness.command("true")).spawn();
        service.wait_queued(&key, 1);
        Self { witness, gate, outer, waiter, work }
    }

    /// Checks that the outer command ends, and everything that its lock covers with it, before the next holder begins.
    #[track_caller]
    fn ends(self) {
        self.gate.open();
        let outcome = self.outer.wait();
        assert!(!process::is_alive(self.work), "the covered work is left when the outer run has ended");
        // The messages of the covered run are there too.
        outcome.code(3).stderr();
        self.waiter.wait().success();
        assert_eq!(self.witness.check().len(), 2, "{}", self.witness.log());
    }
}

/// Where dlock can be executed by `user`.
fn own_dlock<S: Service>(service: &S, user: User) -> std::path::PathBuf {
    let copy = service.scratch().path("dlock");
    if user == User::Ordinary {
        // It is copied there when the first one is started, if that is needed.
        user.run(service, "other").command(["true"]).output().success();
    }
    if copy.exists() { copy } else { (*DLOCK).into() }
}

fn the_lock_is_not_given_back_while_a_covered_run_lives<S: Service>(service: &S) {
    for &user in User::all() {
        Scene::start(service, user, &|key, work| inner(service, key, "--kill-after 500ms", &format!("exec {work}")))
            .ends();
    }
}

/// This also holds when a run of another key is in between, and when the covered run has a session of its own.
fn the_lock_is_not_given_back_while_a_run_below_a_covered_one_lives<S: Service>(service: &S) {
    let cover = |key: &str, work: &str| {
        let covered = inner(service, key, "--kill-after 500ms", &format!("exec {work}"));
        format!("setsid {}", inner(service, "between", "--kill-after 500ms", &format!("{covered}; true")))
    };
    Scene::start(service, User::all()[0], &cover).ends();
}

/// Shell code that does each of these at the same time, and says how each of them ends.
fn at_once(jobs: usize, job: &str, words: &Fifo) -> String {
    format!("for job in $(seq {jobs}); do {{ {job}; {}; }} & done; wait", words.say("$?"))
}

/// Not one waits for its own outer run, and none is skipped.
fn more_runs_beside_each_other_than_anybody_counts_are_covered<S: Service>(service: &S) {
    const MANY: usize = 40;
    for &user in User::all() {
        let key = format!("{user:?}");
        let directory = service.scratch().directory(&key, 0o777);
        let (mut words, gate) = (Fifo::new(directory.join("words")), Gate::new(directory.join("gate")));
        // A database that is busy with so many is asked again until the wait is over.
        let job = inner(service, &key, "-w 30 -E 0", &format!("{}; {}", words.say("inside"), gate.wait()));
        let script = at_once(MANY, &job, &words);
        let outer = user.run(service, &key).env("D", own_dlock(service, user)).shell(script).spawn();
        for _ in 0..MANY {
            assert_eq!(words.word(), "inside", "{outer:?}");
        }
        (0..MANY).for_each(|_| gate.open());
        (0..MANY).for_each(|_| words.expect("0"));
        outer.wait().code(0).stderr();
    }
}

/// The guard raises its own limit; the command keeps the one that it inherited.
#[test]
fn a_low_limit_of_open_files_that_may_be_raised_limits_nothing() {
    let service = FileService::fresh();
    let path = |name| service.scratch().path(name);
    let (mut words, gate) = (Fifo::new(path("words")), Gate::new(path("gate")));
    let job = inner(&service, "job", "-n -E 0", &format!("{}; {}", words.say("inside"), gate.wait()));
    let script = format!("{}; {}", words.say("$(ulimit -Sn)"), at_once(40, &job, &words));
    let outer = service.run("job").env("D", *DLOCK).shell(script);
    let outer = outer.wrapped_by(["sh", "-c", "ulimit -Sn 24; exec \"$@\"", "sh"]).spawn();
    words.expect("24");
    (0..40).for_each(|_| words.expect("inside"));
    (0..40).for_each(|_| gate.open());
    (0..40).for_each(|_| words.expect("0"));
    outer.wait().success().quiet();
}

/// It would wait for its own outer run, or be skipped as if somebody else held the lock.
#[test]
fn a_run_that_the_outer_guard_cannot_take_says_so_and_is_not_skipped() {
    let service = FileService::fresh();
    let path = |name| service.scratch().path(name);
    let (mut words, gate) = (Fifo::new(path("words")), Gate::new(path("gate")));
    for options in ["-n -E 0", ""] {
        let job = inner(&service, "job", options, &format!("{}; {}", words.say("inside"), gate.wait()));
        let outer = service.run("job").env("D", *DLOCK).shell(at_once(40, &job, &words));
        let outer = outer.limit(libc::RLIMIT_NOFILE, 24).spawn();
        let mut ends: Vec<String> = (0..40).map(|_| words.word()).collect();
        ends.sort();
        let inside = ends.iter().filter(|end| *end == "inside").count();
        assert!(inside > 0 && inside < 40, "{ends:?}");
        assert!(ends.iter().all(|end| end == "inside" || end == "69"), "{ends:?}");
        (0..inside).for_each(|_| gate.open());
        (0..inside).for_each(|_| words.expect("0"));
        let outcome = outer.wait();
        let said = outcome.code(0).stderr();
        let said = said.lines().filter(|line| line.contains("whose guard may open no more files")).count();
        assert_eq!(said, 40 - inside);
    }
}

#[test]
fn forty_runs_inside_each_other_all_pass_through() {
    fn deep<S: Service>(service: &S) {
        let script = format!(
            "[ $1 -gt 0 ] || {{ echo bottom; exit 4; }}; \"$D\" run -k job -b '{}' -n -E 0 -- sh \"$0\" $(($1 - 1)); exit $?",
            service.url()
        );
        let script = service.scratch().file("deep", script);
        let outer = service.run("job").env("D", *DLOCK).command(["sh".as_ref(), script.as_os_str(), "40".as_ref()]);
        outer.output().code(4).stdout_is("bottom\n").quiet();
    }
    deep(&FileService::fresh());
    deep(&RedisService::fresh());
}

/// A job that goes on after its dlock was killed stays locked, and so does a nested run of the same key: it neither
/// waits for its own ancestor nor is stopped.
mod after_dlock_was_killed_on_file {
    use super::*;

    struct Job {
        service: FileService,
        words: Fifo,
        gate: Gate,
        outer: Running,
    }

    impl Job {
        /// `before` and `after` run before and after dlock is killed.
        #[track_caller]
        fn start(options: &[&str], script: impl FnOnce(&FileService, &Fifo, &Gate) -> String) -> Self {
            let service = FileService::fresh();
            let path = |name| service.scratch().path(name);
            let (words, gate) = (Fifo::new(path("words")), Gate::new(path("gate")));
            let script = script(&service, &words, &gate);
            let outer = service.run("job").args(options).env("D", *DLOCK).shell(script).spawn();
            Self { service, words, gate, outer }
        }

        #[track_caller]
        fn kill_dlock(&mut self) {
            self.words.expect("ready");
            process::signal(self.outer.pid(), Signal::SIGKILL);
            process::wait_gone(self.outer.pid());
            self.service.assert_held("job");
        }
    }

    #[test]
    fn a_nested_run_passes_through() {
        for options in [&[][..], &["--close"]] {
            let mut job = Job::start(options, |service, words, gate| {
                let nested = inner(service, "job", "-w 2", &words.say("passed"));
                format!("{}; {}; {nested}; {}", words.say("ready"), gate.wait(), words.say("$?"))
            });
            job.kill_dlock();
            job.gate.open();
            job.words.expect("passed");
            job.words.expect("0");
            job.outer.wait().signal(Signal::SIGKILL).quiet();
        }
    }

    #[test]
    fn a_nested_run_goes_on() {
        for options in [&[][..], &["--close"]] {
            let mut job = Job::start(options, |service, words, gate| {
                let inside = format!("{}; {}; {}; exit 5", words.say("ready"), gate.wait(), words.say("over"));
                format!("{}; {}", inner(service, "job", "", &inside), words.say("$?"))
            });
            job.kill_dlock();
            // If it were going to be stopped, that would have happened by now.
            last_until(boottime() + Duration::from_secs(1));
            job.service.assert_held("job");
            job.gate.open();
            job.words.expect("over");
            job.words.expect("5");
            job.outer.wait().signal(Signal::SIGKILL).quiet();
        }
    }
}

/// The lock is kept until the whole tree is gone, so a nested run that begins after the command has ended is still
/// covered.
#[test]
fn with_leftovers_wait_a_nested_run_that_begins_late_is_covered_and_waited_for() {
    let service = FileService::fresh();
    let gate = Gate::new(service.scratch().path("gate"));
    let mut words = Fifo::new(service.scratch().path("words"));
    let late = inner(&service, "job", "-w 5", &words.say("passed"));
    let script = format!("({}; {late}) & {}; exit 3", gate.wait(), words.say("$$"));
    let outer = service.run("job").args(["--leftovers", "wait"]).env("D", *DLOCK).shell(script).spawn();
    process::wait_gone(words.word().parse().unwrap());
    gate.open();
    words.expect("passed");
    outer.wait().code(3).quiet();
}
