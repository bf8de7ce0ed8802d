/*!
The witness of locks that several commands may hold: finds out whether two commands that exclude each other ever ran at the
same time, whatever dlock believes. For locks that are only ever held alone there is [`Witness`](super::witness::Witness).

Each command takes flock(2)s of its own on local files before it does its work, without waiting: an exclusive command one
that all others share, and the others one of their mode and one of their slot. As long as dlock works, this can never fail.
Processes started under the witness inherit the descriptors, so a grandchild that survives its command counts too. The files
are taken under a mutex, so the order of the beginnings in the log is the order in which they happened.
*/

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::witness::{overlaps, without_overlaps};

/// How a command holds the lock under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Together with all others of this mode.
    Shared,
    /// Together with others of this mode and of other slots, of which there are so many.
    Slots(u32),
}

impl Mode {
    /// dlock's options for it.
    pub fn options(self) -> Vec<String> {
        match self {
            Self::Exclusive => vec!["-x".to_owned()],
            Self::Shared => vec!["-s".to_owned()],
            Self::Slots(slots) => vec!["--slots".to_owned(), slots.to_string()],
        }
    }

    /// What the witness calls it, also in the variable [`HELD_AS`].
    pub fn word(self) -> String {
        match self {
            Self::Exclusive => "x".to_owned(),
            Self::Shared => "s".to_owned(),
            Self::Slots(slots) => slots.to_string(),
        }
    }

    /// Reads such a word.
    pub fn read(word: &str) -> Option<Self> {
        match word {
            "x" => Some(Self::Exclusive),
            "s" => Some(Self::Shared),
            slots => slots.parse().ok().map(Self::Slots),
        }
    }
}

/// The variable that tells a command how its dlock holds the lock, if its command line does not.
pub const HELD_AS: &str = "HELD_AS";

/// The file with [`PROGRAM`] in the witness's directory.
const PROGRAM_FILE: &str = "mode-witness.pl";

/// The arguments are the directory, the mode (or `-` for what [`HELD_AS`] says) and the work: shell text, or a number of
/// seconds. With shell text it becomes that shell, so that its tree is the one that the work makes.
const PROGRAM: &str = r#"
my ($dir, $mode, $work) = @ARGV;
$mode = $ENV{HELD_AS} // "x" if $mode eq "-";
my ($slot, $token) = ($ENV{DLOCK_SLOT} // "-", $ENV{DLOCK_TOKEN} // "-");
my ($shared, $alone) = (1 | 4, 2 | 4);
# What is opened from here on is inherited by what the work starts.
$^F = 255;
sub file {
    open my $file, ">>", "$dir/modes-$_[0].lock" or die "$dir: $!";
    $file;
}
sub stamp {
    open my $up, "<", "/proc/uptime" or die "/proc/uptime: $!";
    <$up> =~ /^(\d+)\.(\d+)/;
    open my $log, ">>", "$dir/modes.log" or die "$dir: $!";
    syswrite $log, "$_[0] $$ $mode $slot $token $1${2}0000000\n";
}
sub refuse {
    stamp("OVERLAP");
    print STDERR "witness: $_[0]\n";
    exit 97;
}
my $mutex = file("mutex");
flock $mutex, 2;
my ($everybody, $class, $own) = file("all");
if ($mode eq "x") {
    flock $everybody, $alone or refuse("an exclusive command is not alone");
} else {
    flock $everybody, $shared or refuse("an exclusive command is running");
    opendir my $names, $dir or die "$dir: $!";
    for my $name (readdir $names) {
        next unless $name =~ /^modes-class-(.*)\.lock$/ and $1 ne $mode;
        open my $other, ">>", "$dir/$name" or die "$dir: $!";
        flock $other, $alone or refuse("a command of mode $1 is running");
        close $other;
    }
    $class = file("class-$mode");
    flock $class, $shared or refuse("the witness itself is broken");
}
if ($mode =~ /^\d+$/) {
    $slot =~ /^\d+$/ and $slot < $mode or refuse("there is no slot $slot of $mode");
    $own = file("slot-$slot");
    flock $own, $alone or refuse("slot $slot is taken twice");
} elsif ($slot ne "-") {
    refuse("a command without slots has slot $slot");
}
stamp("start");
close $mutex;
if ($work =~ /^[\d.]+$/) {
    select undef, undef, undef, $work;
    stamp("end");
    exit 0;
}
exec "/bin/sh", "-c", <<'SH', "witness", $dir, "$mode $slot $token", $work or die "/bin/sh: $!";
witness=$1 line=$2 work=$3
shift 3
stamp_end() {
    read -r up rest < /proc/uptime
    echo "end $$ $line ${up%.*}${up#*.}0000000" >> "$witness/modes.log"
}
trap stamp_end EXIT
eval "$work"
SH
"#;

/// How a command held the lock, by its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// How its dlock wanted it.
    pub mode: Mode,
    /// Its `DLOCK_SLOT`.
    pub slot: Option<u32>,
    /// Its `DLOCK_TOKEN`.
    pub token: u64,
}

impl Hold {
    /// Reads the words for the mode, the slot (`-` for none) and the token.
    pub fn read(mode: &str, slot: &str, token: &str) -> Option<Self> {
        let slot = if slot == "-" { None } else { Some(slot.parse().ok()?) };
        Some(Self { mode: Mode::read(mode)?, slot, token: token.parse().ok()? })
    }

