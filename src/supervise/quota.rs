/*!
The CPU quota of this process's control group, and the time by which a command is stopped earlier because of it.

A group that has used up its quota gets no processor until its next period, and neither does the guard in it. Busy
processes of the command are ahead of the guard in each period's queue, so it is woken up late, by the time in which the
group gives each of them a turn. The processes that are killed need the same processor to end.

Nothing here allocates: the guard must not.
*/

use std::time::Duration;

use crate::supervise::priority::Rank;
use crate::supervise::process::{LONG_NAME, contents};

/// The longest turn that a scheduler gives a busy process: a tick of the kernel's timer.
const TURN: Duration = Duration::from_millis(4);
/// The processor time to find, signal and end one process, on a slow machine.
const ENDING: Duration = Duration::from_micros(400);
/// The number of busy processes that are assumed where fewer were seen: more can come at any time.
const ASSUMED: u32 = 16;
/// A process that does not have to wait for a turn of each of the others waits for fewer, by this factor at least.
const PRECEDING: u32 = 8;
/// Below the processor divided by this, no lease leaves enough time.
const LEAST: u32 = 20;
/// The most that is read of one file.
const TEXT: usize = 4096;

/// The tightest quota of this process's control group and of the outer groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// The processor time that the group gets in each period.
    pub granted: Duration,
    /// The length of a period.
    pub period: Duration,
    /// The number of periods in which the group has used up its quota.
    pub exhausted: u64,
}

/// The guard's measurements of the group and of the command's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// The greatest lateness with which the guard was woken up.
    pub late: Duration,
    /// The number of the command's processes.
    pub processes: usize,
    /// The number of those that run, or would if they had a processor.
    pub busy: usize,
    /// The guard's rank among them.
    pub rank: Rank,
}

impl Quota {
    /// Reads the quota; `None` if there is none, if it is no less than this process's processors, or if it cannot be
    /// read.
    #[must_use]
    pub(crate) fn read() -> Option<Self> {
        let mut text = [0; TEXT];
        let (base, controllers, path) = group(contents(b"/proc/self/cgroup\0", &mut text)?)?;
        let mut tightest: Option<Self> = None;
        let mut path = path;
        loop {
            let quota = Self::of(base, controllers, path);
            tightest = match (tightest, quota) {
                (Some(one), Some(other)) if one.stretched(TURN) >= other.stretched(TURN) => Some(one),
                (one, other) => other.or(one),
            };
            let Some(end) = path.iter().rposition(|&byte| byte == b'/') else { break };
            path = &path[..end];
        }
        tightest.filter(|quota| quota.granted < quota.period.saturating_mul(processors()))
    }

    /// Returns the quota of the group at `path`, if it has one.
    fn of(base: &[u8], controllers: &[u8], path: &[u8]) -> Option<Self> {
        let mut buffers = [[0; 512]; 4];
        let [both, quota, period, stat] = &mut buffers;
        let read = |file: &[u8], text| {
            let mut name = [0; LONG_NAME];
            contents(joined(&mut name, &[base, controllers, path, file]), text)
        };
        let limits = match read(b"/cpu.max", both) {
            Some(both) => limits(both),
            None => v1_limits(read(b"/cpu.cfs_quota_us", quota)?, read(b"/cpu.cfs_period_us", period)?),
        };
        let (granted, period) = limits?;
        Some(Self { granted, period, exhausted: read(b"/cpu.stat", stat).map_or(0, exhausted) })
    }

    /// Returns the time that the group takes for this much work.
    #[must_use]
    pub(crate) fn stretched(&self, work: Duration) -> Duration {
        let times = self.period.as_secs_f64() / self.granted.as_secs_f64().max(1e-6);
        work.mul_f64(times.clamp(1.0, 1e6))
    }

    /// Returns the time by which a stop begins earlier under this quota, so that all processes are dead when they must
    /// be: the time that the guard may be late, and that the group takes to end them.
    #[must_use]
    pub(crate) fn earlier(&self, load: &Load) -> Duration {
        let [busy, processes] = [load.busy, load.processes].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let round = self.stretched(TURN.saturating_mul(busy.max(ASSUMED)));
        // One round until the guard is woken up, and one if it has to wait in the middle of its pass.
        let (woken, pass) = match load.rank {
            Rank::Equal => (round, round),
            Rank::Favoured => (round, round / PRECEDING),
            Rank::First => (round / PRECEDING, round / PRECEDING),
        };
        let late = woken.max(load.late).saturating_add(pass);
        late.saturating_add(self.stretched(ENDING.saturating_mul(processes))).saturating_add(self.period * 2)
    }

    /// Returns the number of busy processes that can be stopped within `time`.
    #[must_use]
    pub(crate) fn stoppable(&self, time: Duration) -> usize {
        let one = self.stretched(TURN * 2 + ENDING).as_micros().max(1);
        usize::try_from(time.saturating_sub(self.period * 2).as_micros() / one).unwrap_or(usize::MAX)
    }

    /// Returns `true` if it is so little that no lease leaves enough time.
    #[must_use]
    pub(crate) fn is_too_little(&self) -> bool {
        self.granted.saturating_mul(LEAST) < self.period
    }
}

