//! Wrong usage of handles: refused in one line, and nothing is taken.

use crate::locks::handles::{acquire, by, run_by, taken};
use crate::support::scratch::Scratch;
use crate::support::service::{FileService, RedisService, Service, ZooKeeperService};

fn no_handles<S: Service>(service: &S) {
    let outcome = acquire(service, "job", "30s").output();
    outcome.code(64).stdout_is("").stderr_is_one_line("a lock there ends with the process that holds it");
    service.assert_tidy(&[]);
    let shell = acquire(service, "job", "30s").arg("--shell").output();
    shell
        .code(64)
        .stdout_is("unset DLOCK_HANDLE DLOCK_HANDLE_SHELL DLOCK_KEY DLOCK_TOKEN DLOCK_OWNER; (exit 64)\n")
        .stderr_is_one_line("a lock there ends with the process that holds it");
}

#[test]
fn a_lock_that_ends_with_its_process_has_no_handle() {
    no_handles(&FileService::fresh());
    no_handles(&ZooKeeperService::fresh());
}

#[test]
fn what_is_no_handle_is_wrong_usage() {
    let scratch = Scratch::new();
    for (handle, part) in [
        ("dlock2_abc", "made by a newer dlock"),
        ("dlock1_abc", "it is damaged"),
        ("(exit 75)", "it is not a handle"),
        ("redis://h", "it is not a handle"),
    ] {
        for words in [&["renew", handle][..], &["release", handle], &["run", "--handle", handle, "--", "echo", "ran"]] {
            let outcome = scratch.dlock().args(words).output();
            outcome.code(64).stdout_is("").stderr_is_one_line(part);
            assert!(!outcome.stderr().contains(handle) || handle.len() < 10, "{outcome:?}");
        }
        scratch.dlock().arg("release").env("DLOCK_HANDLE", handle).output().code(64).stderr_is_one_line(part);
    }
    for words in [&["renew"][..], &["release"]] {
        scratch.dlock().args(words).output().code(64).stderr_is_one_line("there is no handle: ");
    }
    scratch.dlock().args(["renew", ""]).output().code(64).stderr_is_one_line("the handle is empty");
    let run = scratch.dlock().args(["run", "--handle", "", "--", "echo", "ran"]);
    run.output().code(64).stdout_is("").stderr_is_one_line("it is empty");
    // An empty variable is none.
    let run = scratch.dlock().args(["run", "--", "echo", "ran"]).env("DLOCK_HANDLE", "");
    run.output().code(64).stdout_is("").stderr_is_one_line("is missing");
}

#[test]
fn what_a_handle_says_is_not_said_again() {
    let service = RedisService::fresh();
    let handle = taken(&service, "job", "30s");
    let url = service.url();
    for words in [
        &["--key", "job"][..],
        &["--backend", &url],
        &["--namespace", "other"],
        &["--ttl", "30s"],
        &["--shared"],
        &["--slots", "2"],
        &["--min-hold", "1s"],
        &["--lock-delay", "1s"],
        &["--once-per", "1h"],
        &["--reason", "mine"],
    ] {
        let outcome = run_by(&service, &handle).args(words).command(["echo", "ran"]).output();
        outcome.code(64).stdout_is("").stderr_is_one_line("are mutually exclusive");
    }
    // A variable is for all runs, and does not count.
    let run = run_by(&service, &handle).env("DLOCK_TTL", "7s").env("DLOCK_BACKEND", "file:").env("DLOCK_SHARED", "1");
    run.shell("echo $DLOCK_LEASE_TTL").output().success().stdout_is("30\n");
    for what in ["renew", "release"] {
        for words in [&["--backend", url.as_str()][..], &["--namespace", "other"], &["--key", "job"]] {
            by(&service, what, &handle).args(words).output().code(64).stderr_is_one_line("there is no option ");
        }
    }
    service.assert_held("job");
}

#[test]
fn how_long_it_lasts_must_be_said_and_may_be_a_day() {
    let service = RedisService::fresh();
    let acquire = || service.scratch().dlock().args(["acquire", "--key", "job"]).backend(service.url());
    acquire().output().code(64).stdout_is("").stderr_is_one_line("--ttl is missing");
    acquire().env("DLOCK_TTL", "30s").output().code(64).stderr_is_one_line("--ttl is missing");
    for (ttl, part) in [("0.5", "at least 1s"), ("25h", "at most 24h"), ("soon", "not a duration")] {
        acquire().args(["--ttl", ttl]).output().code(64).stdout_is("").stderr_is_one_line(part);
    }
    let both = acquire().args(["--ttl", "30s", "--json", "--shell"]).output();
    both.code(64)
        .stdout_is("unset DLOCK_HANDLE DLOCK_HANDLE_SHELL DLOCK_KEY DLOCK_TOKEN DLOCK_OWNER; (exit 64)\n")
        .stderr_is_one_line("--shell and --json are mutually exclusive");
    service.assert_tidy(&[]);
    let handle = taken(&service, "job", "24h");
    by(&service, "release", &handle).output().success();
}

