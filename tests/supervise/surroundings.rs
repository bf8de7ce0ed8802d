use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::support::dlock::{Dlock, Outcome, Running};
use crate::support::process::{self, State};
use crate::support::recorder::{RECORDER_CODE, Recorder};
use crate::support::rendezvous::{Fifo, Gate, eventually};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, need, need_python};

/// The three ways in which a lock is there while a command runs.
fn ways(scratch: &Scratch, redis: &Redis) -> [(&'static str, Dlock); 3] {
    let on = |url: &str| scratch.dlock().run("k").backend(url);
    let file = scratch.file_url();
    [("file", on(&file)), ("file -o", on(&file).arg("-o")), ("redis", on(&redis.url()))]
}

/// Asserts whether the lock `k` is free.
#[track_caller]
fn assert_free(scratch: &Scratch, url: &str, free: bool) {
    let other = scratch.dlock().run("k").backend(url).args(["-n", "-q"]).command(["true"]).output();
    other.code(if free { 0 } else { 75 }).quiet();
}

/// What of `/proc/self` is a process's own business: its numbers, its memory, and how often it ran.
fn is_listener(pid: i32) -> bool {
    process::comm(pid).as_deref() == Some("lock-listener")
}

fn is_its_own(line: &str) -> bool {
    let own = ["Pid:", "Tgid:", "PPid:", "NSpid:", "NStgid:", "Vm", "Rss", "Hugetlb", "SigQ:", "FDSize:"];
    own.iter().any(|name| line.starts_with(name)) || line.contains("ctxt_switches") || line.starts_with("Cpus_")
}

/// The files above, and of the line in `/proc/self/stat` the process group, session, terminal, priority and policy.
const FILES: [&str; 6] = ["stat", "status", "limits", "oom_score_adj", "coredump_filter", "cgroup"];

fn seen_in_proc(outcome: &Outcome) -> Vec<String> {
    let stdout = outcome.stdout();
    let (stat, rest) = stdout.split_once('\n').unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let of_stat = [2, 3, 4, 5, 15, 16, 37, 38].map(|field| fields[field].to_owned());
    of_stat.into_iter().chain(rest.lines().filter(|line| !is_its_own(line)).map(str::to_owned)).collect()
}

#[test]
fn the_command_is_the_process_it_would_be_without_dlock() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    // Not quite as it is: without a hook the standard library may start a process by posix_spawn(3), which ignores the
    // C library's own signals in it.
    let plain = |dlock: Dlock| dlock.umask(0o22);
    let changed = |dlock: Dlock| {
        let dlock = dlock.umask(0o27).limit(libc::RLIMIT_NOFILE, 77).limit(libc::RLIMIT_CORE, 4096);
        let dlock = dlock.ignoring(Signal::SIGHUP).ignoring(Signal::SIGPIPE).ignoring(Signal::SIGCHLD);
        dlock.blocking(Signal::SIGUSR1).blocking(Signal::SIGTERM).blocking(Signal::SIGSEGV).new_session()
    };
    let wrapped = |dlock: Dlock| {
        let setpriv = ["setpriv", "--no-new-privs", "--inh-caps=-all"];
        dlock.wrapped_by(["nice", "-n", "5"].into_iter().chain(setpriv)).new_process_group()
    };
    for change in [&plain as &dyn Fn(Dlock) -> Dlock, &changed, &wrapped] {
        let files = FILES.map(|name| format!("/proc/self/{name}"));
        let start = |dlock: Dlock| change(dlock.command(["cat"].into_iter().chain(files.iter().map(|file| &file[..]))));
        let without = start(scratch.dlock()).bare().output();
        without.success();
        for (way, dlock) in ways(&scratch, &redis) {
            let with = start(dlock).output();
            with.success();
            let (mut seen, mut expected) = (seen_in_proc(&with), seen_in_proc(&without));
            // A new group or session has a number of its own.
            for lines in [&mut seen, &mut expected] {
                assert!(lines.iter().any(|line| line.starts_with("SigIgn:")), "{lines:?}");
                lines.retain(|line| !line.starts_with("NSpgid:") && !line.starts_with("NSsid:"));
                lines.drain(..2);
            }
            assert_eq!(seen, expected, "{way}");
        }
    }
}

