//! Where the lines go: files, descriptors, variables, config files; and who has the descriptor.

use std::os::unix::fs::PermissionsExt;

use crate::events::sequences::gated;
use crate::events::{ended, happened, journal, lines};
use crate::support::process;
use crate::support::service::{FileService, Gated, RedisService, Service};

#[test]
fn neither_the_command_nor_the_guard_has_the_journal_and_a_run_inside_is_not_told_of_a_descriptor() {
    let service = FileService::fresh();
    let path = journal(&service, "events");
    let has = |pid: i32| process::fds(pid).values().any(|place| *place == path.display().to_string());
    let expect = |gated: &Gated| {
        let (guard, command) = (gated.running.guard_pid(), gated.running.command_pid());
        assert_eq!([gated.pid(), guard, command].map(has), [true, false, false]);
        assert!(gated.running.ear_pid().is_none_or(|ear| !has(ear)));
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
