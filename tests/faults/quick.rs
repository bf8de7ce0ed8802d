/*!
A critical section in one process: for crowds, in which its cost is what counts, and for signals, which may end it at
any moment and must leave nothing of it behind.
*/

use std::ffi::OsString;
use std::path::Path;

use super::episode::Episode;
use super::held::Held;

/// The witness of [`crate::support::witness`], without a shell and without flock(1). `%k` in the directory stands for
/// the key. It adds 1 to the number in the file `counter` there, which only the lock under test protects. If there is a
/// store, it writes to it; if there is a pipe, it reports there that it has begun; and if there is a gate, a file, it
/// waits until nobody has an exclusive lock on it.
const PROGRAM: &str = r#"
my ($dir, $store, $stay, $pipe, $gate) = @ARGV;
my $token = $ENV{DLOCK_TOKEN} // "-";
$dir =~ s/%k/$ENV{DLOCK_KEY}/;
sub put { open my $file, $_[0], $_[1] or die "$_[1]: $!"; syswrite $file, $_[2] }
sub get { open my $file, "<", $_[0] or return ""; my $line = <$file>; $line // "" }
sub stamp { get("/proc/uptime") =~ /^(\d+)\.(\d+)/; put(">>", "$dir/log", "$_[0] $token $1${2}0000000\n") }
open my $lock, ">>", "$dir/witness.lock" or die "$dir: $!";
unless (flock $lock, 6) {
    stamp("OVERLAP");
    print STDERR "witness: another command is running\n";
    exit 97;
}
stamp("start");
put(">", $store, "start $token\n") if $store;
my $number = get("$dir/counter") || 0;
put(">", $pipe, "begun\n") if $pipe;
if ($gate) {
    open my $file, "<", $gate or die "$gate: $!";
    flock $file, 1;
}
select undef, undef, undef, $stay if $stay;
put(">", "$dir/counter", $number + 1 . "\n");
put(">", $store, "write $token\n") if $store;
stamp("end");
"#;

/// How long a section lasts.
#[derive(Clone, Copy, Debug)]
pub enum Stay {
    /// As short as possible.
    Not,
    /// This many seconds.
    For(f64),
    /// Until it is killed.
    Forever,
}

/// The argument vector of a section under the episode's own witness, which reports to the store. Where the lock is not held
/// alone it takes more than one process.
pub fn section(episode: &Episode<'_>, stay: Stay) -> Vec<OsString> {
    if episode.held != Held::Alone {
        let stay = match stay {
            Stay::Not => "0".to_owned(),
            Stay::For(seconds) => format!("{seconds:.3}"),
            Stay::Forever => "1000".to_owned(),
        };
        return episode.section(&format!("sleep {stay}; {}", episode.store.write()));
    }
    let stay = match stay {
        Stay::Not => String::new(),
        Stay::For(seconds) => seconds.to_string(),
        Stay::Forever => "1000".to_owned(),
    };
    let none = Path::new("");
    command(&[episode.scratch.root(), episode.store.path(), Path::new(&stay), none, none])
}

/// The argument vector of a section under a witness per key, each in the directory of the key's name in `dir`; with a
/// pipe and a gate.
pub fn section_by_key(dir: &Path, pipe: &Path, gate: &Path) -> Vec<OsString> {
    let none = Path::new("");
    command(&[&dir.join("%k"), none, none, pipe, gate])
}

fn command(args: &[&Path]) -> Vec<OsString> {
    let mut command: Vec<OsString> = ["perl", "-e", PROGRAM].map(Into::into).into();
    command.extend(args.iter().map(Into::into));
    command
}
