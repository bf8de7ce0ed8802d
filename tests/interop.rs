use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::dlock::{Dlock, Running};
use crate::support::foreign::{Foreign, Kind};
use crate::support::process;
use crate::support::rendezvous::{Fifo, Gate, boottime, eventually};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, need, need_python};
use crate::support::witness::{Witness, read_counter};

/// The file lock `k` of a scratch directory, and its two kinds of users.
struct FileLock<'a> {
    scratch: &'a Scratch,
}

impl FileLock<'_> {
    fn dlock(&self) -> Dlock {
        self.scratch.dlock().run("k").backend(self.scratch.file_url())
    }

    /// `flock OPTIONS locks/k.lock sh -c SCRIPT`, at work in the scratch directory, so that nothing of it stays.
    fn flock(&self, options: &[&str], script: &str) -> Command {
        let mut flock = Command::new(need("flock", "util-linux"));
        flock.args(options).arg(self.scratch.lock_dir().join("k.lock")).args(["sh", "-c", script]);
        flock.current_dir(self.scratch.root()).stdin(Stdio::null());
        flock
    }
}

/// A foreign program that is killed if the test does not see its end.
struct Program(Child);

impl Program {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Its exit code.
    fn code(mut self) -> i32 {
        self.0.wait().unwrap().code().unwrap()
    }

    /// Waits until it is in the kernel's queue for a lock.
    fn wait_queued(&self) {
        let waits = format!(" {} ", self.0.id());
        eventually("flock to wait for the lock", || {
            let table = fs::read_to_string("/proc/locks").unwrap();
            table.lines().any(|line| line.contains("-> FLOCK") && line.contains(&waits)).then_some(())
        });
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn flock_and_dlock_refuse_each_other() {
    let scratch = Scratch::new();
    let lock = FileLock { scratch: &scratch };
    let gate = Gate::new(scratch.path("gate"));
    let mut events = Fifo::new(scratch.path("events"));
    let hold = format!("{}; {}", events.say("held"), gate.wait());
    // A reader's lock keeps a writer out as well.
    for options in [&["-x"][..], &["-s"], &["-o"]] {
        let flock = Program::start(&mut lock.flock(options, &hold));
        events.expect("held");
        let refused = lock.dlock().arg("-n").command(["touch", "ran"]).output();
        refused.code(75).stderr_is_one_line(&format!("held by flock (pid {})", flock.0.id()));
        gate.open();
        assert_eq!(flock.code(), 0);
        lock.dlock().arg("-n").command(["true"]).output().success();
    }
    for arguments in [&[][..], &["-o"]] {
        let dlock = lock.dlock().args(arguments).shell(&hold).spawn();
        events.expect("held");
        for options in [&["-n", "-E", "17"][..], &["-s", "-n", "-E", "17"]] {
            assert_eq!(Program::start(&mut lock.flock(options, "touch ran")).code(), 17);
        }
        gate.open();
        dlock.wait().success();
        assert_eq!(Program::start(&mut lock.flock(&["-n", "-E", "17"], "exit 3")).code(), 3);
    }
    assert!(!scratch.path("ran").exists());
}

#[test]
fn flock_and_dlock_hand_the_lock_over_to_each_other() {
    let scratch = Scratch::new();
    let lock = FileLock { scratch: &scratch };
    let mut events = Fifo::new(scratch.path("events"));
    let (first, second) = (Gate::new(scratch.path("first")), Gate::new(scratch.path("second")));
    let flock = Program::start(&mut lock.flock(&[], &format!("{}; {}", events.say("flock"), first.wait())));
    events.expect("flock");
    let dlock = lock.dlock().shell(format!("{}; {}", events.say("dlock"), second.wait())).spawn();
    dlock.wait_stderr("waiting for k: held by flock");
    assert_eq!(events.try_word(), None, "both hold the lock");
    first.open();
    events.expect("dlock");
    assert_eq!(flock.code(), 0);
    let flock = Program::start(&mut lock.flock(&[], &events.say("flock")));
    flock.wait_queued();
    assert_eq!(events.try_word(), None, "both hold the lock");
    second.open();
    events.expect("flock");
    assert_eq!(flock.code(), 0);
    dlock.wait().code(0).stderr_is_one_line("waiting for k");
}

#[test]
fn a_killed_flock_hands_over_and_a_killed_dlock_leaves_its_command_locked() {
    let scratch = Scratch::new();
    let lock = FileLock { scratch: &scratch };
    let mut events = Fifo::new(scratch.path("events"));
    let gate = Gate::new(scratch.path("gate"));
    let mut flock = Program::start(&mut lock.flock(&["-o"], &format!("{}; exec sleep 1000", events.say("held"))));
    events.expect("held");
    let hold = format!("{}; {}; {}", events.say("dlock"), gate.wait(), events.say("end"));
    let dlock = lock.dlock().shell(hold).spawn();
    dlock.wait_stderr("waiting for k");
    flock.0.kill().unwrap();
    events.expect("dlock");
    // As with flock: the command goes on and stays locked, whatever becomes of the one who locked it.
    process::signal(dlock.dlock_pid(), nix::sys::signal::Signal::SIGKILL);
    dlock.wait().signal(nix::sys::signal::Signal::SIGKILL).stderr();
    assert_eq!(Program::start(&mut lock.flock(&["-n", "-E", "17"], "true")).code(), 17);
    gate.open();
    events.expect("end");
    assert_eq!(Program::start(&mut lock.flock(&[], "exit 3")).code(), 3);
}

#[test]
fn a_lock_file_that_flock_made_is_used_and_stays_usable() {
    let scratch = Scratch::new();
    let lock = FileLock { scratch: &scratch };
    let file = scratch.lock_dir().join("k.lock");
    let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&file).unwrap());
    assert_eq!(Program::start(&mut lock.flock(&[], "true")).code(), 0);
    let before = inode();
    let mut last = 0;
    for _ in 0..3 {
        let outcome = lock.dlock().shell("printf $DLOCK_TOKEN").output();
        outcome.success();
        let token: u64 = outcome.stdout().parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(Program::start(&mut lock.flock(&[], "exit 3")).code(), 3);
        assert_eq!(inode(), before, "the lock file was replaced");
    }
}

