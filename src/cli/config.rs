/*!
The options of `dlock config`.
*/

use clap::Args;

use crate::cli::options::{CONNECTION, Place, Reach};

/// The long description of `dlock config`.
pub(super) const CONFIG_ABOUT: &str = "\
Shows the effective settings of all subcommands, and where each comes from: flag, the variable, the file with the line, or \
default. Options of this command line count too. Passwords are shown as ***. Settings that dlock run would refuse are refused \
with the same message. Files that options name are opened by dlock check, not by dlock config.

Config files are ~/.config/dlock/config.toml ($XDG_CONFIG_HOME/dlock/config.toml) and /etc/dlock/config.toml; DLOCK_CONFIG \
names a file that is read instead of both. They set long options, without the dashes, and also password and flock-paths:

  backend = \"redis://locks/\"
  password-file = \"password\"    # relative to this file
  wait = \"10m\"
  require-backend = true
  [profile.ci]                    # with --profile ci
  backend = \"etcds://e1,e2,e3\"

Options override variables, variables override the profile, and the profile overrides the rest; the user's file overrides \
the system's. A file that others can write is refused, and so is one with a password that others can read. See dlock-config(5).";

/// `dlock config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Print one JSON object; see dlock-json(7)
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,
}