/// On an overloaded machine, a guard that waits for a processor would miss its deadline.
#[test]
fn the_guard_goes_before_all_others_where_the_user_may_and_its_command_does_not() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let usual = (0, libc::SCHED_OTHER);
    let none: fn(Dlock) -> Dlock = |dlock| dlock;
    let realtime: fn(Dlock) -> Dlock = |dlock| dlock.wrapped_by(["chrt", "--fifo", "10"]);
    let mut cases = vec![(Dlock::unprivileged as fn(Dlock) -> Dlock, usual, usual)];
    if process::is_root() {
        cases.push((none, usual, (1, libc::SCHED_RR)));
        cases.push((realtime, (10, libc::SCHED_FIFO), (11, libc::SCHED_RR)));
    }
    for (start, command, guard) in cases {
        let dlock = scratch.dlock().run("k").backend(redis.url()).command(["cat"]).stdin(Stdio::piped());
        let mut dlock = start(dlock).spawn();
        let of = process::scheduling;
        assert_eq!(of(dlock.command_pid()), Some(command));
        eventually("the guard to have its turn", || (of(dlock.guard_pid()) == Some(guard)).then_some(()));
        assert_eq!(of(dlock.dlock_pid()), Some(command));
        drop(dlock.take_stdin());
        dlock.wait().success();
    }
}

#[test]
fn it_stays_in_the_callers_group_session_and_directory() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    for (way, dlock) in ways(&scratch, &redis) {
        let dlock = dlock.command(["cat"]).current_dir("/proc").stdin(Stdio::piped()).spawn();
        let (command, guard, me) = (dlock.command_pid(), dlock.guard_pid(), std::process::id().cast_signed());
        for pid in [dlock.pid(), command] {
            assert_eq!(process::pgrp(pid), process::pgrp(me), "{way}");
            assert_eq!(process::session(pid), process::session(me), "{way}");
        }
        // A signal to the whole group does not reach the process that watches the command.
        let is_away = || process::pgrp(guard) != process::pgrp(me);
        eventually("the guard to leave the group", || is_away().then_some(()));
        let listener = eventually("a listener", || process::children(guard).into_iter().find(|&pid| is_listener(pid)));
        assert_eq!(process::pgrp(listener), process::pgrp(me), "{way}");
        assert_eq!(process::cwd(command).unwrap().to_str(), Some("/proc"), "{way}");
    }
}

/// A `cat` that has come so far that it has nothing open but what it inherited.
#[track_caller]
fn wait_settled(cat: &mut Running) -> impl Sized + use<> {
    let mut stdin = cat.take_stdin();
    stdin.write_all(b"settled\n").unwrap();
    cat.wait_stdout("settled");
    stdin
}

/// Started with the writing end of `pipe` as descriptor 9.
fn with_fd_9(dlock: Dlock, pipe: &Fifo) -> Dlock {
    dlock.wrapped_by(["sh", "-c", &format!("exec 9>'{}'; exec \"$@\"", pipe.path().display()), "sh"])
}

#[test]
fn its_descriptors_are_the_callers_and_on_file_the_lock() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    // The numbers, and what a descriptor leads to but for the number of a pipe.
    let open = |pid| -> BTreeMap<i32, String> {
        let kind = |target: String| target.split(":[").next().unwrap().to_owned();
        process::fds(pid).into_iter().map(|(fd, target)| (fd, kind(target))).collect()
    };
    let pipe = Fifo::new(scratch.path("pipe"));
    let start = |dlock: Dlock| with_fd_9(dlock.command(["cat"]).stdin(Stdio::piped()), &pipe);
    let mut bare = start(scratch.dlock()).bare().spawn();
    let _stdin = wait_settled(&mut bare);
    let expected = open(bare.pid());
    assert!([0, 1, 2, 9].iter().all(|fd| expected.contains_key(fd)), "{expected:?}");
    for (way, dlock) in ways(&scratch, &redis) {
        let mut dlock = start(dlock).spawn();
        let stdin = wait_settled(&mut dlock);
        let mut seen = open(dlock.command_pid());
        if way == "file" {
            let lock = scratch.lock_dir().join("k.lock");
            let extra = seen.iter().find(|(_, target)| OsStr::new(target) == lock).map(|(&fd, _)| fd);
            seen.remove(&extra.unwrap_or_else(|| panic!("no lock among {seen:?}")));
        }
        assert_eq!(seen, expected, "{way}");
        drop(stdin);
        dlock.wait().success();
    }
}

