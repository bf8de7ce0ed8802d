//! Where the lines go: files, descriptors, variables, config files; and who has the descriptor.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use crate::cli::config::with_etc;
use crate::cli::events::sequences::gated;
use crate::cli::events::{ended, happened, journal, lines};
use crate::support::process;
use crate::support::rendezvous::{eventually, make_fifo};
use crate::support::service::{FileService, Gated, RedisService, Service};

#[test]
fn neither_the_command_nor_the_guard_has_the_journal_and_a_run_inside_is_not_told_of_a_descriptor() {
    let service = FileService::fresh();
    let path = journal(&service, "events");
    let has = |pid: i32| process::fds(pid).values().any(|place| *place == path.display().to_string());
    let expect = |gated: &Gated| {
        let (guard, command) = (gated.running.guard_pid(), gated.running.command_pid());
        // They close it once the command is on its way.
        let listener = gated.running.listener_pid();
        let is_closed = || !has(guard) && listener.is_none_or(|listener| !has(listener));
        eventually("the guard and its listener to let go of the journal", || is_closed().then_some(()));
        assert_eq!([gated.pid(), command].map(has), [true, false]);
        process::environ(command).remove("DLOCK_EVENTS")
    };
    let by_name = gated(&service, "events", &[]);
    assert_eq!(expect(&by_name), None);
    by_name.let_go().success();
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    let run = service.run("job").env("DLOCK_EVENTS", "fd:93").with_fd(file, 93);
    let by_number = Gated::spawn(service.scratch(), run);
    by_number.wait_held();
    assert_eq!(expect(&by_number), None);
    by_number.let_go().success();
    // A file is a run's own business: what runs inside writes there too.
    let by_variable = Gated::spawn(service.scratch(), service.run("job").env("DLOCK_EVENTS", &path));
    by_variable.wait_held();
    assert_eq!(expect(&by_variable), Some(path.display().to_string()));
    by_variable.let_go().success();
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 15);
}

