/*!
One file per subcommand.
*/

pub(crate) mod generate;
pub(crate) mod run;
