/*!
The man page about config files, dlock-config(5).
*/

use clap_mangen::roff::{Roff, roman};

use crate::cli::defaults::{Kind, kind};
use crate::cli::settable;
use crate::command::generate::manual::parts::{DATE, entries, list, listed, paragraphs, see_also};

/// The name of this page, in the place of a subcommand.
pub(super) const CONFIGURATION: &str = "config.5";

const ABOUT: &[&str] = &[
    "A config file sets options of dlock that neither the command line nor a variable sets. Its format is TOML \
     (https://toml.io): each line has a name, an equals sign and a value; # begins a comment.",
    "A name is a long option without its dashes. A value is a text in quotes, a number, or, for an option without a value, true or \
     false; it means the same as on the command line. A relative path starts at the directory of the config file, and ~ has no \
     meaning. A subcommand ignores options that it does not have; a name that no subcommand has is an error.",
    "Options that exclude each other (wait and nonblock; quiet and verbose; exclusive, shared and slots; password and \
     password-file) are an error in one file, and among variables; on the command line the last one counts. Of several places, the \
     first one in ORDER counts: with --wait 10 on the command line, nonblock in a file has no effect.",
    "To check a file, use dlock-config(1): it shows the effective settings, each with its origin. dlock reads a file once, when it \
     starts: later changes are for later runs only.",
];

const FILES: &[(&str, &str)] = &[
    (
        "~/.config/dlock/config.toml",
        "the file of the user; if XDG_CONFIG_HOME is an absolute path, it replaces ~/.config",
    ),
    ("/etc/dlock/config.toml", "the file of the system"),
    (
        "$DLOCK_CONFIG",
        "an absolute path: this file is read instead of both, and must exist; /dev/null for none. Nothing is ever read from the \
         working directory",
    ),
];

const ORDER: &[(&str, &str)] = &[
    ("1", "an option on the command line"),
    ("2", "its variable, such as DLOCK_WAIT"),
    ("3", "the profile in the user's file"),
    ("4", "the profile in the system's file"),
    ("5", "the top of the user's file"),
    ("6", "the top of the system's file"),
    ("7", "the default"),
];

const PROFILES: &[&str] = &[
    "A table [profile.NAME] has values that count only with --profile NAME or DLOCK_PROFILE=NAME. All lines below it, up to the next \
     table, belong to it, so values for all profiles come first. A profile adds to the rest of the file: options that it does not \
     set, such as user and password-file, keep their values from there. A profile that no file has is an error; --profile '' means \
     none.",
    "The user's file can choose a profile of the system's file: profile = \"NAME\".",
];

/// The kinds of values.
const KINDS: &[(&str, Kind)] = &[
    ("a text in quotes, or a number", Kind::Text),
    ("the path of a file, in quotes", Kind::Path),
    ("true or false", Kind::Switch),
];

/// The option that no command line takes.
const PASSWORD: (&str, &str) =
    ("password = TEXT", "the password for the backend; no option on the command line takes it");

/// The setting without an option.
const FLOCK_PATHS: (&str, &str) = (
    "flock-paths = [PATTERN, ...]",
    "the absolute paths that dlock-flock(1) locks at the backend of the config files; all others are locked on this host. In a pattern, * \
     matches any string without a slash, ? any one character except a slash, and [...] one of the characters in it",
);

const TRUST: &[&str] = &[
    "Whoever can write a config file decides where the locks are. So dlock exits with 78 unless the file is a regular file that \
     belongs to root or to the user who runs dlock, and that neither its group nor others can write. The same goes for \
     every directory on its path, also through symbolic links, but these may be sticky, as /tmp is. \
     Under sudo(8), the file of the user who called it is not trusted.",
    "A password is best kept in a file of its own (password-file). If it is in the config file (password, or the URL of backend), \
     that file must not be readable by others, and the same goes for the password file, which must belong to root or to the user. \
     It is for the servers of backend in these files: with another --backend or DLOCK_BACKEND it is not used. The group may read either of them if root \
     owns it: chown root:GROUP FILE; chmod 640 FILE. Users who cannot read /etc/dlock/config.toml cannot use dlock without \
     DLOCK_CONFIG, so keep the password out of it where several users run dlock. dlock config does not show passwords.",
];

const EXAMPLES: &[(&str, &str)] = &[
    (
        "/etc/dlock/config.toml of hosts that share a redis server. With require-backend, dlock never falls back to locks on this \
         host alone, should the line above it go:",
        "backend = \"rediss://locks.example.org/\"\nrequire-backend = true\nuser = \"dlock\"\npassword-file = \"password\"    # \
         /etc/dlock/password\n\n[profile.ci]\nbackend = \"etcds://e1,e2,e3\"\ntls-ca = \"/etc/ssl/etcd-ca.pem\"\nwait = \"10m\"",
    ),
    ("With it, a line of a crontab:", "*/10 * * * *  dlock run -q -n -E 0 -k backup -- /usr/local/bin/backup.sh"),
    (
        "What applies in a job of that crontab, whose environment is nearly empty:",
        "env -i HOME=\"$HOME\" PATH=\"$PATH\" dlock config",
    ),
];

/// Writes dlock-config(5).
pub(super) fn configuration(text: &mut Vec<u8>) {
    let mut page = Roff::new();
    let source = format!("dlock {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["DLOCK-CONFIG", "5", DATE, source.as_str(), "File Formats"]);
    page.control("SH", ["NAME"]);
    page.text([roman("dlock-config - config files of dlock")]);
    paragraphs(&mut page, "DESCRIPTION", ABOUT);
    list(&mut page, "FILES", FILES.iter().copied());
    list(&mut page, "ORDER", ORDER.iter().copied());
    paragraphs(&mut page, "PROFILES", PROFILES);
    let options: Vec<(&str, String)> = KINDS.iter().map(|&(values, of)| (values, names(of))).collect();
    list(&mut page, "OPTIONS", options.iter().map(|(values, names)| (*values, names.as_str())));
    entries(&mut page, [PASSWORD, FLOCK_PATHS].into_iter());
    paragraphs(&mut page, "TRUST", TRUST);
    page.control("SH", ["EXAMPLES"]);
    listed(&mut page, EXAMPLES);
    page.control("SH", ["SEE ALSO"]);
    see_also(&mut page, &["dlock(1)", "dlock-config(1)", "dlock-run(1)", "dlock-flock(1)", "crontab(5)"]);
    text.extend_from_slice(page.render().as_bytes());
}

/// Returns the names of the options that take values of this kind.
fn names(of: Kind) -> String {
    let options = settable();
    let of_kind = options.iter().filter(|option| kind(option) == of);
    let mut names: Vec<&str> = of_kind.filter_map(clap::Arg::get_long).collect();
    names.sort_unstable();
    names.join(", ")
}
