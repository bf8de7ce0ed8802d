/*!
Completion scripts: what the parser's definitions say, the forms of backends and durations, and the command after `--`.
*/

use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use crate::backend::registry::beginnings;

/// Durations that are offered, by the options that take one.
const DURATIONS: &[(&str, &[&str])] = &[
    ("wait", &["10s", "1m", "10m", "1h"]),
    ("ttl", &["10s", "30s", "1m", "5m"]),
    ("kill_after", &["1s", "5s", "10s"]),
    ("min_hold", &["10s", "1m", "5m"]),
    ("lock_delay", &["5s", "15s", "1m"]),
    ("once_per", &["15m", "1h", "1d"]),
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
        Shell::Fish => format!("{script}{FISH}"),
        _ => script.into_owned(),
    };
    text.extend_from_slice(script.as_bytes());
}

/// The definitions with values to offer where any text of a form is allowed. For completion only: they are no parser.
fn with_forms(cli: clap::Command) -> clap::Command {
    cli.mut_subcommand("run", |run| {
        // The definitions live as long as the program.
        let urls = beginnings().map(|url| -> &'static str { url.leak() });
        let run = run.mut_arg("backend", |arg| arg.value_parser(PossibleValuesParser::new(urls)));
        DURATIONS.iter().fold(run, |run, (option, durations)| {
            run.mut_arg(option, |arg| arg.value_parser(PossibleValuesParser::new(durations.iter().copied())))
        })
    })
}
