/*!
Completion scripts, from the parser's definitions, with suggested backends and durations, and the command after `--`.
*/

use std::fmt::Write;

use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use crate::backend::registry::beginnings;

/// Suggested durations, by option.
const DURATIONS: &[(&str, &[&str])] = &[
    ("wait", &["10s", "1m", "10m", "1h"]),
    ("ttl", &["10s", "30s", "1m", "5m"]),
    ("kill_after", &["1s", "5s", "10s"]),
    ("min_hold", &["10s", "1m", "5m"]),
    ("lock_delay", &["5s", "15s", "1m"]),
    ("once_per", &["15m", "1h", "1d"]),
    ("keep", &["1h", "24h", "7days"]),
    ("max_run", &["10m", "1h", "12h"]),
    ("connect_timeout", &["1s", "5s", "10s"]),
];

/// For bash: the command after `--` is completed as if it stood alone.
const BASH: &str = r#"_dlock() {
    local word
    for (( word = 2; word < COMP_CWORD; word++ )); do
        if [[ "${COMP_WORDS[1]}" == run && "${COMP_WORDS[word]}" == -- ]]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset $(( word + 1 ))
            elif (( word + 1 == COMP_CWORD )); then
                COMPREPLY=( $(compgen -c -- "${COMP_WORDS[COMP_CWORD]}") $(compgen -f -- "${COMP_WORDS[COMP_CWORD]}") )
            else
                COMPREPLY=( $(compgen -f -- "${COMP_WORDS[COMP_CWORD]}") )
            fi
            return 0
        fi
    done
"#;

/// For fish: the command after `--` is completed as if it stood alone.
const FISH: &str = r#"
function __fish_dlock_command
    set -l words (commandline -opc)
    while set -q words[1]; and test "$words[1]" != --
        set -e words[1]
    end
    set -e words[1]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end
complete -c dlock -n "__fish_dlock_using_subcommand run; and contains -- -- (commandline -opc)" -f -a "(__fish_dlock_command)"
"#;

/// Writes the completion script for `shell`.
pub(super) fn script(cli: clap::Command, shell: Shell, text: &mut Vec<u8>) {
    let mut cli = with_forms(cli);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli, "dlock", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = match shell {
        Shell::Bash => script.replacen("_dlock() {\n", BASH, 1),
        Shell::Fish => format!("{script}{FISH}{}", words(&cli)),
        _ => script.into_owned(),
    };
    text.extend_from_slice(script.as_bytes());
}

/// Returns the positional values for fish, which the generator leaves out.
fn words(cli: &clap::Command) -> String {
    let mut text = String::new();
    for command in cli.get_subcommands() {
        for word in
            command.get_positionals().flat_map(clap::Arg::get_possible_values).filter(|word| !word.is_hide_set())
        {
            let about = word.get_help().map(ToString::to_string).unwrap_or_default().replace('\'', "\\'");
            let when = format!("__fish_dlock_using_subcommand {}", command.get_name());
            // Writing to a String cannot fail.
            let _ = writeln!(text, "complete -c dlock -n \"{when}\" -f -a {} -d '{about}'", word.get_name());
        }
    }
    text
}

/// The subcommands that use a lock service.
const CONNECTED: [&str; 6] = ["run", "status", "list", "held", "latch", "barrier"];

/// Adds suggested values to options that accept any text of a form. For completion only, not for parsing.
fn with_forms(cli: clap::Command) -> clap::Command {
    let names: Vec<&'static str> =
        cli.get_subcommands().map(|command| &*command.get_name().to_owned().leak()).collect();
    // Without the argument for an action, which nobody needs.
    let name = clap::Arg::new("name").help("The subcommand").value_parser(PossibleValuesParser::new(names));
    let cli = cli.mut_subcommand("help", |help| {
        let about = help.get_about().cloned().unwrap_or_default();
        clap::Command::new("help").about(about).hide(true).arg(name)
    });
    CONNECTED.iter().fold(cli, |cli, name| cli.mut_subcommand(name, with_forms_of_values))
}

fn with_forms_of_values(command: clap::Command) -> clap::Command {
    // The definitions live as long as the program.
    let urls = beginnings().map(|url| -> &'static str { url.leak() });
    let command = command.mut_arg("backend", |arg| arg.value_parser(PossibleValuesParser::new(urls)));
    let has = |command: &clap::Command, option: &str| command.get_arguments().any(|arg| arg.get_id() == option);
    DURATIONS.iter().fold(command, |command, (option, durations)| {
        if !has(&command, option) {
            return command;
        }
        command.mut_arg(option, |arg| arg.value_parser(PossibleValuesParser::new(durations.iter().copied())))
    })
}