#[test]
fn a_file_is_made_for_its_owner_alone_and_opened_before_anything_is_acquired() {
    let service = RedisService::fresh();
    let run = |place: &str| service.run("job").umask(0o022).args(["--events", place]).command(["echo", "ran"]).output();
    run("events").code(0);
    let meta = std::fs::metadata(journal(&service, "events")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let held = service.hold("job");
    for (place, code, why) in [
        ("none/events", 73, "could not open none/events for --events: No such file or directory"),
        (".", 73, "could not open . for --events: Is a directory"),
        ("fd:77", 73, "could not open fd:77 for --events: that descriptor is not open"),
        ("fd:2", 64, "--events fd:2: the standard descriptors are the command's own: use fd:3 or a higher one"),
        ("-", 64, "--events -: standard output is the command's: name a file, or fd:N"),
    ] {
        run(place).code(code).stdout_is("").stderr_is_one_line(why);
    }
    let file = std::fs::File::open(journal(&service, "events")).unwrap();
    let closed = service.run("job").args(["--events", "fd:93"]).with_fd(file, 93).command(["true"]).output();
    closed.code(73).stderr_is_one_line("that descriptor is not open for writing");
    held.let_go().success();
    let acquire = service.scratch().dlock().args(["acquire", "-k", "job", "--ttl", "1m", "--events", "none/events"]);
    acquire.backend(service.url()).output().code(73).stderr_is_one_line("could not open none/events for --events");
    service.assert_free("job");
}

#[test]
fn a_config_file_names_a_file_beside_itself_and_no_descriptor() {
    let service = FileService::fresh();
    let config = |text: &str| service.scratch().secret("config.toml", text);
    let place = config("events = \"events\"\n");
    let run = || service.run("job").env("DLOCK_CONFIG", &place);
    run().command(["true"]).output().success();
    let lines = lines(&journal(&service, "events"));
    assert_eq!(happened(&lines), ["acquired", "started", "exited", "released", "end"]);
    ended(&lines, 0);
    config("events = \"fd:3\"\n");
    let refused = run().command(["true"]).output();
    refused.code(78).stderr_is_one_line("name a file: descriptors are only for the command line");
}

/// A user whom nobody knows.
const ANNA: u32 = 42_001;

#[test]
fn root_follows_no_link_of_another_user_and_writes_to_none_of_their_files() {
    if !process::is_root() {
        return;
    }
    let service = RedisService::fresh();
    let scratch = service.scratch();
    let (open, closed) = (scratch.directory("open", 0o777), scratch.directory("closed", 0o755));
    let target = scratch.file("target", "kept\n");
    let link = |to: &Path, at: &Path, owner: u32| {
        symlink(to, at).unwrap();
        lchown(at, Some(owner), None).unwrap();
    };
    link(&target, &open.join("link"), ANNA);
    link(&scratch.path("none"), &open.join("dangling"), ANNA);
    link(&closed, &open.join("way"), ANNA);
    link(&open.join("link"), &open.join("twice"), 0);
    fs::write(open.join("theirs"), "").unwrap();
    make_fifo(&open.join("fifo"));
    for name in ["theirs", "fifo"] {
        chown(open.join(name), Some(ANNA), None).unwrap();
    }
    fs::hard_link(&target, open.join("second")).unwrap();
    let run = |place: &Path| service.run("job").arg("--events").arg(place).command(["true"]).output();
    for (name, why) in [
        ("link", "link is a symbolic link of another user, which is not followed"),
        ("dangling", "dangling is a symbolic link of another user"),
        ("way/events", "way is a symbolic link of another user"),
        ("twice", "link is a symbolic link of another user"),
        ("theirs", "it belongs to another user"),
        ("fifo", "it belongs to another user"),
        ("second", "it has a second name, and other users can write the directory"),
    ] {
        run(&open.join(name)).code(73).stderr_is_one_line(why);
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept\n");
    assert!(!scratch.path("none").exists() && !closed.join("events").exists());
    // Links of root, and whatever is where only root can put it.
    link(&closed, &open.join("ours"), 0);
    link(&target, &closed.join("link"), ANNA);
    run(&open.join("ours/events")).success();
    run(&closed.join("link")).success();
    assert_eq!(lines(&closed.join("events")).len(), 5);
    assert_eq!(fs::read_to_string(&target).unwrap().lines().count(), 6);
}

#[test]
fn a_user_follows_no_link_that_a_stranger_has_put_where_everybody_writes() {
    if !process::is_root() {
        return;
    }
    let service = RedisService::fresh();
    let scratch = service.scratch();
    let (open, closed) = (scratch.directory("open", 0o777), scratch.directory("closed", 0o755));
    for directory in [&open, &closed] {
        symlink(scratch.directory("theirs", 0o777).join("events"), directory.join("link")).unwrap();
        lchown(directory.join("link"), Some(ANNA), None).unwrap();
    }
    let run = |place: &Path| service.run("job").unprivileged().arg("--events").arg(place).command(["true"]).output();
    run(&open.join("link")).code(73).stderr_is_one_line("link is a symbolic link of another user");
    assert!(!scratch.path("theirs/events").exists());
    run(&closed.join("link")).success();
    assert_eq!(lines(&scratch.path("theirs/events")).len(), 5);
}

#[test]
fn descriptors_are_reached_by_their_paths_whoever_owns_what_they_lead_to() {
    let service = RedisService::fresh();
    let out = service.run("job").args(["--events", "/dev/stdout"]).command(["true"]).output();
    assert_eq!(out.code(0).stdout().lines().count(), 5, "{out:?}");
    for place in ["/dev/fd/93", "/proc/self/fd/93"] {
        let path = service.scratch().path("log");
        let file = File::create(&path).unwrap();
        if process::is_root() {
            chown(&path, Some(ANNA), None).unwrap();
        }
        let run = service.run("job").args(["--events", place]).with_fd(file, 93);
        run.command(["true"]).output().success();
        assert_eq!(lines(&path).len(), 5, "{place}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_file_that_is_named_for_all_users_ends_no_run_of_those_who_cannot_open_it() {
    let service = RedisService::fresh();
    let scratch = service.scratch();
    fs::create_dir_all(scratch.path("etc/dlock")).unwrap();
    fs::write(scratch.path("etc/dlock/config.toml"), "events = \"/none/events\"\n").unwrap();
    let run = || with_etc(scratch, service.run("job").env_remove("DLOCK_CONFIG"));
    let told = "could not open /none/events for the events of all users: No such file";
    run().command(["echo", "ran"]).output().code(0).stdout_is("ran\n").stderr_is_one_line(told);
    run().arg("-q").command(["true"]).output().success().quiet();
    let typed = run().args(["--events", "/none/events"]).command(["true"]).output();
    typed.code(73).stderr_is_one_line("could not open /none/events for --events: No such file");
    let own = scratch.secret("config.toml", "events = \"/none/events\"\n");
    run().env("DLOCK_CONFIG", own).command(["true"]).output().code(73).stderr_is_one_line("for --events");
}
