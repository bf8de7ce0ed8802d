/*!
Which layer a value comes from, what exclusive options mean together, and that the help shows the defaults that apply.
*/

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroU32;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

use crate::backend::url::Target;
use crate::cli::defaults::{Kind, check, options, read_with};
use crate::cli::{Cli, Leftovers, OnLost, RunArgs};
use crate::lease::timing::Delay;
use crate::lock::admission::Mode;
use crate::report::Verbosity;
use crate::settings::config::sections_of;
use crate::settings::connection::ConnectionValues;
use crate::settings::layers::{Given, Layer, Layers, Source, only};
use crate::settings::origin::Origin;
use crate::settings::run::{Contradiction, Patience, RunValues};

/// What a source says of `words` on a command line.
fn args(words: &[&str], source: ValueSource) -> RunArgs {
    let matches = Cli::command().get_matches_from(["dlock", "run", "--key", "k"].iter().chain(words));
    let (_, matches) = matches.subcommand().expect("run");
    RunArgs::from_arg_matches(&only(matches, source)).expect("checked by the parser")
}

/// Flags over variables; both in the spelling of flags.
fn layers(flags: &[&str], variables: &[&str]) -> Layers {
    let layer = |source, words| Layer { source, args: args(words, ValueSource::CommandLine) };
    Layers::of(vec![layer(Source::Flags, flags), layer(Source::Environment, variables)])
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
        ("require-backend", told(&way.require_backend)),
        ("connect-timeout", told(&way.connect_timeout)),
        ("user", told_if(way.user.as_ref())),
        ("password-file", told_if(way.secret.as_ref())),
        ("tls-ca", told_if(way.tls_ca.as_ref())),
        ("tls-cert", told_if(way.tls_cert.as_ref())),
        ("tls-key", told_if(way.tls_key.as_ref())),
        ("tls-server-name", told_if(way.tls_server_name.as_ref())),
        ("replicas", told(&way.replicas)),
        ("strict-fencing", told(&way.strict_fencing)),
        ("wait", told(&run.patience)),
        ("nonblock", told(&run.patience)),
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
    // Those that name the lock have rules of their own.
    let names = ["key", "handle", "help", "profile"];
    let options: Vec<_> = run.get_opts().filter(|option| !names.contains(&option.get_id().as_str())).collect();
    assert_eq!(options.len(), all(&layers(&[], &[])).len());
    for option in options {
        let long = option.get_long().expect("every option has a long form");
        let flag = format!("--{long}");
        // One of these is valid for it.
        let values: Vec<Vec<&str>> = if option.get_action().takes_values() {
            ["2", "kill"].iter().map(|value| vec![flag.as_str(), value]).collect()
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
        // And nothing else is said by it, but where several options have one meaning.
        let meanings = [&["wait", "nonblock"][..], &["quiet", "verbose"], &["exclusive", "shared", "slots"]];
        for (other, (_, from)) in all(&flags).into_iter().filter(|(name, _)| *name != long) {
            let is_shared = meanings.iter().any(|options| options.contains(&other) && options.contains(&long));
            assert!(from == "default" || is_shared, "--{long} sets {other}");
        }
    }
}

/// The layers of a command line with these `words`, and of a config file.
fn with_file(words: &[&str], text: &str) -> Layers {
    let words: Vec<OsString> = ["dlock", "run", "--key", "k"].iter().chain(words).map(OsString::from).collect();
    // Without the variables of this process.
    let matches = read_with(Cli::command(), &words, &BTreeMap::new()).expect("right");
    let (_, matches) = matches.subcommand().expect("run");
    Layers::with(matches, &words, sections_of(text)).expect("right")
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
        let one = ["/2", "2", "kill"].iter().find(is_valid).expect("a value that is valid");
        let other = ["/3", "3", "wait", "ignore"].iter().find(is_valid).expect("a value that is valid");
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
            assert_eq!(off, value(&layers(&[], &[]), &option));
        }
    }
}

