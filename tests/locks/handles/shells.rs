//! Handles in scripts: `--shell` read by shells, and steps that are processes of their own, as CI systems run them.

use std::process::{Command, Output};

use nix::sys::signal::Signal;

use crate::locks::handles::{by, taken};
use crate::support::dlock::DLOCK;
use crate::support::process;
use crate::support::servers::need;
use crate::support::service::{RedisService, Service};

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh"];

/// Runs `script` in a shell that knows dlock as `dlock`.
fn in_shell(service: &RedisService, shell: &str, script: &str, variables: &[(&str, &str)]) -> Output {
    shell_of(service, shell, script, variables).output().unwrap()
}

fn shell_of(service: &RedisService, shell: &str, script: &str, variables: &[(&str, &str)]) -> Command {
    let directory = std::path::Path::new(*DLOCK).parent().unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(need(shell, shell));
    command
        .args(["-c", script])
        .env_clear()
        .envs([("PATH", path.as_str()), ("DLOCK_CONFIG", "/dev/null"), ("DLOCK_BACKEND", &service.url())])
        .envs(variables.iter().copied())
        .current_dir(service.scratch().root());
    command
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn what_is_printed_for_a_shell_is_read_by_every_shell() {
    let service = RedisService::fresh();
    let key = "it's a \"$(key)\" \\ with * blanks";
    for shell in SHELLS {
        let script = r#"
            eval "$(dlock acquire -k "$K" --ttl 30s --shell)" || exit
            [ "$DLOCK_KEY" = "$K" ] || exit 90
            sh -c 'echo "$DLOCK_TOKEN" "$DLOCK_OWNER"'
            dlock run -- sh -c 'echo "$DLOCK_TOKEN" "$DLOCK_OWNER"'
            dlock renew && dlock release"#;
        let output = in_shell(&service, shell, script, &[("K", key)]);
        let (code, printed) = said(&output);
        assert!(code == Some(0) && output.stderr.is_empty(), "{shell}: {output:?}");
        let lines: Vec<&str> = printed.lines().collect();
        assert!(lines.len() == 2 && lines[0] == lines[1] && lines[0].len() > 40, "{shell}: {printed}");
    }
    service.assert_free(key);
}

#[test]
fn a_shell_does_not_go_on_without_the_lock() {
    let service = RedisService::fresh();
    let holder = service.hold("job");
    for shell in SHELLS {
        for (options, code) in [("-n -q", 75), ("-n -q -E 3", 3), ("--no-such-option", 64), ("-b pigeon://x", 64)] {
            let acquire = format!("dlock acquire -k job --ttl 30s --shell {options}");
            for (script, expected) in [
                (format!("eval \"$({acquire})\" || exit; echo went on"), code),
                (format!("set -e; eval \"$({acquire})\"; echo went on"), code),
                (format!("h=$({acquire}) || exit; echo went on"), code),
            ] {
                let output = in_shell(&service, shell, &script, &[]);
                assert_eq!(said(&output), (Some(expected), String::new()), "{shell}: {script}: {output:?}");
            }
        }
    }
    // A signal ends the wait.
    let waiting = "timeout -s INT 1 dlock acquire -q -k job --ttl 30s --shell";
    let output = in_shell(&service, "bash", &format!("eval \"$({waiting})\" || exit; echo went on"), &[]);
    assert_eq!(said(&output), (Some(130), String::new()), "{output:?}");
    holder.let_go().success();
}

/// Every step is a shell of its own, and has what the one before it wrote into a file.
#[test]
fn the_steps_of_a_job_hold_one_lock_and_the_last_one_always_releases_it() {
    let service = RedisService::fresh();
    let step =
        |script: &str, handle: &str| in_shell(&service, "bash", &format!("set -e\n{script}"), &[("HANDLE", handle)]);
    let acquire = "h=$(dlock acquire -k deploy --ttl 30m -n -q)\necho \"$h\" >output";
    let output = step(acquire, "");
    assert_eq!(said(&output), (Some(0), String::new()), "{output:?}");
    let handle = std::fs::read_to_string(service.scratch().path("output")).unwrap().trim_end().to_owned();
    // Another job does not get it; its cleanup has nothing to release, and does not touch the lock.
    assert_eq!(said(&step(acquire, "")).0, Some(75));
    let cleanup = step("dlock release \"$HANDLE\"", "");
    assert!(said(&cleanup) == (Some(0), String::new()), "{cleanup:?}");
    service.assert_held("deploy");
    let output = step("dlock run --handle \"$HANDLE\" -- sh -c 'echo one $DLOCK_KEY'", &handle);
    assert_eq!(said(&output), (Some(0), "one deploy\n".to_owned()), "{output:?}");
    let output = step("dlock run --handle \"$HANDLE\" -- sh -c 'exit 7'", &handle);
    assert_eq!(said(&output), (Some(7), String::new()), "{output:?}");
    let output = step("dlock release \"$HANDLE\"", &handle);
    assert!(said(&output) == (Some(0), String::new()) && output.stderr.is_empty(), "{output:?}");
    service.assert_free("deploy");
}

/// The commands of the steps of the recipe.
fn steps_of_the_recipe() -> Vec<String> {
    let program = "import json, sys, yaml\nfor step in yaml.safe_load(open(sys.argv[1]))['jobs']['release']['steps']:\n \
                   if 'run' in step: print(json.dumps(step['run']))";
    let recipe = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/github-steps.yml");
    let output = Command::new("python3").args(["-c", program]).arg(recipe).output().unwrap();
    assert!(output.status.success(), "apt-get install python3-yaml? {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_recipe_of_several_steps_works_and_cleans_up_when_a_step_fails() {
    let service = RedisService::fresh();
    let steps = steps_of_the_recipe();
    // Of the first one, dlock is here already.
    let [_, lock, deploy, test, unlock] = steps.as_slice() else { panic!("{steps:?}") };
    service.scratch().script("deploy.sh", "#!/bin/sh\necho \"$DLOCK_KEY\" >>deployed\n");
    service.scratch().script("smoke-test.sh", "#!/bin/sh\nexit 7\n");
    let shell =
        |script: &str| shell_of(&service, "bash", &format!("set -e -o pipefail\n{script}"), &[("RUNNER_TEMP", ".")]);
    let step = |script: &str| shell(script).output().unwrap().status.code();
    assert_eq!((step(lock), step(deploy), step(test)), (Some(0), Some(0), Some(7)));
    assert_eq!(std::fs::read_to_string(service.scratch().path("deployed")).unwrap(), "release-shop\n");
    service.assert_held("release-shop");
    assert_eq!(step(unlock), Some(0));
    service.assert_free("release-shop");
    // A runner tells only the process of the step to end.
    let holder = service.hold("release-shop");
    let mut waiting = shell(lock).spawn().unwrap();
    service.wait_queued("release-shop", 1);
    process::signal(i32::try_from(waiting.id()).unwrap(), Signal::SIGINT);
    assert!(!waiting.wait().unwrap().success());
    assert_eq!((service.queued("release-shop"), step(unlock)), (0, Some(0)));
    holder.let_go().success();
    service.assert_free("release-shop");
}

/// A handle whose bytes were changed names no lock, whatever is done with it.
#[test]
fn a_changed_handle_touches_nothing() {
    let service = RedisService::fresh();
    let handle = taken(&service, "job", "30s");
    for at in [0, 5, 6, 7, 40, handle.len() / 2, handle.len() - 1] {
        let mut changed = handle.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        for what in ["release", "renew"] {
            by(&service, what, &changed).output().code(64).stdout_is("").stderr_is_one_line("the handle: it ");
        }
    }
    service.assert_held("job");
    by(&service, "release", &handle).output().success();
}

/// A script that releases when it ends whatever happens, and whose own `acquire` fails, is called by one that has a lock.
#[test]
fn a_child_script_does_not_release_the_lock_of_its_parent() {
    let service = RedisService::fresh();
    let holder = service.hold("busy");
    let acquire = "dlock acquire -n -q -k busy --ttl 1m --shell";
    let scripts = [
        // What it would have set is unset, and what it has inherited is not taken for it.
        (format!("trap 'dlock release' EXIT; eval \"$({acquire})\" || exit"), 75, "there is no handle"),
        (format!("trap 'dlock release' EXIT; s=$({acquire}) || exit; eval \"$s\""), 75, "did not release 'outer'"),
        ("(dlock release) && timeout 60 dlock release || exit; true".to_owned(), 0, "did not release 'outer'"),
        (format!("eval \"$({acquire})\"; env | grep -q '^DLOCK_[HKTO]' || exit 9"), 9, ""),
    ];
    for shell in SHELLS {
        for (script, code, told) in &scripts {
            service.scratch().script("child.sh", &format!("#!/usr/bin/env {shell}\n{script}\n"));
            let outer = "eval \"$(dlock acquire -k outer --ttl 1m --shell)\" || exit 99
                ./child.sh; code=$?; dlock status -q -k outer && exit 98
                dlock release || exit 97; dlock status -q -k outer || exit 96; exit $code";
            let output = in_shell(&service, shell, outer, &[]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(*code), "{shell}: {script}: {output:?}");
            assert!(said.contains(told) && said.is_empty() == told.is_empty(), "{shell}: {script}: {said}");
        }
    }
    // One that is named is meant.
    service.scratch().script("child.sh", "#!/bin/sh\ndlock release \"$DLOCK_HANDLE\"\n");
    let outer = "eval \"$(dlock acquire -k outer --ttl 1m --shell)\" && ./child.sh && dlock status -q -k outer";
    let output = in_shell(&service, "sh", outer, &[]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    // With a keeper there is no server that could tell them apart.
    let keeper = format!(
        "export DLOCK_BACKEND={}; eval \"$(dlock acquire -k outer --while-pid $$ --shell)\" || exit 99
         sh -c 'dlock release; exit $?'; dlock status -q -k outer && exit 98; dlock release && dlock status -q -k outer",
        service.scratch().file_url()
    );
    let output = in_shell(&service, "bash", &keeper, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("did not release 'outer'"), "{output:?}");
    holder.let_go().success();
}

/// However it calls dlock.
#[test]
fn a_shell_releases_the_lock_that_it_has_acquired() {
    let service = RedisService::fresh();
    service.scratch().script("lock.sh", "#!/bin/sh\ndlock acquire -k job --ttl 1m --shell\n");
    service.scratch().script("last.sh", "#!/bin/sh\ndlock release; dlock status -q -k job\n");
    let eval = "eval \"$(dlock acquire -k job --ttl 1m --shell)\" || exit 99";
    let keep = "eval \"$(dlock acquire -k job --while-pid $$ --shell)\" || exit 99";
    for shell in SHELLS {
        for script in [
            format!("{eval}; dlock release"),
            format!("{keep}; dlock release"),
            format!("{eval}; (true; dlock release)"),
            format!("{eval}; x=$(true; timeout 60 dlock release; true)"),
            format!("{eval}; f() {{ (dlock release; true); }}; f | cat"),
            format!("{eval}; trap 'dlock release; dlock status -q -k job' EXIT; exit 5"),
            format!("{eval}; exec ./last.sh"),
            // What prints the line need not be what the shell has called.
            "eval \"$(./lock.sh)\" || exit 99; dlock release".to_owned(),
            "eval \"$(timeout 60 dlock acquire -k job --ttl 1m --shell)\" || exit 99; dlock release".to_owned(),
            // Handed on by name, it is a handle like every other.
            format!("{eval}; unset DLOCK_HANDLE_SHELL; {shell} -c 'dlock release; exit $?'"),
        ] {
            let output = in_shell(&service, shell, &script, &[]);
            let code = if script.contains("exit 5") { 5 } else { 0 };
            assert!(output.status.code() == Some(code) && output.stderr.is_empty(), "{shell}: {script}: {output:?}");
            service.assert_free("job");
        }
    }
    // A handle of one's own, below a shell that has another one.
    let script = "eval \"$(dlock acquire -k job --ttl 1m --shell)\"
        DLOCK_HANDLE=$(dlock acquire -k own --ttl 1m) sh -c 'dlock release; exit $?' && dlock status -q -k own && dlock release";
    let output = in_shell(&service, "sh", script, &[]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    service.assert_free("job");
}