#[test]
fn dlock_and_guard_keep_none_of_the_commands_descriptors() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    for (way, dlock) in ways(&scratch, &redis) {
        let mut pipe = Fifo::new(scratch.path(way));
        let script = format!("exec 0<&- 1>&- 9>&-; {}; {}", words.say("closed"), gate.wait());
        let mut dlock = with_fd_9(dlock.shell(script).stdin(Stdio::piped()), &pipe).spawn();
        words.expect("closed");
        // A reader sees end-of-file, a writer sees that there is no reader any more.
        assert_eq!(dlock.wait_stdout_closed(), "");
        assert_eq!(pipe.closed(), [""; 0]);
        let mut stdin = dlock.take_stdin();
        eventually("an end of standard input", || stdin.write_all(b"x").err());
        assert!(dlock.is_running(), "{way}");
        gate.open();
        dlock.wait().success();
    }
}

#[test]
fn argv_is_exact() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let arguments: [&[u8]; 12] =
        [b"", b" ", b"a b", b"-n", b"--", b"--key", b"\xff\xfe\x80", b"\n\t\"'$HOME`*?\\", b"--help", b"-", b"", b"="];
    let mut expected = arguments.join(&0);
    expected.push(0);
    for (way, dlock) in ways(&scratch, &redis) {
        let script = ["sh", "-c", r#"for word; do printf '%s\0' "$word"; done"#, "sh"];
        let dlock = dlock.command(script).args(arguments.map(OsStr::from_bytes)).output();
        dlock.success();
        assert!(dlock.stdout_bytes() == expected, "{way}: {dlock:?}");
    }
    // Without `--` the options end at the command.
    let dlock = scratch.dlock().run("k").backend(scratch.file_url());
    dlock.args(["printf", "%s|", "-n", "--key", "x", "--", "-E"]).output().success().stdout_is("-n|--key|x|--|-E|");
}

/// As execvp(3) does it, and so flock(1).
#[test]
fn a_script_without_an_interpreter_is_run_by_the_shell() {
    let scratch = Scratch::new();
    let script = scratch.script("script", "echo \"$0 $*\"\n");
    let path = format!("/nowhere:{}", scratch.root().display());
    for name in [script.as_os_str(), OsStr::new("script")] {
        let dlock = scratch.dlock().run("k").backend(scratch.file_url()).env("PATH", &path);
        dlock.command([name, OsStr::new("a b")]).output().success().stdout_is(&format!("{} a b\n", script.display()));
    }
}

/// The environment that `env -0` printed.
fn environment(outcome: &Outcome) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pairs = outcome.stdout_bytes().split(|&byte| byte == 0).filter(|pair| !pair.is_empty());
    let split = |pair: &[u8]| {
        let end = pair.iter().position(|&byte| byte == b'=').unwrap();
        (pair[..end].to_vec(), pair[end + 1..].to_vec())
    };
    pairs.map(split).collect()
}

