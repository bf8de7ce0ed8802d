/*!
Tests of the layer that a value comes from, of mutually exclusive options, and of the defaults that the help shows.
*/

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroU32;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, CommandFactory};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::backend::url::Target;
use crate::cli::defaults::{Kind, check, options, read_with};
use crate::cli::{self, Cli, EXCLUSIONS, RunArgs};
use crate::exit::Failure;
use crate::lease::timing::Delay;
use crate::lock::admission::Mode;
use crate::property::{Holds, holds};
use crate::report::Verbosity;
use crate::report::event::Event;
use crate::settings::config::files_of;
use crate::settings::connection::ConnectionValues;
use crate::settings::effective::shown;
use crate::settings::layers::{Given, Layers, Source, only};
use crate::settings::origin::Origin;
use crate::settings::run::{RunValues, WaitLimit};
use crate::settings::{RunSettings, Setting};

/// The options of `dlock run`.
fn of_run() -> Command {
    RunArgs::augment_args(Command::new("run").args_override_self(true))
}

/// Parses `words` with these `options`.
fn found(options: &Command, words: &[&str]) -> ArgMatches {
    options.clone().get_matches_from(["run", "--key", "k"].iter().chain(words))
}

/// Flags over variables; both in the spelling of flags.
fn tried(flags: &[&str], variables: &[&str]) -> Result<Layers, Failure> {
    let said = |words| only(&found(&of_run(), words), ValueSource::CommandLine);
    let layers = vec![(Source::Flags, said(flags)), (Source::Environment, said(variables))];
    Layers::of(layers, defaults())
}

fn defaults() -> ArgMatches {
    only(&found(&of_run(), &[]), ValueSource::DefaultValue)
}

fn layers(flags: &[&str], variables: &[&str]) -> Layers {
    tried(flags, variables).expect("no contradiction")
}

/// Fails unless `found` is as `expected`, or its message has that in it.
#[track_caller]
fn is<T: PartialEq + std::fmt::Debug>(found: Result<T, Failure>, expected: Result<T, &str>, of: &[&[&str]; 2]) {
    match (found.map_err(|failure| message(&failure)), expected) {
        (Err(said), Err(part)) => assert!(said.contains(part), "{of:?}: {said}"),
        (found, expected) => assert_eq!(found, expected.map_err(str::to_owned), "{of:?}"),
    }
}

