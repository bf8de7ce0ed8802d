/*!
The shell that acquired the lock of a handle. Its children inherit `DLOCK_HANDLE`, but must not release the lock.
*/

use nix::unistd::getppid;

use crate::handle::Handle;
use crate::here;
use crate::variables::HANDLE_SHELL;

/// Returns the calling shell's expression for its own process id.
pub(super) fn own_id() -> &'static str {
    if here::program_of(getppid().as_raw()) == "fish" { "$fish_pid" } else { "$$" }
}

/// Returns the shell that acquired the lock of `handle`, unless that shell has called this process. `None` also for a
/// handle that no shell got by `--shell`.
pub(super) fn another(handle: &Handle) -> Option<i32> {
    let bound = std::env::var(HANDLE_SHELL).ok()?;
    let (owner, shell) = bound.split_once(':')?;
    let shell = shell.parse().ok().filter(|_| owner == handle.owner.as_str())?;
    (!is_called_by(shell)).then_some(shell)
}

/// Returns `true` if `shell` called this process: itself, in a subshell, or through a program such as timeout(1).
fn is_called_by(shell: i32) -> bool {
    let this = nix::unistd::getpid().as_raw();
    let own = here::arguments_of(this);
    let runs_this = |pid| {
        let arguments = here::arguments_of(pid);
        // Whole arguments, with those of the other program before them.
        arguments.strip_suffix(own.as_slice()).is_some_and(|before| before.ends_with(&[0]))
    };
    // A shell may exec its last command.
    if this == shell {
        return true;
    }
    let mut caller = Some(getppid().as_raw());
    while let Some(pid) = caller {
        if pid == shell {
            return true;
        }
        caller = here::parent_of(pid).filter(|parent| runs_this(pid) || here::is_copy_of(pid, *parent));
    }
    false
}
