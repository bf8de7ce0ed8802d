//! Reading `/proc` about a process, and starting processes as another user.
//!
//! A process that has ended counts as gone for every function but [`state`], even if its parent has not collected it
//! yet: a frozen parent collects nothing.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::rendezvous::eventually;

/// The user and group that [`unprivileged`] switches to: `nobody`, who owns nothing.
pub const NOBODY: u32 = 65534;

/// What a process is doing, as far as tests need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// R: running
    Running,
    /// S, D, I: sleeping
    Sleeping,
    /// T, t: stopped by a signal or a tracer
    Stopped,
    /// Z: ended, and not collected by its parent yet
    Zombie,
    /// No such process.
    Gone,
}

/// What `pid` is doing at this moment.
pub fn state(pid: i32) -> State {
    match stat(pid).as_ref().and_then(|fields| fields.first()).map(String::as_str) {
        None | Some("X" | "x") => State::Gone,
        Some("R") => State::Running,
        Some("T" | "t") => State::Stopped,
        Some("Z") => State::Zombie,
        Some(_) => State::Sleeping,
    }
}

/// Whether `pid` exists and has not ended.
pub fn is_alive(pid: i32) -> bool {
    !matches!(state(pid), State::Zombie | State::Gone)
}

/// Waits until `pid` has ended, whether or not its parent has collected it.
#[track_caller]
pub fn wait_gone(pid: i32) {
    eventually(&format!("the end of {pid}"), || (!is_alive(pid)).then_some(()));
}

/// Whether `pid` is stopped with all its threads, which the kernel stops one after the other.
fn is_stopped(pid: i32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let threads = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    state(pid) == State::Stopped && threads.map(state).all(|state| matches!(state, State::Stopped | State::Gone))
}

/// Waits until `pid` is stopped.
#[track_caller]
pub fn wait_stopped(pid: i32) {
    eventually(&format!("{pid} to stop"), || is_stopped(pid).then_some(()));
}

/// Waits until `pid` is stopped, or has ended without being stopped any more.
#[track_caller]
pub fn wait_stopped_or_gone(pid: i32) {
    eventually(&format!("{pid} to stop or to end"), || (is_stopped(pid) || !is_alive(pid)).then_some(()));
}

/// The parent of `pid`, if `pid` exists.
pub fn ppid(pid: i32) -> Option<i32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// The process group of `pid`.
pub fn pgrp(pid: i32) -> Option<i32> {
    stat(pid)?.get(2)?.parse().ok()
}

/// The session of `pid`.
pub fn session(pid: i32) -> Option<i32> {
    stat(pid)?.get(3)?.parse().ok()
}

/// The living children of `pid`, of all its threads, in the order in which they became its children: adopted ones come
/// after older children of its own.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => found.extend(text.split_whitespace().filter_map(|word| word.parse::<i32>().ok())),
            // A kernel without CONFIG_PROC_CHILDREN, or a task that ended meanwhile: look at every process instead.
            Err(_) => found.extend(all().into_iter().filter(|&other| ppid(other) == Some(pid))),
        }
    }
    let mut known = HashSet::new();
    found.retain(|&child| known.insert(child) && is_alive(child));
    found
}

/// All living processes below `pid`, parents before their children.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() {
        for child in children(found[next]) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
        next += 1;
    }
    found
}

/// Every process on this machine that is visible here.
pub fn all() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The kernel's short name of `pid` (at most 15 bytes).
pub fn comm(pid: i32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

/// The argument vector of `pid`; empty if it has ended.
pub fn cmdline(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let text = text.strip_suffix('\0').unwrap_or(&text);
    if text.is_empty() { Vec::new() } else { text.split('\0').map(str::to_owned).collect() }
}

/// The executable that `pid` runs.
pub fn exe(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The working directory of `pid`.
pub fn cwd(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// The environment that `pid` was started with.
pub fn environ(pid: i32) -> BTreeMap<String, String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.split('\0').filter_map(|pair| pair.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// One field of `/proc/PID/status`, such as `SigIgn` or `Threads`, without the white space around it.
pub fn status(pid: i32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// The resident memory of `pid` in KiB.
pub fn rss_kib(pid: i32) -> Option<u64> {
    status(pid, "VmRSS")?.strip_suffix(" kB")?.parse().ok()
}

/// The resident memory of `pid` that is no part of a file, in KiB.
pub fn anonymous_kib(pid: i32) -> Option<u64> {
    status(pid, "RssAnon")?.strip_suffix(" kB")?.parse().ok()
}

/// The peak resident memory of `pid` since it executed its program, in KiB.
pub fn peak_rss_kib(pid: i32) -> Option<u64> {
    status(pid, "VmHWM")?.strip_suffix(" kB")?.parse().ok()
}

/// The CPU time `pid` has used, user and system, in clock ticks (usually of 10 ms).
pub fn cpu_ticks(pid: i32) -> Option<u64> {
    let fields = stat(pid)?;
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// The real-time priority of `pid` (0 for none) and its scheduling policy, as [`libc::SCHED_RR`].
pub fn scheduling(pid: i32) -> Option<(i32, i32)> {
    let fields = stat(pid)?;
    Some((fields.get(37)?.parse().ok()?, fields.get(38)?.parse().ok()?))
}

/// The open descriptors of `pid`: number and what it leads to, such as `/dev/null` or `socket:[4711]`.
pub fn fds(pid: i32) -> BTreeMap<i32, String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeMap::new() };
    let pair = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        Some((entry.file_name().to_str()?.parse().ok()?, target))
    };
    entries.flatten().filter_map(pair).collect()
}

/// Sends `signal` to `pid`, and to no other process. It is no error if `pid` is gone.
pub fn signal(pid: i32, signal: Signal) {
    assert!(pid > 0, "a signal to {pid} would reach more than one process");
    let _ = kill(Pid::from_raw(pid), signal);
}

/// Sends `signal` to every process of `group`, as a shell's `kill -- -GROUP` does. It must not be the group of the
/// tests.
pub fn signal_group(group: i32, signal: Signal) {
    assert!(group > 1 && Some(group) != pgrp(Pid::this().as_raw()), "a signal to group {group} would hit the tests");
    let _ = killpg(Pid::from_raw(group), signal);
}

/// Whether `signal`, which `pid` blocks, is pending for `pid`. Until it is taken, another one like it is lost.
pub fn is_pending(pid: i32, signal: Signal) -> bool {
    let set = status(pid, "ShdPnd").and_then(|set| u64::from_str_radix(&set, 16).ok());
    set.is_some_and(|set| set & (1 << (signal as u32 - 1)) != 0)
}

/// Waits until `pid` has taken `signal`.
#[track_caller]
pub fn wait_taken(pid: i32, signal: Signal) {
    eventually(&format!("{pid} to take {signal}"), || (!is_pending(pid, signal)).then_some(()));
}

/// Makes `command` run as [`NOBODY`], without supplementary groups, if the tests run as root; otherwise they have no
/// privileges anyway.
pub fn unprivileged(command: &mut Command) {
    if is_root() {
        // Unless told about groups, the standard library drops the supplementary ones along with the user id.
        command.gid(NOBODY).uid(NOBODY);
    }
}

/// Whether these tests run as root.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0)
}

/// The path of `program`, also if it is in a directory of root's `PATH` only.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let everywhere = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    everywhere.map(|directory| directory.join(program)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// `/proc/PID/stat` from the third field (the state) on.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may itself contain spaces and parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}