#[test]
fn users_who_share_a_sticky_directory_exclude_each_other() {
    let scratch = Scratch::new();
    let shared = scratch.directory("shared", 0o1777);
    let url = format!("file://{}", shared.display());
    let gate = Gate::new(scratch.path("gate"));
    let mut events = Fifo::new(scratch.path("events"));
    let hold = format!("{}; {}", events.say("held"), gate.wait());
    let run = || scratch.dlock().run("k").backend(&url).umask(0);
    // Whoever comes first makes the file; with this umask it is for everybody.
    let first = run().unprivileged().shell(&hold).spawn();
    events.expect("held");
    run().arg("-n").command(["true"]).output().code(75).stderr_is_one_line("held by");
    gate.open();
    first.wait().success();
    let second = run().shell(&hold).spawn();
    events.expect("held");
    run().unprivileged().arg("-n").command(["true"]).output().code(75).stderr_is_one_line("held by");
    gate.open();
    second.wait().success();
    run().unprivileged().command(["true"]).output().success();
}

/// A redis-py that uses the lock `dlock:k`.
fn redis_py(redis: &Redis) -> Foreign {
    Foreign::spawn(Kind::RedisPy, &redis.url(), "dlock:k")
}

fn run_redis(scratch: &Scratch, redis: &Redis) -> Dlock {
    scratch.dlock().run("k").backend(redis.url())
}

/// A dlock whose command says `held` and waits at the gate.
fn holding(dlock: Dlock, events: &mut Fifo, gate: &Gate) -> Running {
    let running = dlock.shell(format!("{}; {}", events.say("held"), gate.wait())).spawn();
    events.expect("held");
    running
}

/// Nothing of ours is left but the fencing counters, which are documented to stay.
#[track_caller]
fn assert_no_litter(redis: &Redis) {
    let keys = redis.keys();
    assert!(keys.iter().all(|key| key.ends_with("\u{1}fence")), "left behind: {keys:?}");
    assert_eq!(redis.clients(), [""; 0], "connections are left");
}

#[test]
fn redis_py_keeps_dlock_out() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let mut python = redis_py(&redis);
    // One that expires, and one that never does.
    for timeout in ["60", "never"] {
        python.set_lease(timeout);
        python.try_acquire().expect("the lock is free");
        let (value, left) = (redis.get("dlock:k").unwrap(), redis.pttl("dlock:k"));
        let refused = run_redis(&scratch, &redis).args(["-w", "0"]).command(["touch", "ran"]).output();
        refused.code(75).stderr_is_one_line(&format!("held by another program: {value}"));
        let waited = run_redis(&scratch, &redis).args(["-w", "0.5"]).command(["touch", "ran"]).output();
        waited.code(75).stderr_ends_with_line("did not get k within 500ms: held by another program");
        assert_eq!(redis.get("dlock:k"), Some(value));
        assert!(redis.pttl("dlock:k") <= left, "its expiry was touched");
        assert!(python.owns());
        python.release();
    }
    run_redis(&scratch, &redis).arg("-n").command(["true"]).output().success();
    assert!(!scratch.path("ran").exists());
    drop(python);
    assert_no_litter(&redis);
}