/// Returns the hierarchy and the path of the group that limits processors, from `/proc/self/cgroup`: the place where
/// hierarchies are mounted, the directory of this one there, and the path in it. A path as seen from outside the
/// container is not found, and the walk to its top ends at the container's own group.
fn group(text: &[u8]) -> Option<(&'static [u8], &[u8], &[u8])> {
    let lines = || text.split(|&byte| byte == b'\n').map(|line| line.splitn(3, |&byte| byte == b':'));
    let named = lines().find_map(|mut line| {
        let controllers = line.nth(1)?;
        let is_cpu = controllers.split(|&byte| byte == b',').any(|name| name == b"cpu");
        Some((&b"/sys/fs/cgroup/"[..], controllers, line.next()?)).filter(|_| is_cpu)
    });
    let unified = || {
        lines().find_map(|mut line| {
            let is_unified = line.next()? == b"0" && line.next()?.is_empty();
            Some((&b"/sys/fs/cgroup"[..], &b""[..], line.next()?)).filter(|_| is_unified)
        })
    };
    let (base, controllers, path) = named.or_else(unified)?;
    Some((base, controllers, path.strip_suffix(b"/").unwrap_or(path)))
}

/// Parses the limits in `cpu.max`: the quota or `max`, and the period, in microseconds.
fn limits(text: &[u8]) -> Option<(Duration, Duration)> {
    let mut words = words(text);
    let granted = number(words.next()?)?;
    Some((Duration::from_micros(granted), Duration::from_micros(number(words.next()?)?)))
}

/// Parses the limits of the older hierarchy, with a file for each. A quota of -1 is none.
fn v1_limits(quota: &[u8], period: &[u8]) -> Option<(Duration, Duration)> {
    let micros = |text| number(words(text).next()?).map(Duration::from_micros);
    Some((micros(quota)?, micros(period)?))
}

/// Parses the number of periods in which the group has used up its quota, from `cpu.stat`.
fn exhausted(text: &[u8]) -> u64 {
    let mut words = words(text);
    let found = words.find(|&word| word == b"nr_throttled").and_then(|_| words.next());
    found.and_then(number).unwrap_or(0)
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok().filter(|&number| number > 0)
}

/// Writes a path of these parts into `name`, and NUL; one that is too long becomes empty, which opens nothing.
fn joined<'a>(name: &'a mut [u8; LONG_NAME], parts: &[&[u8]]) -> &'a [u8] {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    if length < name.len() {
        name.iter_mut().zip(parts.iter().copied().flatten()).for_each(|(place, &byte)| *place = byte);
    }
    name
}

/// Returns the number of processors that this process may use.
fn processors() -> u32 {
    // SAFETY: an all-zero set is valid, and the kernel writes at most its size.
    let count = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let read = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        if read == 0 { libc::CPU_COUNT(&set) } else { i32::MAX }
    };
    u32::try_from(count).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn quota(granted: u32, period: u32) -> Quota {
        Quota { granted: MS * granted, period: MS * period, exhausted: 0 }
    }

    #[test]
    fn the_group_that_limits_processors_is_found_in_both_hierarchies() {
        let v1 = b"9:name=systemd:/a\n4:cpu,cpuacct:/kube/pod:1\n0::/\n";
        assert_eq!(group(v1), Some((&b"/sys/fs/cgroup/"[..], &b"cpu,cpuacct"[..], &b"/kube/pod:1"[..])));
        assert_eq!(group(b"0::/\n"), Some((&b"/sys/fs/cgroup"[..], &b""[..], &b""[..])));
        assert_eq!(group(b"5:cpuset:/x\n"), None);
        assert_eq!(limits(b"10000 100000\n"), Some((MS * 10, MS * 100)));
        assert_eq!((limits(b"max 100000\n"), limits(b"0 100000"), limits(b"")), (None, None, None));
        assert_eq!(v1_limits(b"10000\n", b"100000\n"), Some((MS * 10, MS * 100)));
        assert_eq!(v1_limits(b"-1\n", b"100000\n"), None);
        assert_eq!(exhausted(b"nr_periods 9\nnr_throttled 7\nthrottled_time 1\n"), 7);
        assert_eq!(exhausted(b"usage_usec 9\n"), 0);
    }

    #[test]
    fn a_stop_begins_as_much_earlier_as_the_guard_may_be_late_and_the_processes_take_to_die() {
        for (granted, period, processes, busy, late, rank, earlier) in [
            // Even if nothing is busy, something may be at any time.
            (10, 100, 5, 0, 0, Rank::Equal, 200 + 1_280 + 20),
            (250, 500, 0, 0, 0, Rank::Equal, 1_000 + 256),
            // Two turns of each busy process, and the time to end them.
            (20, 100, 30, 30, 0, Rank::Equal, 200 + 1_200 + 60),
            (10, 100, 60, 60, 0, Rank::Equal, 200 + 4_800 + 240),
            (100, 200, 60, 60, 0, Rank::Equal, 400 + 960 + 48),
            // A lateness that was seen counts if it is greater than that.
            (20, 100, 30, 30, 2_000, Rank::Equal, 200 + 600 + 2_000 + 60),
            // A nice value makes a pass short, but gives no way to the processor.
            (10, 100, 60, 60, 0, Rank::Favoured, 200 + 2_400 + 300 + 240),
            (10, 100, 200, 200, 0, Rank::First, 200 + 2_000 + 800),
        ] {
            let load = Load { late: MS * late, processes, busy, rank };
            assert_eq!(quota(granted, period).earlier(&load).as_millis(), earlier, "{granted}/{period} {load:?}");
        }
        let load = Load { late: Duration::MAX, processes: usize::MAX, busy: usize::MAX, rank: Rank::Equal };
        assert!(quota(1, 1_000_000).earlier(&load) > Duration::from_secs(3600));
    }

    #[test]
    fn less_than_a_twentieth_of_a_processor_is_too_little() {
        assert!(quota(4, 100).is_too_little() && !quota(5, 100).is_too_little());
        assert_eq!(quota(10, 100).stoppable(MS * 2_720), 30);
        assert_eq!(quota(10, 100).stoppable(MS), 0);
    }
}