#[test]
fn the_environment_is_exact_but_for_what_is_documented() {
    let redis = Redis::with(["--requirepass", "hush"]);
    let scratch = Scratch::new();
    let odd = |dlock: Dlock| {
        let dlock = dlock.env("EMPTY", "").env("LINES", "a\nb = c\n").env("BASH_FUNC_x%%", "() {  :\n}");
        let dlock = dlock.env(OsStr::from_bytes(b"BYTES"), OsStr::from_bytes(b"\xff\x80")).env_remove("TMPDIR");
        let dlock = dlock.env("DLOCK_TOKEN", "1").env("DLOCK_TOKENS", "1 2").env("DLOCK_OWNER", "me");
        dlock.env("DLOCK_UNKNOWN", "kept").command(["env", "-0"])
    };
    let added = [
        "DLOCK_KEY",
        "DLOCK_TOKEN",
        "DLOCK_TOKENS",
        "DLOCK_OWNER",
        "DLOCK_LEASE_TTL",
        "DLOCK_BACKEND_KIND",
        "DLOCK_HELD",
    ];
    let without = environment(&odd(scratch.dlock()).bare().output());
    let address = format!("127.0.0.1:{}", redis.port());
    let by_password = || scratch.dlock().env("DLOCK_PASSWORD", "hush").run("k").backend(redis.url());
    let by_url = || scratch.dlock().env("DLOCK_BACKEND", redis.url_for("", "hush", 0)).run("k");
    let unused = || {
        let other = scratch.dlock().env("DLOCK_BACKEND", "redis://someone:hush@example.invalid/3");
        other.run("k").backend(scratch.file_url())
    };
    for (dlock, kind, backend) in [
        (by_password(), "redis", None),
        (by_url(), "redis", Some(address.as_str())),
        (unused(), "file", Some("example.invalid/3")),
    ] {
        let with = odd(dlock).output();
        with.code(0).stderr_is_one_line("DLOCK_UNKNOWN is not a variable of dlock");
        let mut seen = environment(&with);
        for name in added {
            let value = seen.remove(name.as_bytes()).unwrap_or_else(|| panic!("no {name}: {with:?}"));
            let value = String::from_utf8(value).unwrap();
            let fits = match name {
                "DLOCK_KEY" => value == "k",
                "DLOCK_BACKEND_KIND" => value == kind,
                "DLOCK_LEASE_TTL" => value == if kind == "file" { "0" } else { "30" },
                "DLOCK_TOKEN" | "DLOCK_TOKENS" => value.parse::<u64>().is_ok_and(|token| token > 1 && token < 1 << 53),
                "DLOCK_OWNER" => value != "me" && !value.is_empty(),
                _ => !value.is_empty(),
            };
            assert!(fits, "{name}={value}");
        }
        let url = seen.remove(b"DLOCK_BACKEND".as_slice()).map(|url| String::from_utf8(url).unwrap());
        assert_eq!(url.is_some(), backend.is_some(), "{url:?}");
        assert!(url.unwrap_or_default().contains(backend.unwrap_or_default()), "{with:?}");
        assert!(!with.stdout().contains("hush"), "{with:?}");
        let mut expected = without.clone();
        expected.retain(|name, _| !added.iter().any(|added| added.as_bytes() == name));
        assert_eq!(seen, expected);
    }
}

#[test]
fn closed_streams_stay_closed() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let mut words = Fifo::new(scratch.path("words"));
    let look = "open=; for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] && open=$open$fd; done; ";
    let script = format!("{look}{}; exit 3", words.say("open=$open"));
    for (closed, open) in [(&[0][..], "12"), (&[1], "02"), (&[2], "01"), (&[0, 1], "2"), (&[0, 1, 2], "")] {
        for (way, dlock) in ways(&scratch, &redis) {
            let dlock = closed.iter().fold(dlock.shell(&script), |dlock, &fd| dlock.without_fd(fd));
            let outcome = dlock.output();
            assert_eq!(words.word(), format!("open={open}"), "{way} without {closed:?}");
            outcome.code(3).quiet();
        }
        assert_free(&scratch, &scratch.file_url(), true);
        // Whatever dlock itself opens must not become one of the streams.
        let busy = scratch.dlock().run("k").backend(scratch.file_url()).shell(format!("exec {}", nested(&scratch)));
        let busy = closed.iter().fold(busy, |dlock, &fd| dlock.without_fd(fd));
        busy.output().code(75).quiet();
    }
}

/// A command that is refused the lock `k` of the dlock around it, because it hides that one.
fn nested(scratch: &Scratch) -> String {
    let dlock = *crate::support::dlock::DLOCK;
    format!("env -u DLOCK_HELD '{dlock}' run -q -n -k k -b '{}' -- true", scratch.file_url())
}

#[test]
fn messages_to_a_closed_standard_error_go_nowhere() {
    let scratch = Scratch::new();
    let no_url = scratch.dlock().run("k").backend("nonsense://").command(["true"]);
    let outcome = no_url.without_fd(0).without_fd(1).without_fd(2).output();
    outcome.code(64).quiet();
    let file = scratch.file("k", "kept");
    let full = scratch.dlock().run("k").backend(scratch.file_url()).command(["/nonexistent"]);
    full.without_fd(2).stdin(std::fs::File::open(&file).unwrap()).output().code(127).quiet();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "kept");
}

#[test]
fn nohup_protects_the_command() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    for (way, dlock) in ways(&scratch, &redis) {
        let mut dlock = dlock.command(["cat"]).stdin(Stdio::piped()).wrapped_by(["nohup"]).spawn();
        let stdin = wait_settled(&mut dlock);
        let command = dlock.command_pid();
        let ignored = u64::from_str_radix(&process::status(command, "SigIgn").unwrap(), 16).unwrap();
        assert_ne!(ignored & (1 << (Signal::SIGHUP as u64 - 1)), 0, "{way}");
        process::signal(dlock.dlock_pid(), Signal::SIGHUP);
        process::signal(command, Signal::SIGHUP);
        drop(stdin);
        dlock.wait().success();
    }
}

