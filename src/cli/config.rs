/*!
The options of `dlock config`.
*/

use clap::Args;

use crate::cli::options::{Place, Reach};

/// What `dlock config` does, at length.
pub(super) const CONFIG_ABOUT: &str = "\
Shows the effective settings of all subcommands, and where each comes from: flag, the variable, the file with the line, or \
default. Options that are given here are taken into account. Passwords are shown as ***. What dlock run would refuse is refused \
here with the same message; the files that options name are opened by dlock check, and not here.

Config files are ~/.config/dlock/config.toml ($XDG_CONFIG_HOME/dlock/config.toml) and /etc/dlock/config.toml; DLOCK_CONFIG \
names a file that is read instead of both. Their names are long options without the dashes, password, and flock-paths:

  backend = \"redis://locks/\"
  password-file = \"password\"    # relative to this file
  wait = \"10m\"
  require-backend = true
  [profile.ci]                    # with --profile ci
  backend = \"etcds://e1,e2,e3\"

Options override variables, variables override the profile, and the profile overrides the rest; the user's file overrides \
the system's. What others can write is refused, and so is a file with a password that others can read. See dlock-config(5).";

/// `dlock config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Print one JSON object; see dlock-json(7)
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten, next_help_heading = "Connection options")]
    pub reach: Reach,
}
