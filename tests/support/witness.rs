/*!
The witness: finds out whether two commands ever ran at the same time, whatever dlock believes.

Each command takes a lock of another kind (a non-blocking flock(2) on one local file) before it does its work. As long
as dlock works, this can never fail; if it fails, two commands overlapped. Processes started under the witness inherit
its descriptor, so a grandchild that survives its command is an overlap as well.

The command lines are for `/bin/sh` and flock(1), not python: with 100 contenders on two cores its 20 ms of start-up
would dominate every measurement. The price is the clock: a shell gets `CLOCK_BOOTTIME` from `/proc/uptime` only, in
hundredths of a second, rounded down. So a time in a [`Section`] is up to 10 ms earlier than the truth, never later. The
*order* of the sections does not come from the clock, but from the log, to which only the holder of the witness writes.
*/

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The exit code of a command that found another one running.
pub const OVERLAP_CODE: i32 = 97;

/// How much too early a time in a [`Section`] can be, in nanoseconds.
pub const RESOLUTION_NS: u64 = 10_000_000;

/// The file with [`SCRIPT`] in the witness's directory.
const SCRIPT_FILE: &str = "witness.sh";

/// `$1` is the directory, `$2` the work, and the rest are the work's own arguments.
///
/// It uses a descriptor that was not open: with the file backend one of the inherited ones is dlock's own lock, and
/// must stay as it is.
const SCRIPT: &str = r#"
witness=$1 work=$2
shift 2
stamp() {
    read -r up rest < /proc/uptime
    echo "$1 ${DLOCK_TOKEN:--} ${up%.*}${up#*.}0000000" >> "$witness/log"
}
for fd in 9 8 7 6 5 4 3; do
    [ -L "/proc/$$/fd/$fd" ] || break
done
eval "exec $fd>>\"\$witness/witness.lock\""
if ! flock -n "$fd"; then
    stamp OVERLAP
    echo 'witness: another command is running' >&2
    exit 97
fi
trap 'stamp end' EXIT
stamp start
eval "$work"
"#;

/// A critical section, as its own command saw it. Times are of `CLOCK_BOOTTIME` in nanoseconds, each up to
/// [`RESOLUTION_NS`] earlier than the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The command's `DLOCK_TOKEN`.
    pub token: u64,
    /// The time before the work.
    pub start: u64,
    /// The time after the work; none if the command was killed, or is still running.
    pub end: Option<u64>,
}

/// One witness file and its log.
pub struct Witness {
    dir: PathBuf,
}

impl Witness {
    /// Keeps its files (`witness.sh`, `witness.lock`, `log`) in `dir`, which must exist and be writable for the
    /// commands. Two values for the same directory are the same witness.
    pub fn in_dir(dir: impl AsRef<Path>) -> Witness {
        let dir = dir.as_ref().canonicalize().expect("the witness needs a directory that exists");
        // In a file, so that command lines stay readable in messages.
        let script = dir.join(SCRIPT_FILE);
        if !script.exists() {
            fs::write(script, SCRIPT).expect("the witness needs a directory to write to");
        }
        Witness { dir }
    }

    /// A command line that does `work` (shell text) under the witness, to be run under dlock.
    ///
    /// - It exits as `work` does (`exit 3` is fine), or with [`OVERLAP_CODE`] and without having done anything when
    ///   another one is running.
    /// - `exec` in `work` would lose the `end` of the section.
    /// - It is one process, the shell, and runs flock(1) once at the start: 2 ms or so.
    /// - A signal kills the shell at once and not what it waits for, as it does with any shell; `work` that must not
    ///   be survived by its own children needs a `trap`.
    pub fn command(&self, work: &str) -> Vec<OsString> {
        self.command_with(work, &[])
    }

    /// A command line that adds 1 to the number in the file `counter` (none is 0), which only the lock under test
    /// protects: it reads the number, starts a process, which makes it likely that others get to run, and writes it.
    /// After n runs without an overlap it is n larger; see [`read_counter`].
    pub fn counter_command(&self, counter: &Path) -> Vec<OsString> {
        let work = r#"n=0; [ ! -s "$1" ] || read -r n < "$1"; /bin/true; echo "$((n + 1))" > "$1""#;
        self.command_with(work, &[counter.as_os_str().to_owned()])
    }