#[test]
fn options_that_exclude_each_other_are_settled_within_a_layer() {
    const NONE: Result<Patience, Contradiction> = Ok(Patience::None);
    const MINUTE: Result<Patience, Contradiction> = Ok(Patience::For(std::time::Duration::from_secs(60)));
    const BOTH: Result<Patience, Contradiction> = Err(Contradiction("nonblock", "wait"));
    use Origin::{Default, Flag, Variable};
    for (flags, variables, patience, origin) in [
        (&[][..], &[][..], Ok(Patience::Endless), Default),
        (&["-n", "-w", "0"], &[], NONE, Flag("nonblock".into())),
        (&["-n"], &[], NONE, Flag("nonblock".into())),
        (&["-w", "0"], &[], NONE, Flag("wait".into())),
        (&["-w", "1m"], &[], MINUTE, Flag("wait".into())),
        (&["-n", "-w", "1m"], &[], BOTH, Flag("nonblock".into())),
        (&[], &["-n", "-w", "1m"], BOTH, Variable("nonblock".into())),
        (&["-w", "1m"], &["-n", "-w", "2m"], MINUTE, Flag("wait".into())),
        (&["--nb"], &["--timeout", "1m"], NONE, Flag("nonblock".into())),
        (&["--timeout", "1m"], &[], MINUTE, Flag("wait".into())),
        (&["-w", "1m"], &["-n"], MINUTE, Flag("wait".into())),
        (&["-n"], &["-w", "1m"], NONE, Flag("nonblock".into())),
        (&[], &["-w", "1m"], MINUTE, Variable("wait".into())),
    ] {
        let settled = RunValues::settle(&layers(flags, variables)).patience;
        assert_eq!(settled, Given { value: patience, origin }, "{flags:?} over {variables:?}");
    }
    for (flags, variables, verbosity, origin) in [
        (&[][..], &[][..], Ok(Verbosity::Normal), Default),
        (&["-q"], &["-v"], Ok(Verbosity::Quiet), Flag("quiet".into())),
        (&["-v"], &["-q"], Ok(Verbosity::Verbose), Flag("verbose".into())),
        (&["-q", "-v"], &[], Err(Contradiction("quiet", "verbose")), Flag("quiet".into())),
        (&[], &["-q", "-v"], Err(Contradiction("quiet", "verbose")), Variable("quiet".into())),
        (&[], &["-v"], Ok(Verbosity::Verbose), Variable("verbose".into())),
    ] {
        let settled = RunValues::settle(&layers(flags, variables)).verbosity;
        assert_eq!(settled, Given { value: verbosity, origin }, "{flags:?} over {variables:?}");
    }
    for (flags, variables, expected) in [
        (&["-c", "a b"][..], &[][..], Ok(&["/bin/sh", "-c", "a b"][..])),
        (&["--", "true", "x"], &["-c", "a b"], Ok(&["true", "x"])),
        (&["-c", "new"], &["-c", "old"], Ok(&["/bin/sh", "-c", "new"])),
        (&[], &["-c", "old"], Ok(&["/bin/sh", "-c", "old"])),
        (&["-c", "a", "true"], &[], Err("-c STRING and a command exclude each other")),
        (&["--", ""], &["-c", "old"], Err("the command's name is empty")),
        (&[], &[], Err("there is no command to run")),
    ] {
        let argv = RunValues::settle(&layers(flags, variables)).argv();
        match (argv, expected) {
            (Ok(argv), Ok(expected)) => assert_eq!(argv, expected, "{flags:?} over {variables:?}"),
            (Err(failure), Err(expected)) => {
                let said = format!("{failure:?}");
                assert!(said.contains(expected), "{flags:?} over {variables:?}: {said}");
            }
            (argv, _) => panic!("{flags:?} over {variables:?}: {argv:?}"),
        }
    }
}

#[test]
fn how_a_lock_is_held_is_decided_by_the_last_flag_or_else_by_the_variables() {
    use Mode::{Exclusive, Shared};
    use Origin::{Default, Flag, Variable};
    let slots = |slots: u32| Ok(Mode::Slots(NonZeroU32::new(slots).expect("not 0")));
    let both = |one, other| Err(Contradiction(one, other));
    for (flags, variables, mode, origin) in [
        (&[][..], &[][..], Ok(Exclusive), Default),
        (&["-x"], &[], Ok(Exclusive), Flag("exclusive".into())),
        (&["-e"], &[], Ok(Exclusive), Flag("exclusive".into())),
        (&["-s"], &[], Ok(Shared), Flag("shared".into())),
        (&["--slots", "3"], &[], slots(3), Flag("slots".into())),
        (&["--slots", "1000"], &[], slots(1000), Flag("slots".into())),
        // As with flock, the last one counts.
        (&["-s", "-x"], &[], Ok(Exclusive), Flag("exclusive".into())),
        (&["-x", "-s"], &[], Ok(Shared), Flag("shared".into())),
        (&["-x", "-s", "-x"], &[], Ok(Exclusive), Flag("exclusive".into())),
        (&["--slots", "3", "-s"], &[], both("shared", "slots"), Flag("slots".into())),
        (&["-x", "--slots", "3"], &[], both("exclusive", "slots"), Flag("slots".into())),
        // A flag overrides the variables of all three.
        (&["-x"], &["-s"], Ok(Exclusive), Flag("exclusive".into())),
        (&["-x"], &["--slots", "3"], Ok(Exclusive), Flag("exclusive".into())),
        (&["-s"], &["--slots", "3"], Ok(Shared), Flag("shared".into())),
        (&["--slots", "2"], &["-s"], slots(2), Flag("slots".into())),
        (&["--slots", "2"], &["--slots", "3", "-s"], slots(2), Flag("slots".into())),
        (&[], &["-s"], Ok(Shared), Variable("shared".into())),
        (&[], &["--slots", "3"], slots(3), Variable("slots".into())),
        (&[], &["--slots", "3", "-s"], both("shared", "slots"), Variable("slots".into())),
    ] {
        let settled = RunValues::settle(&layers(flags, variables)).mode;
        assert_eq!(settled, Given { value: mode, origin }, "{flags:?} over {variables:?}");
    }
    // Of two variables none is the last one.
    let mut args = args(&["-s"], ValueSource::CommandLine);
    args.run.exclusive = Some(true);
    let settled = RunValues::settle(&Layers::of(vec![Layer { source: Source::Environment, args }])).mode;
    assert_eq!(settled, Given { value: both("exclusive", "shared"), origin: Variable("shared".into()) });
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
        (&["--tls-ca", "ca"], "file:", "--tls-… is given, but file: does not use TLS: leave it out"),
        (&["--tls-server-name", "x"], "file:", "--tls-… is given, but file: does not use TLS"),
    ] {
        let with_flags = layers(&[&["-b", backend], words].concat(), &[]);
        let with_variables = layers(&["-b", backend], words);
        let options = |layers| {
            let way = ConnectionValues::settle(layers);
            way.target().and_then(|(target, _)| way.options(&target))
        };
        let said = format!("{:?}", options(&with_flags).expect_err("a mistake"));
        assert!(said.contains(refused), "{words:?}: {said}");
        assert!(options(&with_variables).is_ok(), "{words:?}");
    }
    // What would be sent in plain text is refused whoever wanted TLS.
    let way = ConnectionValues::settle(&layers(&["-b", "redis://h"], &["--tls-ca", "ca"]));
    assert!(way.target().and_then(|(target, _)| way.options(&target)).is_err());
}