#[test]
fn with_a_lease_the_command_dies_with_its_guard() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let python = need_python("ctypes", "python3");
    let ask = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n.value)";
    for (way, dlock) in ways(&scratch, &redis) {
        let parent_death_signal = if way == "redis" { "9\n" } else { "0\n" };
        dlock.command([python.as_os_str(), OsStr::new("-c"), OsStr::new(ask)]).output().stdout_is(parent_death_signal);
    }
    let mut recorder = Recorder::new(&scratch);
    let dlock = scratch.dlock().run("k").backend(redis.url()).command([recorder.program()]).spawn();
    let command = recorder.ready();
    let guard = dlock.guard_pid();
    // A frozen dlock, so that it cannot be what ends the command.
    dlock.signal(Signal::SIGSTOP);
    process::wait_stopped(dlock.pid());
    process::signal(guard, Signal::SIGKILL);
    process::wait_gone(command);
    dlock.signal(Signal::SIGCONT);
    dlock.wait().code(70).stderr_is_one_line("guard process was killed");
    assert_free(&scratch, &redis.url(), true);
}

#[test]
fn on_file_the_command_goes_on_locked_until_dlock_sees_that_its_guard_is_gone() {
    let scratch = Scratch::new();
    let url = scratch.file_url();
    let mut recorder = Recorder::new(&scratch);
    let dlock = scratch.dlock().run("k").backend(&url).command([recorder.program()]).spawn();
    let command = recorder.ready();
    let guard = dlock.guard_pid();
    dlock.signal(Signal::SIGSTOP);
    process::wait_stopped(dlock.pid());
    process::signal(guard, Signal::SIGKILL);
    process::wait_gone(guard);
    assert_free(&scratch, &url, false);
    assert!(process::is_alive(command));
    dlock.signal(Signal::SIGCONT);
    recorder.expect(Signal::SIGTERM);
    recorder.expect(Signal::SIGCONT);
    recorder.end();
    dlock.wait().code(70).stderr_is_one_line("guard process was killed");
    assert_free(&scratch, &url, true);
}

/// Starts something that stays, and ends.
fn leaving(words: &Fifo, gate: &Gate) -> String {
    format!("setsid sh -c \"{}; {}; {}\" & ", words.say("$$"), gate.wait(), words.say("over"))
}

#[test]
fn what_was_left_behind_on_purpose_keeps_no_lock() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    for (way, dlock) in ways(&scratch, &redis) {
        // The shell ends only when the daemon has come up.
        let (mut up, ready) =
            (Fifo::new(scratch.path(format!("up {way}"))), Gate::new(scratch.path(format!("go {way}"))));
        let script = format!("{}{}; {}; exit 4", leaving(&words, &gate), up.say("up"), ready.wait());
        let dlock = dlock.shell(script.replace("$$", "\\$\\$")).spawn();
        up.expect("up");
        let daemon: i32 = words.word().parse().unwrap();
        let lock = scratch.lock_dir().join("k.lock");
        let has_lock = process::fds(daemon).values().any(|target| OsStr::new(target) == lock);
        assert_eq!(has_lock, way == "file", "{way}");
        ready.open();
        dlock.wait().code(4).quiet();
        assert!(process::is_alive(daemon), "{way}");
        let url = if way == "redis" { redis.url() } else { scratch.file_url() };
        assert_free(&scratch, &url, true);
        gate.open();
        words.expect("over");
    }
}

#[test]
fn with_close_the_guard_keeps_the_lock_of_a_dlock_that_was_killed() {
    let scratch = Scratch::new();
    let url = scratch.file_url();
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let (mut main, ready) = (Fifo::new(scratch.path("main")), Gate::new(scratch.path("go")));
    let script = format!("{}{}; {}", leaving(&words, &gate), main.say("up"), ready.wait());
    let dlock = scratch.dlock().run("k").backend(&url).arg("-o").shell(script.replace("$$", "\\$\\$")).spawn();
    main.expect("up");
    let child: i32 = words.word().parse().unwrap();
    let (command, guard) = (dlock.command_pid(), dlock.guard_pid());
    dlock.signal(Signal::SIGKILL);
    dlock.wait().signal(Signal::SIGKILL).quiet();
    assert_free(&scratch, &url, false);
    ready.open();
    process::wait_gone(command);
    assert_free(&scratch, &url, false);
    assert!(process::is_alive(child));
    gate.open();
    words.expect("over");
    process::wait_gone(guard);
    assert_free(&scratch, &url, true);
}