    fn command_with(&self, work: &str, args: &[OsString]) -> Vec<OsString> {
        let mut command: Vec<OsString> = ["/bin/sh".into(), self.dir.join(SCRIPT_FILE).into()].into();
        command.extend([self.dir.clone().into_os_string(), work.into()]);
        command.extend_from_slice(args);
        command
    }

    /// What was written so far, for waiting (`log().contains("start ")`) and for messages.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Asserts that no two commands overlapped, that no section began or ended inside another one, and that the tokens
    /// strictly rise in the order of the sections; panics with the log otherwise. A section without an end is fine if
    /// its command was killed: its witness passed on, so it was dead.
    ///
    /// It covers what is in the log now. Returns the sections in their order.
    #[track_caller]
    pub fn check(&self) -> Vec<Section> {
        let log = self.log();
        self.verdict().unwrap_or_else(|wrong| panic!("{wrong}. The whole log:\n{log}"))
    }

    /// What [`Self::check`] asserts, without panicking: the sections in their order, or what is wrong.
    pub fn verdict(&self) -> Result<Vec<Section>, String> {
        parse(&self.log())
    }

    /// The verdict for a lock that may fail now and then: commands that found another one running are left out.
    pub fn verdict_but_overlaps(&self) -> Result<Vec<Section>, String> {
        parse(&without_overlaps(&self.log()))
    }

    /// When each command that found another one running found it, by `CLOCK_BOOTTIME` and up to [`RESOLUTION_NS`] earlier
    /// than the truth.
    pub fn overlaps(&self) -> Vec<Duration> {
        overlaps(&self.log())
    }
}

/// A log without the lines of commands that found another one running.
pub fn without_overlaps(log: &str) -> String {
    log.split_inclusive('\n').filter(|line| !line.starts_with("OVERLAP")).collect()
}

/// When each command of a log that found another one running found it; see [`Witness::overlaps`].
pub fn overlaps(log: &str) -> Vec<Duration> {
    let overlaps = log.lines().filter(|line| line.starts_with("OVERLAP"));
    overlaps.filter_map(|line| Some(Duration::from_nanos(line.rsplit(' ').next()?.parse().ok()?))).collect()
}

/// The number in a file that [`Witness::counter_command`] has written; 0 if there is none.
pub fn read_counter(counter: &Path) -> u64 {
    let text = fs::read_to_string(counter).unwrap_or_default();
    if text.is_empty() { 0 } else { text.trim_end().parse().expect("a counter holds a number") }
}

fn parse(log: &str) -> Result<Vec<Section>, String> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in (1..).zip(log.lines()) {
        let wrong = |what: &str| format!("line {number} of the witness's log, {line:?}: {what}");
        let [event, token, time] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(wrong("is not a line of the witness"));
        };
        if event == "OVERLAP" {
            return Err(wrong("two commands ran at the same time"));
        }
        let token: u64 = token.parse().map_err(|_| wrong("the command had no usable DLOCK_TOKEN"))?;
        let time: u64 = time.parse().map_err(|_| wrong("is not a line of the witness"))?;
        let last = sections.last_mut();
        let before = last.as_ref().map_or(0, |last| last.end.unwrap_or(last.start));
        if time < before {
            return Err(wrong("is earlier than the line before it"));
        }
        match (event, last) {
            ("start", Some(last)) if token <= last.token => {
                return Err(wrong(&format!("the token does not rise, the one before was {}", last.token)));
            }
            ("start", _) => sections.push(Section { token, start: time, end: None }),
            ("end", Some(last)) if last.token == token && last.end.is_none() => last.end = Some(time),
            ("end", _) => return Err(wrong("ends a section that is not the one before it")),
            _ => return Err(wrong("is not a line of the witness")),
        }
    }
    Ok(sections)
}
