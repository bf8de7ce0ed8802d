//! `--on-lost` and `--kill-after`.

use super::*;

#[test]
fn on_lost_kill_sends_no_term() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    let mut words = Fifo::new(scratch.path("words"));
    // With so many children that there is time to report a SIGTERM before the SIGKILL that follows it.
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
    scene.assert_lost("not answer");
}

#[test]
fn on_lost_ignore_leaves_the_command_alone_and_keeps_its_code() {
    let redis = Redis::start();
    let (dlock, words, gate, _scratch) = ignoring(&redis);
    replace(&redis, "redis.call('DEL', KEYS[1])");
    let told = dlock.wait_stderr("lost 'job'");
    assert!(told.contains("its key is gone"), "{told}");
    unharmed(dlock, words, gate);
}

#[test]
fn on_lost_ignore_goes_on_beyond_a_silent_servers_lease() {
    let redis = Redis::start();
    let (dlock, words, gate, _scratch) = ignoring(&redis);
    let expiry = redis.expiry(KEY).unwrap();
    redis.stop();
    let told = dlock.wait_stderr("lost 'job'");
    assert!(told.contains("not answer"), "{told}");
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

/// Checks that the one warning has come and that the command was not harmed.
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
    // Half of it, because the command may be late in reporting.
    let grace = scene.tree.died_at() - termed;
    assert!(grace > Duration::from_millis(450), "SIGKILL came only {grace:?} after SIGTERM");
    redis.cont();
    scene.assert_lost("not answer");
}

#[test]
fn a_kill_after_of_zero_kills_in_time() {
    let redis = Redis::start();
    let scene = Scene::start(&redis, &redis.url(), &["--kill-after", "0"]);
    scene.monitor.wait_renewed(KEY);
    redis.stop();
    scene.assert_dies_in_time(boottime());
    redis.cont();
    scene.assert_lost("not answer");
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
    assert!(told.lines().any(|line| line.starts_with("dlock: lost 'job' at ")), "{told}");
}
