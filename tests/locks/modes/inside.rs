//! A run inside a run of the same key: it starts at once where the outer one's mode covers its own, whoever waits; and where it
//! would wait for itself it is refused.

use super::{assert_clean, let_go, wait};
use crate::support::backends::on_file_and_redis;
use crate::support::dlock::DLOCK;
use crate::support::rendezvous::Gate;
use crate::support::service::{Gated, Service};

on_file_and_redis! {
    a_reader_inside_a_reader_passes_a_waiting_writer
    what_would_wait_for_itself_is_refused_at_once
    a_slot_is_handed_on
    who_holds_the_lock_alone_covers_every_mode
}

/// Shell code that runs `script` under a dlock with these options for `job`.
fn inner<S: Service>(service: &S, options: &str, script: &str) -> String {
    let (dlock, url) = (*DLOCK, service.url());
    let more: Vec<String> = service.options().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (more, script) = (more.join(" "), script.replace('\'', r"'\''"));
    format!("'{dlock}' run --key job --backend '{url}' {more} {options} -- sh -c '{script}'")
}

/// Shell code that prints the slot, if there is one, and the token.
const TELL: &str = r#"echo "${DLOCK_SLOT-none} $DLOCK_TOKEN""#;

fn a_reader_inside_a_reader_passes_a_waiting_writer<S: Service>(service: &S) {
    let gate = Gate::new(service.scratch().path("writer-waits"));
    let twice = inner(service, "-n -s", &inner(service, "-s", "echo inside"));
    let script = format!("echo held; {}; {}; {twice}", gate.wait(), inner(service, "-s", "echo inside"));
    let outer = service.run("job").arg("-s").shell(script).spawn();
    outer.wait_stdout("held");
    let writer = wait(service, "job", ["-x"]);
    gate.open();
    // In time: if it waited behind the writer, it would wait for itself.
    outer.wait().success().stdout_is("held\ninside\ninside\n");
    writer.wait_held();
    let_go([writer]);
    assert_clean(service, &["job"]);
}

fn what_would_wait_for_itself_is_refused_at_once<S: Service>(service: &S) {
    for (outer, inside, how, wanted) in [
        ("-s", "-x", "--shared", "--exclusive"),
        ("-s", "", "--shared", "--exclusive"),
        ("-s", "--slots 2 -w 60", "--shared", "--slots 2"),
        ("--slots 2", "-n", "--slots 2", "--exclusive"),
        ("--slots 2", "-s -n -E 0", "--slots 2", "--shared"),
        ("--slots 2", "--slots 3", "--slots 2", "--slots 3"),
    ] {
        let script = format!("{}; echo $?", inner(service, inside, "echo overlap"));
        let outcome = service.run("job").args(outer.split(' ')).shell(script).output();
        let message = format!("'job' is held with {how} by the outer dlock run");
        outcome.code(0).stdout_is("64\n").stderr_is_one_line(&message);
        assert!(outcome.stderr().contains(&format!("use {wanted} in the outer run")), "{outcome:?}");
    }
    assert_clean(service, &["job"]);
}

fn a_slot_is_handed_on<S: Service>(service: &S) {
    let inside = inner(service, "--slots 2", TELL);
    let third = inner(service, "--slots 2", &inside);
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["--slots", "2"]));
    holder.wait_held();
    let outcome = service.run("job").args(["--slots", "2"]).shell(format!("{TELL}; {inside}; {third}")).output();
    let told = outcome.success().stdout();
    let [own, inside, third] = told.lines().collect::<Vec<_>>()[..] else { panic!("{told:?}") };
    assert!(own == inside && own == third, "{told}");
    let other = 1 - holder.slot().expect("a slot");
    assert!(own.starts_with(&format!("{other} ")), "{told}");
    let_go([holder]);
    assert_clean(service, &["job"]);
}

fn who_holds_the_lock_alone_covers_every_mode<S: Service>(service: &S) {
    let modes = ["-x", "-s", "--slots 2", "--slots 3"].map(|mode| inner(service, mode, TELL));
    let gate = Gate::new(service.scratch().path("all-wait"));
    let script = format!("echo held; {}; {TELL}; {}", gate.wait(), modes.join("; "));
    let outer = service.run("job").shell(script).spawn();
    outer.wait_stdout("held");
    let line = [wait(service, "job", ["-x"]), wait(service, "job", ["-s"])];
    gate.open();
    let outcome = outer.wait();
    let told = outcome.success().stdout();
    let slots: Vec<&str> = told.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(slots, ["none", "none", "none", "0", "0"], "{told}");
    let tokens: Vec<&str> = told.lines().skip(1).filter_map(|line| line.split(' ').nth(1)).collect();
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{told}");
    let_go(line);
    assert_clean(service, &["job"]);
}