/// The message of a failure.
fn message(failure: &Failure) -> String {
    match failure.event.as_deref() {
        Some(Event::Settings(text)) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// One value of one kind as text, with its origin.
fn told<T: std::fmt::Debug>(given: &Given<T>) -> (String, String) {
    (format!("{:?}", given.value), given.origin.to_string())
}

fn told_if<T: std::fmt::Debug>(given: Option<&Given<T>>) -> (String, String) {
    given.map_or_else(|| ("None".to_owned(), "default".to_owned()), told)
}

/// All values by the long names of their options, as far as an option has a value of its own.
fn all(layers: &Layers) -> Vec<(&'static str, (String, String))> {
    let (way, run) = (ConnectionValues::settle(layers), RunValues::settle(layers));
    vec![
        ("backend", told_if(way.backend.as_ref())),
        ("namespace", told(&way.namespace)),
        ("require-backend", told_if(way.require_backend.as_ref())),
        ("time", told(&way.time)),
        ("connect-timeout", told(&way.connect_timeout)),
        ("user", told_if(way.user.as_ref())),
        ("password-file", told_if(way.secret.as_ref())),
        ("tls-ca", told_if(way.tls_ca.as_ref())),
        ("tls-cert", told_if(way.tls_cert.as_ref())),
        ("tls-key", told_if(way.tls_key.as_ref())),
        ("tls-server-name", told_if(way.tls_server_name.as_ref())),
        ("replicas", told_if(way.replicas.as_ref())),
        ("strict-fencing", told_if(way.strict_fencing.as_ref())),
        ("wait", told(&run.wait_limit)),
        ("nonblock", told(&run.wait_limit)),
        ("conflict-exit-code", told(&run.conflict)),
        ("ttl", told(&run.ttl)),
        ("min-hold", told_if(run.min_hold.as_ref())),
        ("lock-delay", told_if(run.lock_delay.as_ref())),
        ("once-per", told_if(run.once_per.as_ref())),
        ("kill-after", told_if(run.kill_after.as_ref())),
        ("on-lost", told(&run.on_lost)),
        ("max-run", told_if(run.max_run.as_ref())),
        ("leftovers", told(&run.leftovers)),
        ("command", told_if(run.command.as_ref())),
        ("close", told(&run.close)),
        ("reason", told_if(run.reason.as_ref())),
        ("events", told_if(run.events.as_ref())),
        ("exclusive", told(&run.mode)),
        ("shared", told(&run.mode)),
        ("slots", told(&run.mode)),
        ("quiet", told(&run.verbosity)),
        ("verbose", told(&run.verbosity)),
    ]
}

fn value(layers: &Layers, option: &str) -> (String, String) {
    all(layers).into_iter().find(|(name, _)| *name == option).expect("an option").1
}

#[test]
fn each_option_comes_from_its_flag_or_else_from_its_variable_or_else_is_the_default() {
    let cli = Cli::command();
    let run = cli.find_subcommand("run").expect("run");
    // Options that name the lock have their own rules.
    let names = ["key", "handle", "help", "profile"];
    let options: Vec<_> = run.get_opts().filter(|option| !names.contains(&option.get_id().as_str())).collect();
    assert_eq!(options.len(), all(&layers(&[], &[])).len());
    for option in options {
        let long = option.get_long().expect("every option has a long form");
        let flag = format!("--{long}");
        // One of these is valid for it.
        let values: Vec<Vec<&str>> = if option.get_action().takes_values() {
            ["2", "kill", "local"].iter().map(|value| vec![flag.as_str(), value]).collect()
        } else {
            vec![vec![&flag]]
        };
        let given = |words: &&Vec<&str>| {
            let words = ["dlock", "run", "--key", "k"].iter().chain(words.iter());
            Cli::command().try_get_matches_from(words).is_ok()
        };
        let words = values.iter().find(given).expect("a value that is valid");
        let (flags, variables, both) = (layers(words, &[]), layers(&[], words), layers(words, words));
        let (neither, default) = value(&layers(&[], &[]), long);
        let variable = format!("DLOCK_{}", long.replace('-', "_").to_uppercase());
        assert_eq!(default, "default", "{long}");
        for (layers, origin) in [(&flags, &flag), (&variables, &variable), (&both, &flag)] {
            let (value, from) = value(layers, long);
            assert_eq!(&from, origin, "{long}");
            // Exclusive is the default, and can be said all the same.
            assert_eq!(value == neither, long == "exclusive", "{long}");
        }
        // It sets nothing else, unless several options have one meaning.
        let meanings = [&["wait", "nonblock"][..], &["quiet", "verbose"], &["exclusive", "shared", "slots"]];
        for (other, (_, from)) in all(&flags).into_iter().filter(|(name, _)| *name != long) {
            let is_shared = meanings.iter().any(|options| options.contains(&other) && options.contains(&long));
            assert!(from == "default" || is_shared, "--{long} sets {other}");
        }
    }
}

/// The layers of a command line with these `words`, and of a config file.
fn with_file(words: &[&str], text: &str) -> Layers {
    let files = files_of(text, "", None).expect("right");
    Layers::with(&found(&of_run(), words), of_run, files.sections).expect("right")
}

#[test]
fn each_option_comes_from_a_file_where_nothing_nearer_gives_it() {
    for (option, kind) in options(&Cli::command()) {
        let flag = format!("--{option}");
        let given = |value: &str| match kind {
            Kind::Switch => vec![flag.clone()],
            Kind::Path | Kind::Text => vec![flag.clone(), value.to_owned()],
        };
        let said = |value: &str| match kind {
            Kind::Switch => format!("{option} = true"),
            Kind::Path | Kind::Text => format!("{option} = \"{value}\""),
        };
        // One of these is valid for it.
        let is_valid = |value: &&&str| kind == Kind::Switch || check(&Cli::command(), &option, value).is_ok();
        let one = ["/2", "2", "kill", "local"].iter().find(is_valid).expect("a value that is valid");
        let other = ["/3", "3", "wait", "ignore", "utc"].iter().find(is_valid).expect("a value that is valid");
        let words = given(one);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if !all(&layers(&[], &[])).iter().any(|(name, _)| *name == option) {
            // It is of another subcommand, or chooses a profile.
            continue;
        }
        let (by_file, by_flag) = (value(&with_file(&[], &said(one)), &option), value(&layers(&words, &[]), &option));
        assert_eq!(by_file, (by_flag.0.clone(), format!("{option} (u:1)")));
        assert_eq!(value(&with_file(&words, &said(other)), &option), by_flag);
        if kind == Kind::Switch {
            let off = value(&with_file(&[], &format!("{option} = false")), &option);
            assert_eq!(off.0, value(&layers(&[], &[]), &option).0);
        }
    }
}

#[test]
fn of_options_that_exclude_each_other_the_last_flag_counts_or_else_the_nearest_layer() {
    const MINUTE: WaitLimit = WaitLimit::For(std::time::Duration::from_secs(60));
    use Origin::{Default, Flag, Variable};
    for (flags, variables, wait_limit, origin) in [
        (&[][..], &[][..], WaitLimit::Endless, Default),
        (&["-n"], &[], WaitLimit::None, Flag("nonblock".into())),
        (&["-w", "0"], &[], WaitLimit::None, Flag("wait".into())),
        (&["-w", "1m"], &[], MINUTE, Flag("wait".into())),
        (&["-w", "5", "-w", "1m"], &[], MINUTE, Flag("wait".into())),
        (&["-n", "-w", "1m"], &[], MINUTE, Flag("wait".into())),
        (&["-w", "1m", "-n"], &[], WaitLimit::None, Flag("nonblock".into())),
        (&["-n", "-w", "0"], &[], WaitLimit::None, Flag("wait".into())),
        (&["-n", "-w", "5", "--nb", "--timeout", "1m"], &[], MINUTE, Flag("wait".into())),
        (&["-w", "1m"], &["-n"], MINUTE, Flag("wait".into())),
        (&["-n"], &["-w", "1m"], WaitLimit::None, Flag("nonblock".into())),
        (&[], &["-w", "1m"], MINUTE, Variable("wait".into())),
        (&[], &["-n", "-w", "0"], WaitLimit::None, Variable("nonblock".into())),
    ] {
        let settled = RunValues::settle(&layers(flags, variables)).wait_limit;
        assert_eq!(settled, Given { value: wait_limit, origin }, "{flags:?} over {variables:?}");
    }
    for (flags, variables, verbosity, origin) in [
        (&[][..], &[][..], Verbosity::Normal, Default),
        (&["-q"], &["-v"], Verbosity::Quiet, Flag("quiet".into())),
        (&["-v"], &["-q"], Verbosity::Verbose, Flag("verbose".into())),
        (&["-q", "-v"], &[], Verbosity::Verbose, Flag("verbose".into())),
        (&["-vq"], &[], Verbosity::Quiet, Flag("quiet".into())),
        (&[], &["-v"], Verbosity::Verbose, Variable("verbose".into())),
    ] {
        let settled = RunValues::settle(&layers(flags, variables)).verbosity;
        assert_eq!(settled, Given { value: verbosity, origin }, "{flags:?} over {variables:?}");
    }
    for (variables, one, other) in [
        (&["-w", "1m", "-n"][..], "NONBLOCK", "WAIT"),
        (&["-q", "-v", "-w", "0"], "QUIET", "VERBOSE"),
        (&["-x", "-s"], "EXCLUSIVE", "SHARED"),
        (&["--slots", "3", "-s"], "SHARED", "SLOTS"),
    ] {
        let said = message(&tried(&[], variables).expect_err("a contradiction"));
        assert_eq!(said, format!("DLOCK_{one} and DLOCK_{other} are mutually exclusive: unset one of them"));
        assert!(tried(variables, variables).is_ok(), "{variables:?}: flags settle it");
    }
}

#[test]
fn what_is_off_says_nothing_of_the_others() {
    for (places, expected) in [
        (&[&[("ttl", "1")][..], &[("ttl", "2"), ("user", "a")]][..], &[("ttl", "1"), ("user", "a")][..]),
        (&[&[("wait", "1")], &[("nonblock", "true")]], &[("wait", "1")]),
        (&[&[("nonblock", "true")], &[("wait", "1")]], &[("nonblock", "true")]),
        (&[&[("nonblock", "false")], &[("wait", "1")]], &[("nonblock", "false"), ("wait", "1")]),
        (
            &[&[("nonblock", "false")], &[("nonblock", "true")], &[("wait", "1")]],
            &[("nonblock", "false"), ("wait", "1")],
        ),
        (&[&[("nonblock", "false")], &[("nonblock", "true"), ("wait", "1")]], &[("nonblock", "false"), ("wait", "1")]),
        (&[&[("wait", "1")], &[("nonblock", "false")]], &[("wait", "1")]),
        (&[&[("exclusive", "true")], &[("slots", "3")], &[("shared", "true")]], &[("exclusive", "true")]),
        // Layers farther away do not count, and cannot be wrong.
        (&[&[("wait", "1")], &[("wait", "2"), ("nonblock", "true")]], &[("wait", "1")]),
    ] {
        let said = |said: &&[(&str, &str)]| {
            let values = said.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
            (Source::Environment, read_with(of_run(), &values).expect("right"))
        };
        let layers = Layers::of(places.iter().map(said).collect(), defaults());
        let rows = shown(&layers.expect("no contradiction")).expect("right");
        let given = rows.iter().filter(|row| row.origin != Origin::Default);
        let given: Vec<(&str, &str)> = given.map(|row| (row.option.as_str(), row.value.as_deref().unwrap())).collect();
        assert_eq!(given, expected, "{places:?}");
    }
}

#[test]
fn a_command_comes_from_the_command_line_or_else_from_its_variable() {
    for (flags, variables, expected) in [
        (&["-c", "a b"][..], &[][..], Ok(&["/bin/sh", "-c", "a b"][..])),
        (&["--", "true", "x"], &["-c", "a b"], Ok(&["true", "x"])),
        (&["-c", "new"], &["-c", "old"], Ok(&["/bin/sh", "-c", "new"])),
        (&[], &["-c", "old"], Ok(&["/bin/sh", "-c", "old"])),
        (&["-c", "a", "true"], &[], Err("-c STRING and a command are mutually exclusive")),
        (&["--", ""], &["-c", "old"], Err("the command's name is empty")),
        (&[], &[], Err("there is no command to run")),
    ] {
        let expected: Result<Vec<OsString>, _> = expected.map(|words| words.iter().map(OsString::from).collect());
        is(RunValues::settle(&layers(flags, variables)).argv(), expected, &[flags, variables]);
    }
}

#[test]
fn how_a_lock_is_held_is_decided_by_the_last_flag_or_else_by_the_variables() {
    use Mode::{Exclusive, Shared};
    use Origin::{Default, Flag, Variable};
    let slots = |slots: u32| Mode::Slots(NonZeroU32::new(slots).expect("not 0"));
    for (flags, variables, mode, origin) in [
        (&[][..], &[][..], Exclusive, Default),
        (&["-x"], &[], Exclusive, Flag("exclusive".into())),
        (&["-e"], &[], Exclusive, Flag("exclusive".into())),
        (&["-s"], &[], Shared, Flag("shared".into())),
        (&["--slots", "3"], &[], slots(3), Flag("slots".into())),
        (&["--slots", "1000"], &[], slots(1000), Flag("slots".into())),
        // As with flock, the last one counts.
        (&["-s", "-x"], &[], Exclusive, Flag("exclusive".into())),
        (&["-x", "-s"], &[], Shared, Flag("shared".into())),
        (&["-x", "-s", "-x"], &[], Exclusive, Flag("exclusive".into())),
        (&["--slots", "3", "-s"], &[], Shared, Flag("shared".into())),
        (&["-x", "--slots", "3"], &[], slots(3), Flag("slots".into())),
        // A flag overrides the variables of all three.
        (&["-x"], &["-s"], Exclusive, Flag("exclusive".into())),
        (&["-x"], &["--slots", "3"], Exclusive, Flag("exclusive".into())),
        (&["-s"], &["--slots", "3"], Shared, Flag("shared".into())),
        (&["--slots", "2"], &["-s"], slots(2), Flag("slots".into())),
        (&[], &["-s"], Shared, Variable("shared".into())),
        (&[], &["--slots", "3"], slots(3), Variable("slots".into())),
    ] {
        let settled = RunValues::settle(&layers(flags, variables)).mode;
        assert_eq!(settled, Given { value: mode, origin }, "{flags:?} over {variables:?}");
    }
    for wrong in ["0", "1001", "-1", "two", "", "1.5", "4294967296"] {
        let words = ["dlock", "run", "--key", "k", "--slots", wrong];
        let error = Cli::command().try_get_matches_from(words).expect_err("a mistake");
        assert_eq!(error.kind(), clap::error::ErrorKind::ValueValidation, "{wrong}");
    }
}

#[test]
fn a_flag_for_another_backend_is_a_mistake_and_a_variable_is_not() {
    for (words, backend, refused) in [
        (&["--replicas", "1"][..], "file:", "--replicas is only for a redis server with replicas, not for file:"),
        (&["--replicas", "0"], "etcd", "--replicas is only for"),
        (&["--strict-fencing"], "redis", "--strict-fencing is only for redlock://"),
        (&["--tls-ca", "ca"], "file:", "--tls-* options are given, but file: does not use TLS: leave it out"),
        (&["--tls-server-name", "x"], "file:", "--tls-* options are given, but file: does not use TLS"),
    ] {
        let with_flags = layers(&[&["-b", backend], words].concat(), &[]);
        let with_variables = layers(&["-b", backend], words);
        let reached = |layers| ConnectionValues::settle(layers).reached().map(|reached| reached.target);
        let said = message(&reached(&with_flags).expect_err("a mistake"));
        assert!(said.contains(refused), "{words:?}: {said}");
        assert!(reached(&with_variables).is_ok(), "{words:?}");
    }
    // Sending in plain text is refused, wherever the wish for TLS comes from.
    let way = ConnectionValues::settle(&layers(&["-b", "redis://h"], &["--tls-ca", "ca"]));
    assert!(way.reached().is_err());
}

#[test]
fn once_per_period_only_one_run_may_have_the_lock() {
    let hour = Some(std::time::Duration::from_secs(3600));
    for (flags, variables, expected) in [
        (&[][..], &[][..], Ok(None)),
        (&["--once-per", "1h"], &[], Ok(hour)),
        (&["--once-per", "1h", "-x"], &["-s"], Ok(hour)),
        (&["--once-per", "1h", "-s"], &[], Err("--once-per and --shared are mutually exclusive")),
        (&["-s"], &["--once-per", "1h"], Err("DLOCK_ONCE_PER and --shared are mutually exclusive")),
        (&["--once-per", "1h"], &["--slots", "1"], Err("--once-per and DLOCK_SLOTS are mutually exclusive")),
    ] {
        is(RunValues::settle(&layers(flags, variables)).once_per(), expected, &[flags, variables]);
    }
}

#[test]
fn a_lock_delay_needs_a_lease_and_leaves_enough_of_it() {
    let of = |seconds, share| Delay { length: std::time::Duration::from_secs(seconds), share };
    for (flags, variables, backend, expected) in [
        (&[][..], &[][..], "redis", Ok(Delay::default())),
        (&["--lock-delay", "5"], &[], "redis", Ok(of(5, 0))),
        (&["--lock-delay", "1h", "--ttl", "1s"], &[], "etcd", Ok(of(3600, 0))),
        (&[], &["--lock-delay", "5"], "zk", Ok(of(5, 6))),
        (&["--lock-delay", "0"], &["--lock-delay", "5"], "zk", Ok(of(0, 6))),
        (&["--lock-delay", "6"], &[], "zk", Err("--lock-delay may be at most 5s with a --ttl of 30s on zookeeper")),
        (&["--ttl", "6"], &["--lock-delay", "2"], "zk", Err("DLOCK_LOCK_DELAY may be at most 1s with a --ttl of 6s")),
        (&["--lock-delay", "5"], &[], "file:", Err("--lock-delay is only for locks with a lease, not for file:")),
        (&[], &["--lock-delay", "5"], "file:", Err("DLOCK_LOCK_DELAY is only for locks with a lease, not for file:")),
        (&["--lock-delay", "0"], &["--lock-delay", "5"], "file:", Ok(Delay::default())),
    ] {
        let layers = layers(flags, variables);
        let target = Target::parse(backend).expect("a backend");
        is(RunValues::settle(&layers).delay(&target), expected, &[flags, variables]);
    }
}

/// Options of runs with values, some of which no run takes. The files are there on every host.
const VALUES: &[(&str, &[&str])] = &[
    ("backend", &["redis://h", "rediss://u@h", "zk", "etcd", "file:", "nonsense"]),
    ("namespace", &["", "a", "a\nb"]),
    ("require-backend", &["true", "false"]),
    ("time", &["utc", "local"]),
    ("nonblock", &["true", "false"]),
    ("wait", &["0", "1m"]),
    ("exclusive", &["true", "false"]),
    ("shared", &["true", "false"]),
    ("slots", &["2", "3"]),
    ("conflict-exit-code", &["0", "9"]),
    ("ttl", &["2s", "1h"]),
    ("min-hold", &["3"]),
    ("lock-delay", &["0", "10"]),
    ("once-per", &["1h"]),
    ("kill-after", &["1", "20"]),
    ("on-lost", &["stop", "kill"]),
    ("max-run", &["8h"]),
    ("leftovers", &["leave", "kill"]),
    ("close", &["true", "false"]),
    ("reason", &["", "r"]),
    ("events", &["/e", "fd:2"]),
    ("quiet", &["true", "false"]),
    ("verbose", &["true", "false"]),
    ("connect-timeout", &["5", "1m"]),
    ("user", &["", "a"]),
    ("password", &["p"]),
    ("password-file", &["/etc/passwd"]),
    ("tls-ca", &["/etc/passwd"]),
    ("tls-server-name", &["a"]),
    ("replicas", &["0", "2"]),
    ("strict-fencing", &["true", "false"]),
];

/// A strategy for the settings of one place: options with their values, each option once.
fn place() -> impl Strategy<Value = BTreeMap<String, String>> {
    let said = (select(VALUES), any::<Index>());
    let said = said.prop_map(|((option, values), at)| (option.to_owned(), (*at.get(values)).to_owned()));
    proptest::collection::vec(said, 0..5).prop_map(|said| said.into_iter().collect())
}

/// The flags of these values, which are not all possible on a command line.
fn flags(values: &[(String, String)]) -> Vec<String> {
    let flag = |(option, value): &(String, String)| match (option.as_str(), value.as_str()) {
        ("password", _) | (_, "false") => None,
        (option, "true") => Some(format!("--{option}")),
        (option, value) => Some(format!("--{option}={value}")),
    };
    values.iter().filter_map(flag).collect()
}

/// The lines of a config file for these values.
fn lines(values: &BTreeMap<String, String>) -> String {
    let both = values.contains_key("password") && values.contains_key("password-file");
    let line = |(option, value): (&String, &String)| match value.as_str() {
        _ if both && option == "password" => String::new(),
        "true" | "false" => format!("{option} = {value}\n"),
        _ => format!("{option} = {value:?}\n"),
    };
    values.iter().map(line).collect()
}

#[test]
fn config_shows_what_a_run_settles_and_refuses_what_it_refuses() {
    let (of_run, of_config) = (of_run(), cli::shown());
    let flagged = place().prop_map(|said| said.into_iter().collect::<Vec<_>>()).prop_shuffle();
    let strategy = (flagged, proptest::collection::vec(place(), 5), any::<bool>());
    let outcomes = [const { Cell::new(0) }; 2];
    holds(200, strategy, |(flagged, places, has_profile)| {
        let words = [flags(&flagged), vec!["true".to_owned()]].concat();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let file = |top, profile| format!("{}[profile.p]\n{}", lines(top), lines(profile));
        let (user, system) = (file(&places[1], &places[2]), file(&places[3], &places[4]));
        let layers = |options: &Command| {
            let matches = found(options, &words);
            let said = |values: &BTreeMap<_, _>| read_with(options.clone(), values).expect("right");
            let mut layers = vec![
                (Source::Flags, only(&matches, ValueSource::CommandLine)),
                (Source::Environment, said(&places[0])),
            ];
            for section in files_of(&user, &system, has_profile.then_some("p"))?.sections {
                let values = said(&section.values());
                layers.push((Source::File(section), values));
            }
            Layers::of(layers, only(&matches, ValueSource::DefaultValue))
        };
        let told = |failure: Failure| (message(&failure), failure.exit);
        let run = layers(&of_run).and_then(|layers| RunSettings::of(&layers).map(|_| layers)).map_err(told);
        let config = layers(&of_config).and_then(|layers| shown(&layers)).map_err(told);
        let outcome = &outcomes[usize::from(run.is_ok())];
        outcome.set(outcome.get() + 1);
        match (run, config) {
            (Ok(run), Ok(config)) => compared(&run, &config),
            (run, config) => {
                prop_assert_eq!(run.err(), config.err());
                Ok(())
            }
        }
    });
    assert!(outcomes.iter().all(|outcome| outcome.get() > 20), "{outcomes:?}");
}

/// Fails unless a run with the flags that `rows` show settles the values of `run`, with the origins that they show.
fn compared(run: &Layers, rows: &[Setting]) -> Holds {
    let given = rows.iter().filter(|row| row.origin != Origin::Default);
    let given: Vec<(String, String)> = given.map(|row| (row.option.clone(), row.value.clone().unwrap())).collect();
    let words = [flags(&given), vec!["true".to_owned()]].concat();
    let again = all(&layers(&words.iter().map(String::as_str).collect::<Vec<_>>(), &[]));
    for ((option, (value, origin)), (_, (shown, _))) in all(run).into_iter().zip(again) {
        // A password is not shown, and has no flag.
        prop_assert!(value == shown || origin.starts_with("password ("), "--{option} {value} is shown as {shown}");
        if option == "command" {
            continue;
        }
        // Several options may have one meaning.
        let alike: &[&str] = match EXCLUSIONS.iter().find(|group| group.contains(&option)) {
            Some(group) => group,
            None if option == "password-file" => &["password", "password-file"],
            None => &[option],
        };
        let rows = rows.iter().filter(|row| alike.contains(&row.option.as_str()));
        let said = |row: &&Setting| {
            row.origin != Origin::Default && (row.value.as_deref() != Some("false") || value == "false")
        };
        let origins: Vec<String> = rows.filter(said).map(|row| row.origin.to_string()).collect();
        prop_assert!(
            if origin == "default" { origins.is_empty() } else { origins.contains(&origin) },
            "--{option} comes from {origin}, and not from {origins:?}"
        );
    }
    Ok(())
}