#[test]
fn once_per_period_only_one_run_may_have_the_lock() {
    let hour = Some(std::time::Duration::from_secs(3600));
    for (flags, variables, expected) in [
        (&[][..], &[][..], Ok(None)),
        (&["--once-per", "1h"], &[], Ok(hour)),
        (&["--once-per", "1h", "-x"], &["-s"], Ok(hour)),
        (&["--once-per", "1h", "-s"], &[], Err("--once-per and --shared exclude each other")),
        (&["-s"], &["--once-per", "1h"], Err("DLOCK_ONCE_PER and --shared exclude each other")),
        (&["--once-per", "1h"], &["--slots", "1"], Err("--once-per and DLOCK_SLOTS exclude each other")),
    ] {
        let values = RunValues::settle(&layers(flags, variables));
        let mode = values.mode.value.expect("one mode");
        match (values.once_per(mode), expected) {
            (Ok(given), Ok(expected)) => assert_eq!(given, expected, "{flags:?} over {variables:?}"),
            (Err(failure), Err(expected)) => {
                let said = format!("{failure:?}");
                assert!(said.contains(expected), "{flags:?} over {variables:?}: {said}");
            }
            (given, _) => panic!("{flags:?} over {variables:?}: {given:?}"),
        }
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
        (
            &["--lock-delay", "6"],
            &[],
            "zk",
            Err("--lock-delay may be at most 5s with a --ttl of 30s at zk://localhost:2181"),
        ),
        (&["--ttl", "6"], &["--lock-delay", "2"], "zk", Err("DLOCK_LOCK_DELAY may be at most 1s with a --ttl of 6s")),
        (&["--lock-delay", "5"], &[], "file:", Err("--lock-delay is only for locks with a lease, not for file:")),
        (&[], &["--lock-delay", "5"], "file:", Ok(Delay::default())),
    ] {
        let layers = layers(flags, variables);
        let target = Target::parse(backend).expect("a backend");
        match (RunValues::settle(&layers).delay(&target), expected) {
            (Ok(delay), Ok(expected)) => assert_eq!(delay, expected, "{flags:?} over {variables:?}"),
            (Err(failure), Err(expected)) => {
                let said = format!("{failure:?}");
                assert!(said.contains(expected), "{flags:?} over {variables:?}: {said}");
            }
            (delay, _) => panic!("{flags:?} over {variables:?}: {delay:?}"),
        }
    }
}

#[test]
fn the_help_shows_the_defaults_that_apply() {
    let shown = args(&[], ValueSource::DefaultValue);
    let shown = Layers::of(vec![Layer { source: Source::Flags, args: shown }]);
    let mut compared = 0;
    for ((option, (shown, from)), (_, (applied, _))) in all(&shown).into_iter().zip(all(&layers(&[], &[]))) {
        assert_eq!(shown, applied, "--{option}");
        compared += usize::from(from != "default");
    }
    let cli = Cli::command();
    let run = cli.find_subcommand("run").expect("run");
    let has_default =
        |option: &&clap::Arg| option.get_action().takes_values() && !option.get_default_values().is_empty();
    assert_eq!(compared, run.get_opts().filter(has_default).count());
    let on_lost = value(&layers(&[], &[]), "on-lost").0;
    assert_eq!(
        (on_lost, value(&layers(&[], &[]), "leftovers").0),
        (format!("{:?}", OnLost::Stop), format!("{:?}", Leftovers::Leave))
    );
}