/// A dlock that is the first process of a PID namespace of its own.
fn as_pid_1(dlock: Dlock) -> Dlock {
    need("unshare", "util-linux");
    dlock.wrapped_by(["unshare", "-rpf", "--mount-proc"])
}

#[test]
fn as_pid_1_it_passes_the_end_on() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    for (end, code) in [("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("exit 0", 0)] {
        for (_, dlock) in ways(&scratch, &redis) {
            as_pid_1(dlock.shell(format!("[ $PPID != 1 ] || exit 99; {end}"))).output().code(code).quiet();
        }
    }
}

#[test]
fn as_pid_1_it_passes_signals_on_and_leaves_no_zombies() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let mut words = Fifo::new(scratch.path("words"));
    let mut recorder = Recorder::new(&scratch);
    for (way, dlock) in ways(&scratch, &redis) {
        // A child whose parent is gone, and that then ends itself.
        let orphan = format!("({} &); exec '{}'", words.say("orphan"), recorder.program().display());
        let outer = as_pid_1(dlock.shell(orphan)).spawn();
        words.expect("orphan");
        recorder.ready();
        let (dlock, guard, command) = (outer.dlock_pid(), outer.guard_pid(), outer.command_pid());
        let children = |parent| process::all().into_iter().filter(move |&pid| process::ppid(pid) == Some(parent));
        eventually("no zombies", || children(guard).all(|pid| pid == command || is_listener(pid)).then_some(()));
        eventually("no zombies", || children(dlock).all(|pid| pid == guard).then_some(()));
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            process::signal(dlock, signal);
            recorder.expect(signal);
        }
        // Nobody could continue a first process that has stopped.
        process::signal(command, Signal::SIGSTOP);
        process::wait_stopped(command);
        process::signal(command, Signal::SIGCONT);
        recorder.expect(Signal::SIGCONT);
        assert_ne!(process::state(dlock), State::Stopped, "{way}");
        // The recorder knows only its number in there.
        process::signal(command, Signal::SIGALRM);
        outer.wait().code(RECORDER_CODE).quiet();
    }
}

#[test]
fn a_child_from_before_is_not_the_commands() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let mut words = Fifo::new(scratch.path("words"));
    let mut recorder = Recorder::new(&scratch);
    let before = format!("sleep 1000 & {}; exec \"$@\"", words.say("$!"));
    for (way, dlock) in ways(&scratch, &redis) {
        for kill_guard in [false, true] {
            let dlock = scratch.dlock().run("k").args(match way {
                "redis" => vec!["--backend".to_owned(), redis.url()],
                "file" => vec!["--backend".to_owned(), scratch.file_url()],
                _ => vec!["-o".to_owned(), "--backend".to_owned(), scratch.file_url()],
            });
            let dlock = dlock.command([recorder.program()]).wrapped_by(["sh", "-c", &before, "sh"]).spawn();
            let exporter: i32 = words.word().parse().unwrap();
            recorder.ready();
            if kill_guard {
                let mut children = process::children(dlock.pid()).into_iter();
                let guard = children.rfind(|&pid| pid != exporter).unwrap();
                process::signal(guard, Signal::SIGKILL);
                if way != "redis" {
                    recorder.expect(Signal::SIGTERM);
                    recorder.expect(Signal::SIGCONT);
                    recorder.end();
                }
                dlock.wait().code(70).stderr_is_one_line("guard process was killed");
            } else {
                recorder.end();
                dlock.wait().code(RECORDER_CODE).quiet();
            }
            assert!(process::is_alive(exporter), "{way}");
            process::signal(exporter, Signal::SIGKILL);
        }
        drop(dlock);
    }
}