    /// Whether the two exclude each other, so that the later one has the larger token.
    pub fn excludes(&self, other: &Self) -> bool {
        match (self.mode, other.mode) {
            (Mode::Shared, Mode::Shared) => false,
            (Mode::Slots(one), Mode::Slots(another)) if one == another => self.slot == other.slot,
            _ => true,
        }
    }

    /// The first two of `holds`, in the order of their beginnings, that exclude each other although the token of the later one
    /// is not larger.
    pub fn out_of_order(holds: &[Self]) -> Option<(Self, Self)> {
        let wrong = |later: usize| {
            let is_wrong = |earlier: &&Self| earlier.excludes(&holds[later]) && earlier.token >= holds[later].token;
            Some((*holds[..later].iter().find(is_wrong)?, holds[later]))
        };
        (0..holds.len()).find_map(wrong)
    }
}

/// A critical section, as its own command saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// How it held the lock.
    pub hold: Hold,
    /// Whether it came to its end: a command that is killed does not, nor one that is still running.
    pub ended: bool,
}

/// The witness files and their log.
pub struct ModeWitness {
    dir: PathBuf,
}

impl ModeWitness {
    /// Keeps its files in `dir`, which must exist and be writable for the commands. Two values for the same directory are the
    /// same witness.
    pub fn in_dir(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref().canonicalize().expect("the witness needs a directory that exists");
        // In a file, so that command lines stay readable in messages.
        let program = dir.join(PROGRAM_FILE);
        if !program.exists() {
            fs::write(program, PROGRAM).expect("the witness needs a directory to write to");
        }
        Self { dir }
    }

    /// A command line that does `work` under the witness, to be run under a dlock that holds the lock in this mode. The work is
    /// shell text, or a number of seconds to wait.
    ///
    /// It exits as the work does, or with [`OVERLAP_CODE`](super::witness::OVERLAP_CODE) and without having done anything when
    /// it excludes a command that is running.
    pub fn command(&self, mode: Mode, work: &str) -> Vec<OsString> {
        self.command_as(&mode.word(), work)
    }

    /// Such a command line for a dlock of any mode, of which the variable [`HELD_AS`] tells.
    pub fn command_of_any(&self, work: &str) -> Vec<OsString> {
        self.command_as("-", work)
    }

    fn command_as(&self, mode: &str, work: &str) -> Vec<OsString> {
        let program = self.dir.join(PROGRAM_FILE);
        vec!["perl".into(), program.into(), self.dir.clone().into(), mode.into(), work.into()]
    }

    /// What was written so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("modes.log")).unwrap_or_default()
    }

    /// Asserts that no two commands that exclude each other overlapped, that every slot had its number, and that of two commands
    /// that exclude each other the later one has the larger token; panics with the log otherwise.
    ///
    /// It covers what is in the log now. Returns the sections in the order of their beginnings.
    #[track_caller]
    pub fn check(&self) -> Vec<Section> {
        let log = self.log();
        self.verdict().unwrap_or_else(|wrong| panic!("{wrong}. The whole log:\n{log}"))
    }

    /// What [`Self::check`] asserts, without panicking: the sections in the order of their beginnings, or what is wrong.
    pub fn verdict(&self) -> Result<Vec<Section>, String> {
        parse(&self.log())
    }

    /// The verdict for a lock that may fail now and then: commands that should not have run are left out.
    pub fn verdict_but_overlaps(&self) -> Result<Vec<Section>, String> {
        parse(&without_overlaps(&self.log()))
    }

    /// When each command that should not have run found that out, by `CLOCK_BOOTTIME` and up to 10 ms earlier than the truth.
    pub fn overlaps(&self) -> Vec<Duration> {
        overlaps(&self.log())
    }
}

fn parse(log: &str) -> Result<Vec<Section>, String> {
    let mut sections: Vec<(&str, Section)> = Vec::new();
    for (number, line) in (1..).zip(log.lines()) {
        let wrong = |what: &str| format!("line {number} of the witness's log, {line:?}: {what}");
        let [event, pid, mode, slot, token, _] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(wrong("is not a line of the witness"));
        };
        if event == "OVERLAP" {
            return Err(wrong("two commands that exclude each other ran at the same time, or a slot is wrong"));
        }
        let hold = Hold::read(mode, slot, token).ok_or_else(|| wrong("the command had no usable token or slot"))?;
        match event {
            "start" => sections.push((pid, Section { hold, ended: false })),
            "end" => {
                let open = sections.iter_mut().rev().find(|(whose, section)| *whose == pid && !section.ended);
                open.ok_or_else(|| wrong("ends nothing"))?.1.ended = true;
            }
            _ => return Err(wrong("is not a line of the witness")),
        }
    }
    let sections: Vec<Section> = sections.into_iter().map(|(_, section)| section).collect();
    let holds: Vec<Hold> = sections.iter().map(|section| section.hold).collect();
    match Hold::out_of_order(&holds) {
        Some((earlier, later)) => Err(format!("the token does not rise from {earlier:?} to {later:?}")),
        None => Ok(sections),
    }
}