#[test]
fn dlock_keeps_redis_py_out() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let gate = Gate::new(scratch.path("gate"));
    let mut events = Fifo::new(scratch.path("events"));
    // Under a namespace, and with the verbatim key.
    for (namespace, name) in [("dlock", "dlock:k"), ("", "k")] {
        let mut python = Foreign::spawn(Kind::RedisPy, &redis.url(), name);
        let dlock = run_redis(&scratch, &redis).args(["--namespace", namespace]);
        let running = holding(dlock, &mut events, &gate);
        let value = redis.get(name);
        assert_eq!(python.try_acquire(), None);
        assert!(!python.owns());
        assert_eq!(redis.get(name), value);
        gate.open();
        running.wait().success();
        python.try_acquire().expect("the lock is free");
        python.release();
    }
    assert_no_litter(&redis);
}

#[test]
fn a_waiting_redis_py_gets_the_lock_when_dlock_releases_it() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let mut python = redis_py(&redis);
    let gate = Gate::new(scratch.path("gate"));
    let mut events = Fifo::new(scratch.path("events"));
    let running = holding(run_redis(&scratch, &redis), &mut events, &gate);
    let monitor = redis.monitor();
    python.start_acquire();
    let tries = |seen: &[Vec<String>]| seen.iter().filter(|words| words[0] == "SET" && words[1] == "dlock:k").count();
    monitor.wait_until("redis-py to try twice", |seen| tries(seen) >= 2);
    gate.open();
    running.wait().success();
    python.wait_held();
    // And dlock gets it back after that.
    let waiting = run_redis(&scratch, &redis).shell("printf $DLOCK_TOKEN").spawn();
    waiting.wait_stderr("waiting for k: held by another program");
    python.release();
    waiting.wait().code(0).stderr_is_one_line("waiting for k");
    drop((monitor, python));
    assert_no_litter(&redis);
}

#[test]
fn a_waiting_dlock_gets_the_lock_when_a_dead_redis_pys_lock_expires_and_not_before() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let mut python = redis_py(&redis);
    let mut events = Fifo::new(scratch.path("events"));
    let before = boottime();
    python.set_lease("1.2");
    python.try_acquire().expect("the lock is free");
    drop(python);
    let waiting = run_redis(&scratch, &redis).shell(events.say("held")).spawn();
    events.expect("held");
    let after = boottime().saturating_sub(before);
    assert!(after >= Duration::from_millis(1200), "the lock was taken {after:?} after the grant of 1.2 s");
    waiting.wait().code(0).stderr_is_one_line("waiting for k: held by another program");
    assert_no_litter(&redis);
}

#[test]
fn nobody_deletes_the_others_lock() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let mut python = redis_py(&redis);
    let gate = Gate::new(scratch.path("gate"));
    let mut events = Fifo::new(scratch.path("events"));
    // redis-py comes back late: its lock has expired, and dlock has it.
    python.set_lease("0.1");
    python.try_acquire().expect("the lock is free");
    let running = holding(run_redis(&scratch, &redis).args(["--ttl", "1s"]), &mut events, &gate);
    let value = redis.get("dlock:k");
    assert!(!python.owns());
    assert!(python.release_lost().starts_with("LockNotOwnedError"));
    assert_eq!(redis.get("dlock:k"), value);
    gate.open();
    running.wait().success();
    // dlock comes back late: somebody has deleted its lock, and redis-py has it.
    let running = holding(run_redis(&scratch, &redis).args(["--ttl", "1s"]), &mut events, &gate);
    redis.cli(&["DEL", "dlock:k"]);
    python.set_lease("60");
    python.try_acquire().expect("the lock is free");
    let value = redis.get("dlock:k").unwrap();
    let line = format!("lost k at {}: its key is held by another program: {value}; stopping sh", redis.url());
    running.wait().code(79).stderr_is_one_line(&line);
    assert_eq!(redis.get("dlock:k"), Some(value.clone()));
    assert!(redis.pttl("dlock:k") > 55_000, "dlock has changed the expiry of redis-py's lock");
    python.release();
    // The same, found out only when the command has ended.
    let running = holding(run_redis(&scratch, &redis), &mut events, &gate);
    redis.cli(&["DEL", "dlock:k"]);
    python.set_lease("60");
    python.try_acquire().expect("the lock is free");
    gate.open();
    running.wait().code(79).stderr_is_one_line("lost k");
    assert!(python.owns());
    python.release();
    drop(python);
    assert_no_litter(&redis);
}