#[test]
fn without_room_for_a_process_nothing_is_run_and_nothing_is_held() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    scratch.lock_dir();
    scratch.give_away("locks");
    // In its own user namespace the processes of others do not count, and these do not count elsewhere.
    let limited = |url: &str, processes: u32| {
        let limit = format!("--nproc={processes}");
        let dlock = scratch.dlock().run("k").backend(url).arg("-v").command(["echo", "ran"]).unprivileged();
        dlock.wrapped_by(["unshare", "-r", "prlimit", &limit]).output()
    };
    for url in [scratch.file_url(), redis.url()] {
        // dlock alone; with its guard.
        for processes in [1, 2] {
            let outcome = limited(&url, processes);
            outcome.code(69).stdout_is("");
            let said = outcome.stderr();
            let said: Vec<&str> =
                said.lines().filter(|line| !line.contains(" acquired ") && !line.contains(" released ")).collect();
            assert!(said.len() == 1 && said[0].starts_with("dlock: could not "), "{outcome:?}");
        }
        limited(&url, 3).code(0).stdout_is("ran\n").stderr_ends_with_line("released 'k'");
    }
    // A name is looked up in a thread.
    let named = limited(&redis.url().replace("127.0.0.1", "localhost"), 2).code(69).stdout_is("").stderr();
    assert!(
        named.ends_with("no thread could be started to look up its name; raise the limit (ulimit -u)\n"),
        "{named}"
    );
    // A wait on file takes a thread.
    let holder = scratch.dlock().run("k").backend(scratch.file_url()).command(["cat"]).unprivileged();
    let mut holder = holder.stdin(Stdio::piped()).spawn();
    let stdin = wait_settled(&mut holder);
    limited(&scratch.file_url(), 2).code(73).stdout_is("").stderr_is_one_line("could not ");
    drop(stdin);
    holder.wait().code(0).quiet();
}

#[test]
fn without_descriptors_nothing_runs_unlocked() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let file = scratch.lock_dir().join("k.lock");
    // Looks without opening anything.
    let look = format!(
        "for fd in 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do [ /proc/$$/fd/$fd -ef '{}' ] && exit 0; done; exit 9",
        file.display()
    );
    // What is inherited stays open in the guard until the command has it.
    for inherit in ["", "exec 3</dev/null 4</dev/null 5</dev/null 6</dev/null 7</dev/null 8</dev/null; "] {
        let mut ran = 0;
        // With fewer the loader cannot open a library.
        for limit in if inherit.is_empty() { 4..=14 } else { 10..=20 } {
            for (url, script) in [(scratch.file_url(), look.as_str()), (redis.url(), "exit 0")] {
                let limited = format!("{inherit}ulimit -n {limit}; exec \"$@\"");
                let dlock = scratch.dlock().run("k").backend(&url).shell(script);
                let outcome = dlock.wrapped_by(["sh", "-c", &limited, "sh"]).output();
                match outcome.status().code() {
                    Some(0) => ran += usize::from(outcome.quiet().stdout().is_empty()),
                    Some(69 | 73) => drop(outcome.stderr_is_one_line("could not ")),
                    _ => panic!("with {limit} descriptors: {outcome:?}"),
                }
                assert_free(&scratch, &url, true);
            }
        }
        assert!(ran > 0, "that many descriptors are not enough for anything");
    }
    assert!(scratch.processes().is_empty());
}

/// Runs its arguments, and says whether that left it any child, as the first process of a container would be left one.
const HEIR: &str = "\
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
try:
    print('inherited', os.waitpid(-1, 0))
except ChildProcessError:
    print('nothing', code)
";

#[test]
fn whoever_inherits_orphans_inherits_no_guard() {
    let scratch = Scratch::new();
    let held = scratch.dlock().run("held").backend(scratch.file_url()).command(["cat"]).stdin(Stdio::piped()).spawn();
    held.command_pid();
    for (key, code) in [("free", 7), ("held", 75)] {
        let dlock = scratch.dlock().run(key).backend(scratch.file_url()).args(["-n", "-q"]).shell("exit 7");
        dlock.wrapped_by(["python3", "-c", HEIR]).output().success().stdout_is(&format!("nothing {code}\n"));
    }
}

#[test]
fn the_guard_is_not_called_dlock() {
    let scratch = Scratch::new();
    let dlock = scratch.dlock().run("k").backend(scratch.file_url()).command(["cat"]).stdin(Stdio::piped()).spawn();
    dlock.command_pid();
    assert_eq!(process::comm(dlock.pid()).as_deref(), Some("dlock"));
    let guard = process::comm(dlock.guard_pid()).unwrap();
    assert!(!guard.contains("dlock") && !guard.is_empty(), "{guard}");
    let arguments = process::cmdline(dlock.guard_pid()).join(" ");
    assert!(!arguments.contains("dlock") && arguments.starts_with(&guard), "{arguments}");
}
