/*!
Identification of processes on this host, for people and for other processes: boots, PID namespaces, start times, users.
*/

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::str::SplitWhitespace;

/// The inode of the PID namespace in which the system was started, as the kernel defines it: all processes can be seen
/// from there.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Returns the first 8 hexadecimal digits of the kernel's id of the current boot, which no two hosts share; `None` if
/// it cannot be read.
#[must_use]
pub(crate) fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    id.get(..8).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit())).map(str::to_owned)
}

/// Returns the host's name.
#[must_use]
pub(crate) fn host() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the inode of this process's PID namespace.
#[must_use]
pub(crate) fn namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

/// Returns `true` if the processes of all PID namespaces can be seen from here.
#[must_use]
pub(crate) fn sees_all() -> bool {
    namespace() == Some(FIRST_NAMESPACE)
}

/// Returns the start of the process, in clock ticks after boot; `None` if there is no such process, or it is hidden.
#[must_use]
pub(crate) fn start_of(pid: i32) -> Option<u64> {
    fields_of(pid, |fields| fields.nth(19)?.parse().ok())
}

/// Returns `true` if the process `pid` has this start and has not ended.
#[must_use]
pub(crate) fn is_there(pid: i32, start: u64) -> bool {
    // A process that has ended stays until its parent has asked for its exit code.
    let lives =
        fields_of(pid, |fields| Some(!matches!(fields.next()?, "Z" | "X") && fields.nth(18)?.parse() == Ok(start)));
    lives == Some(true)
}

/// Applies `read` to the kernel's fields about the process after its name; the first is the third in
/// `proc_pid_stat(5)`.
fn fields_of<T>(pid: i32, read: impl FnOnce(&mut SplitWhitespace<'_>) -> Option<T>) -> Option<T> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have any characters.
    read(&mut stat.rsplit_once(')')?.1.split_whitespace())
}

/// Returns the parent of the process, which has started or adopted it; `None` if it cannot be seen.
#[must_use]
pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    fields_of(pid, |fields| fields.nth(1)?.parse().ok()).filter(|parent| *parent > 0)
}

/// Returns the arguments with which the process's program was started, each of them ended by a NUL.
#[must_use]
pub(crate) fn arguments_of(pid: i32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Returns `true` if the process was forked by `parent` and has started no other program since, like a subshell.
#[must_use]
pub(crate) fn is_copy_of(pid: i32, parent: i32) -> bool {
    // Each start of a program puts its stack, arguments and environment elsewhere; a copy has them in the same place.
    let places = |fields: &mut SplitWhitespace<'_>| {
        // The 28th, 48th and 50th: startstack, arg_start and env_start.
        Some([fields.nth(25), fields.nth(19), fields.nth(1)].map(|field| field.map(str::to_owned)))
    };
    let image = |pid| Some((arguments_of(pid), fields_of(pid, places)?));
    image(pid).is_some_and(|own| image(parent) == Some(own))
}

/// Returns the first 15 bytes of the name of the process's program; empty if there is no such process.
#[must_use]
pub(crate) fn program_of(pid: i32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned()
}

/// Returns the ids of the process in its own PID namespace and in the outer ones.
#[must_use]
pub(crate) fn numbers_of(pid: i32) -> Vec<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    numbers.split_whitespace().filter_map(|number| number.parse().ok()).chain([pid]).collect()
}

/// Returns the name of the user who owns the process.
#[must_use]
pub(crate) fn user_of(pid: i32) -> Option<String> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|process| user_name(process.uid()))
}

/// Returns the user's name in `/etc/passwd`, or else the number. The system's other user databases may ask a server,
/// which may not answer.
#[must_use]
pub(crate) fn user_name(id: u32) -> String {
    let (id, users) = (id.to_string(), fs::read_to_string("/etc/passwd").unwrap_or_default());
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    });
    named.unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there_and_one_that_started_at_another_time_is_not() {
        let pid = nix::unistd::getpid().as_raw();
        let start = start_of(pid).expect("started");
        assert!(is_there(pid, start) && !is_there(pid, start + 1) && start_of(-1).is_none());
        assert!(!program_of(pid).is_empty() && program_of(-1).is_empty());
        assert!(numbers_of(pid).contains(&pid));
        assert_eq!(user_of(pid), Some(user_name(nix::unistd::geteuid().as_raw())));
        assert_eq!(boot().map(|boot| boot.len()), Some(8));
        assert!(namespace().is_some());
        assert_eq!(user_name(4_000_000_000), "4000000000");
    }
}