/// Works under the witness of [`Witness`] and its counter, as `Witness::counter_command` does: an overlap is in the log.
/// It says when it is ready to begin, and begins when its standard input ends.
const REDIS_PY_WORKER: &str = r"
import fcntl, sys
import redis

port, name, witness, counter, rounds = sys.argv[1:]
connection = redis.Redis(port=int(port))
connection.ping()
print('ready', flush=True)
sys.stdin.read()
for _ in range(int(rounds)):
    with connection.lock(name, timeout=30, sleep=0.005):
        with open(witness + '/witness.lock', 'a') as guard:
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with open(witness + '/log', 'a') as log:
                    log.write('OVERLAP - 0\n')
                sys.exit(97)
            with open(counter, 'a+') as file:
                file.seek(0)
                number = int(file.read() or 0)
                connection.ping()
                file.truncate(0)
                file.write(f'{number + 1}\n')
";

/// Starts one, and waits until it is ready. The pipe is what it waits for.
fn worker(python: &Path, redis: &Redis, witness: &Path, counter: &Path) -> (Program, ChildStdin) {
    let mut command = Command::new(python);
    command.args(["-c", REDIS_PY_WORKER, &redis.port().to_string(), "dlock:k"]).arg(witness).arg(counter);
    let mut worker = Program::start(command.arg(ROUNDS.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(worker.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let begin = worker.0.stdin.take().unwrap();
    (worker, begin)
}

/// How often each redis-py in the crowd takes the lock.
const ROUNDS: u64 = 30;

#[test]
fn redis_pys_and_dlocks_in_a_crowd_never_overlap() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let python = need_python("redis", "python3-redis");
    let directory = scratch.directory("witness", 0o700);
    let (witness, counter) = (Witness::in_dir(&directory), scratch.path("counter"));
    let start = |_| worker(&python, &redis, &directory, &counter);
    let (pythons, begin): (Vec<_>, Vec<_>) = (0..3).map(start).unzip();
    let pythons_rounds = ROUNDS * pythons.len() as u64;
    let over = AtomicBool::new(false);
    let dlocks: u64 = thread::scope(|scope| {
        // Until the last redis-py is done, so that there is a crowd all the time.
        let crowd = || {
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) {
                let run = run_redis(&scratch, &redis).arg("-q").command(witness.counter_command(&counter));
                run.output().success();
                rounds += 1;
            }
            rounds
        };
        let crowds = [(); 4].map(|()| scope.spawn(crowd));
        drop(begin);
        let codes: Vec<i32> = pythons.into_iter().map(Program::code).collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(codes, [0, 0, 0], "{}", witness.log());
        crowds.into_iter().map(|crowd| crowd.join().unwrap()).sum()
    });
    assert_eq!(witness.check().len() as u64, dlocks);
    assert_eq!(read_counter(&counter), dlocks + pythons_rounds);
    assert!(dlocks >= 4, "the crowd was alone");
    assert_no_litter(&redis);
}

#[test]
fn flocks_and_dlocks_in_a_crowd_never_overlap() {
    const EACH: u32 = 15;
    let scratch = Scratch::new();
    scratch.lock_dir();
    let lock = FileLock { scratch: &scratch };
    let directory = scratch.directory("witness", 0o700);
    let (witness, counter) = (Witness::in_dir(&directory), scratch.path("counter"));
    let count = r#"
        exec 9>>witness/witness.lock
        flock -n 9 || { echo 'OVERLAP - 0' >> witness/log; exit 97; }
        n=0; [ ! -s counter ] || read -r n < counter; /bin/true; echo "$((n + 1))" > counter
    "#;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    assert_eq!(Program::start(&mut lock.flock(&[], count)).code(), 0, "{}", witness.log());
                }
            });
            scope.spawn(|| {
                for _ in 0..EACH {
                    lock.dlock().arg("-q").command(witness.counter_command(&counter)).output().success();
                }
            });
        }
    });
    assert_eq!(witness.check().len(), 3 * EACH as usize);
    assert_eq!(read_counter(&counter), u64::from(6 * EACH));
}