/// A script that goes on after `|| exit` has the lock.
#[test]
fn no_setting_makes_a_success_of_a_lock_that_was_not_taken() {
    let service = RedisService::fresh();
    let handle = taken(&service, "job", "1m");
    let again = || acquire(&service, "job", "1m").arg("-n");
    again().args(["-E", "0"]).output().code(64).stdout_is("").stderr_is_one_line("use another number");
    again().args(["-E", "3"]).output().code(3).stdout_is("").stderr_is_one_line("did not get 'job'");
    let file = service.scratch().secret("config.toml", "conflict-exit-code = 0\nquiet = true\n");
    again()
        .env("DLOCK_CONFLICT_EXIT_CODE", "0")
        .output()
        .code(75)
        .stdout_is("")
        .stderr_is_one_line("did not get 'job'");
    again().env("DLOCK_CONFIG", &file).output().code(75).stdout_is("").quiet();
    again()
        .env("DLOCK_CONFIG", &file)
        .arg("--shell")
        .output()
        .code(75)
        .stdout_is("unset DLOCK_HANDLE DLOCK_HANDLE_SHELL DLOCK_KEY DLOCK_TOKEN DLOCK_OWNER; (exit 75)\n")
        .quiet();
    // Nor do they hide what was asked for.
    let status = service.scratch().dlock().args(["status", "--key", "job"]).backend(service.url());
    assert!(status.env("DLOCK_CONFIG", &file).output().code(75).quiet().stdout().contains("taken by dlock acquire"));
    by(&service, "release", &handle).output().success();
}

#[test]
fn a_backend_that_does_not_answer_is_69_and_says_until_when_the_lock_lasts() {
    let service = RedisService::fresh();
    let handle = taken(&service, "job", "10m");
    service.redis.stop();
    let within = |what: &str| by(&service, what, &handle).args(["--connect-timeout", "0.3"]).output();
    within("release").code(69).stdout_is("").stderr_is_one_line("the lock will expire on its own within 10m");
    within("renew").code(69).stdout_is("").stderr_is_one_line("could not renew 'job': ");
    let run = run_by(&service, &handle).args(["--connect-timeout", "0.3"]).command(["echo", "ran"]);
    run.output().code(69).stdout_is("").stderr_is_one_line("could not renew 'job': ");
    service.redis.cont();
    // The release that was not answered may have been carried out.
    by(&service, "release", &handle).output().code(0).stderr();
    service.assert_free("job");
}

#[test]
fn the_password_is_in_no_handle_and_comes_from_elsewhere() {
    let service = RedisService::fresh();
    service.redis.cli(&["CONFIG", "SET", "requirepass", "geheim"]);
    let url = service.url().replace("redis://", "redis://:geheim@");
    let scratch = service.scratch();
    let outcome = scratch.dlock().args(["acquire", "-k", "job", "--ttl", "30s", "--json"]).backend(url).output();
    outcome.success();
    let document: serde_json::Value = serde_json::from_str(&outcome.stdout()).unwrap();
    assert!(!outcome.stdout().contains("geheim"), "{outcome:?}");
    let handle = document["handle"].as_str().unwrap();
    scratch.dlock().args(["renew", handle]).output().code(77).stderr_is_one_line("could not renew 'job': ");
    scratch.dlock().args(["release", handle]).output().code(77).stderr_is_one_line("could not release 'job': ");
    let file = scratch.secret("password", "geheim\n");
    let with = |what: &str| scratch.dlock().args([what, handle]).arg("--password-file").arg(&file);
    with("renew").output().success();
    with("release").output().success();
}

#[test]
fn what_config_files_say_does_not_change_which_lock_it_is() {
    let service = RedisService::fresh();
    let scratch = service.scratch();
    service.redis.cli(&["CONFIG", "SET", "requirepass", "geheim"]);
    let text =
        format!("backend = \"{}\"\n[profile.ci]\npassword = \"geheim\"\nttl = \"7s\"\nwait = \"1s\"\n", service.url());
    let config = scratch.secret("config.toml", text);
    let dlock = || scratch.dlock().env("DLOCK_CONFIG", &config).env("DLOCK_PROFILE", "ci");
    let acquire = || dlock().args(["acquire", "-k", "job", "--ttl", "30s"]);
    let outcome = acquire().output();
    outcome.success();
    let handle = outcome.stdout().trim_end().to_owned();
    acquire().output().code(75).stderr_ends_with_line("did not get 'job' within 1s: ");
    let other = scratch.secret(
        "config.toml",
        "backend = \"file:\"\nnamespace = \"other\"\n[profile.ci]\npassword = \"geheim\"\nttl = \"7s\"\n",
    );
    assert_eq!(other, config);
    let by_variable = || dlock().env("DLOCK_HANDLE", &handle);
    by_variable().args(["run", "--", "sh", "-c", "echo $DLOCK_LEASE_TTL"]).output().success().stdout_is("30\n");
    by_variable().arg("renew").output().success();
    dlock().args(["renew", "--profile", "ci", &handle]).output().success();
    dlock().args(["run", "--handle", &handle, "--", "true"]).output().success();
    by_variable().arg("release").output().success();
    let wrong = scratch.secret("wrong.toml", format!("handle = \"{handle}\"\n"));
    let config = scratch.dlock().env("DLOCK_CONFIG", &wrong).arg("config").output();
    config.code(78).stderr_is_one_line("wrong.toml:1: ");
}

#[test]
fn a_handle_that_nobody_reads_is_given_back() {
    let service = RedisService::fresh();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let outcome = acquire(&service, "job", "10m").stdout(full).output();
    outcome.code(74).stderr_is_one_line("could not write to standard output");
    service.assert_free("job");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let outcome = acquire(&service, "job", "10m").stdout(writer).output();
    outcome.code(74).stderr_is_one_line("could not write to standard output");
    service.assert_free("job");
}
