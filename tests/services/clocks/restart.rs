//! The host is rebooted with an earlier clock: everything in memory is lost.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;

use crate::support::clock::{ClockShim, HOUR};
use crate::support::scratch::Scratch;

/// A simulated host: what it keeps on disk, how often it was booted, and its clock.
struct Host {
    scratch: Scratch,
    clock: ClockShim,
    starts: Cell<u32>,
}

impl Host {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.directory("disk", 0o755);
        fs::write(scratch.path("boot"), "0").unwrap();
        Self { scratch, clock: ClockShim::new(), starts: Cell::new(0) }
    }

    /// Boots the host again with a clock that is `seconds` ahead of true time.
    fn start(&self, seconds: i64) {
        self.starts.set(self.starts.get() + 1);
        fs::write(self.scratch.path("boot"), self.starts.get().to_string()).unwrap();
        self.clock.set(seconds);
    }

    /// The tokens of this many consecutive runs as root, and what dlock printed.
    fn tokens(&self, runs: u32) -> (Vec<u64>, String) {
        let [disk, boot] = ["disk", "boot"].map(|name| self.scratch.path(name).into_os_string());
        let script = format!(
            "mount -t tmpfs t /run && mount --bind \"$1\" /var/lib && mount --bind \"$2\" \
             /proc/sys/kernel/random/boot_id && shift 2 || exit
             for i in $(seq {runs}); do \"$@\" || exit; done"
        );
        let unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"];
        let wrapper: Vec<OsString> = unshare.map(OsString::from).into_iter().chain([disk, boot]).collect();
        let dlock = self.scratch.dlock().run("job").backend("file:").clock(&self.clock);
        let outcome = dlock.shell("echo $DLOCK_TOKEN").wrapped_by(wrapper).output();
        outcome.code(0);
        (outcome.stdout().lines().map(|line| line.parse().unwrap()).collect(), outcome.stderr().clone())
    }
}

#[test]
fn tokens_of_a_lock_file_in_memory_rise_over_it_for_root() {
    let host = Host::new();
    let mut last = 0;
    // The second and the third boot in the same hour, each with an earlier clock.
    for seconds in [0, -HOUR / 2, -HOUR, -48 * HOUR, 0, HOUR] {
        host.start(seconds);
        let (tokens, said) = host.tokens(3);
        for token in tokens {
            assert!(token > last && token < 1 << 53, "{token} after {last}, {seconds} s ahead");
            last = token;
        }
        assert_eq!(said, "");
    }
    let kept = fs::read_dir(host.scratch.path("disk/dlock")).unwrap();
    assert_eq!(kept.map(|file| file.unwrap().file_name()).collect::<Vec<_>>(), ["tokens"]);
}

#[test]
fn a_damaged_memory_of_them_is_told_and_keeps_nobody_from_the_lock() {
    let host = Host::new();
    host.start(0);
    fs::create_dir(host.scratch.path("disk/dlock")).unwrap();
    fs::write(host.scratch.path("disk/dlock/tokens"), "garbage").unwrap();
    let (tokens, said) = host.tokens(2);
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    let warned = said.lines().filter(|line| line.contains("/var/lib/dlock/tokens (it is damaged")).count();
    assert_eq!((warned, said.lines().count()), (2, 2), "{said}");
}
