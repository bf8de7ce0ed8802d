/*!
Islands: hosts of their own for servers and clients, between which packets can be dropped, in one direction or both.

Each island is a network namespace with one link to the network of this program, which routes between all of them. Cuts
are made on this route: a sender is told nothing, two islands can be cut from each other while both reach a third one,
and an island cut off from all others can still be reached by the program itself, which only has to know which ones not
to ask.

The network of this program must be used by nobody else. No namespace has a name, so all of them are gone at the latest
when the program and everything it started is, however that happens.
*/

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::thread;

use super::dlock::Dlock;
use super::process;
use super::rendezvous::eventually;

/// A number of islands, which reach each other until they are cut. They are removed with this, and servers on them must
/// be gone by then.
pub struct Islands {
    number: u16,
    islands: Vec<Island>,
}

/// One of [`Islands`].
#[derive(Clone)]
pub struct Island {
    net: Arc<File>,
    address: Ipv4Addr,
}

impl Islands {
    /// Creates `count` islands, at most 200.
    pub fn new(count: u8) -> Self {
        static NUMBER: AtomicU16 = AtomicU16::new(0);
        // One that packets pass through.
        let forward = "/proc/sys/net/ipv4/ip_forward";
        fs::write(forward, "1").unwrap_or_else(|error| panic!("cannot route between islands by {forward}: {error}"));
        let mut islands = Self { number: NUMBER.fetch_add(1, Ordering::Relaxed), islands: Vec::new() };
        (0..count).for_each(|index| islands.raise(index));
        islands
    }

    pub fn all(&self) -> &[Island] {
        &self.islands
    }

    /// From now on, until the [`Cut`] is dropped, packets from the first island of each pair to the second one vanish,
    /// also those of open connections. All pairs are cut at the same moment, and restored at the same moment.
    pub fn cut(&self, ways: &[(usize, usize)]) -> Cut {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let table = format!("ip cut{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let address = |island: usize| self.islands[island].address;
        let pairs: Vec<String> =
            ways.iter().map(|&(from, to)| format!("{} . {}", address(from), address(to))).collect();
        nft(&format!(
            "add table {table}\n\
             add chain {table} between {{ type filter hook forward priority 0; }}\n\
             add rule {table} between ip saddr . ip daddr {{ {} }} counter drop\n",
            pairs.join(", ")
        ));
        Cut { table }
    }

    fn raise(&mut self, index: u8) {
        let [high, low] = self.number.to_be_bytes();
        let (here, there) = (Ipv4Addr::new(10, high, low, 1), Ipv4Addr::new(10, high, low, 10 + index));
        let island = Island { net: Arc::new(new_namespace().expect("a network namespace")), address: there };
        let link = self.link(usize::from(index));
        let net = format!("/proc/{}/fd/{}", std::process::id(), island.net.as_raw_fd());
        ip(&format!(
            "link add {link} type veth peer name out netns {net}\n\
             address add {here} peer {there} dev {link}\n\
             link set {link} up\n"
        ));
        island.inside(|| {
            // Below the ports that servers are given, so that no connection has one of these already.
            let range = "/proc/sys/net/ipv4/ip_local_port_range";
            fs::write(range, "10000 30001").unwrap_or_else(|error| panic!("{range}: {error}"));
            ip(&format!(
                "link set lo up\n\
                 address add {there} peer {here} dev out\n\
                 link set out up\n\
                 route add default via {here}\n"
            ));
        });
        // With many new links, the kernel processes them once a second, and drops what is sent before.
        wait_up(&link);
        island.inside(|| wait_up("out"));
        self.islands.push(island);
    }

    /// The name of the link to this island, at the program's end.
    pub fn link(&self, index: usize) -> String {
        format!("isle{}x{index}", self.number)
    }
}

impl Drop for Islands {
    fn drop(&mut self) {
        // The other end goes with it, wherever that is.
        let links = (0..self.islands.len()).map(|index| format!("link delete {}\n", self.link(index)));
        let gone = run(Command::new(tool("ip")).args(["-batch", "-"]), &links.collect::<String>());
        assert!(gone.is_ok() || thread::panicking(), "links that are left: {gone:?}");
    }
}

impl Island {
    /// The address of everything on it.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Runs `act` on the island: sockets that it opens and processes that it starts belong there.
    pub fn inside<T>(&self, act: impl FnOnce() -> T) -> T {
        let _way_back = WayBack(File::open("/proc/thread-self/ns/net").expect("a network to come back to"));
        enter(&self.net).expect("an island can be entered");
        act()
    }

    /// Makes this dlock start on the island.
    pub fn bring(&self, dlock: Dlock) -> Dlock {
        let net = Arc::clone(&self.net);
        // SAFETY: the hook makes one system call and does not allocate.
        unsafe { dlock.pre_exec(move || enter(&net)) }
    }
}

/// Moves the thread back when it is dropped.
struct WayBack(File);

impl Drop for WayBack {
    fn drop(&mut self) {
        // A thread that stays on an island would do everything else there.
        enter(&self.0).expect("the way back from an island");
    }
}

/// Moves this thread into the network namespace `net`.
fn enter(net: &File) -> io::Result<()> {
    // SAFETY: a system call with integers; the descriptor is open.
    if unsafe { libc::setns(net.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Creates a network namespace that lives as long as a process has this open or is in it.
fn new_namespace() -> io::Result<File> {
    let make = || {
        // SAFETY: a system call with an integer; only this thread moves, and it ends at once.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
            return Err(io::Error::last_os_error());
        }
        File::open("/proc/thread-self/ns/net")
    };
    thread::spawn(make).join().expect("a thread that makes a namespace")
}

/// Islands that are cut, see [`Islands::cut`].
pub struct Cut {
    table: String,
}

impl Cut {
    /// How many packets have been dropped so far.
    pub fn vanished(&self) -> u64 {
        let mut list = Command::new(tool("nft"));
        let list = list.args(["list", "table"]).args(self.table.split(' ')).output().expect("nft can be run");
        let text = String::from_utf8_lossy(&list.stdout);
        let counted = text.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        counted.unwrap_or_else(|| panic!("{}: {text}{}", self.table, String::from_utf8_lossy(&list.stderr)))
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        nft(&format!("delete table {}\n", self.table));
    }
}

/// Applies `rules` by nft(8) in the network of this thread. They are one transaction: at no moment only some of them
/// are in force.
pub fn nft(rules: &str) {
    run(Command::new(tool("nft")).args(["--file", "-"]), rules).unwrap_or_else(|why| panic!("nft: {why}\n{rules}"));
}

/// Applies these lines by ip(8), one after the other.
fn ip(lines: &str) {
    run(Command::new(tool("ip")).args(["-batch", "-"]), lines).unwrap_or_else(|why| panic!("ip: {why}\n{lines}"));
}

/// Waits until packets get through on this link of the thread's network.
fn wait_up(link: &str) {
    let is_up = || {
        let shown = Command::new(tool("ip")).args(["-o", "link", "show", "dev", link]).output().ok()?;
        String::from_utf8_lossy(&shown.stdout).contains(" state UP ").then_some(())
    };
    eventually(&format!("the link {link}"), is_up);
}

/// The path of `name`, also if it is in a directory that an ordinary user's `PATH` lacks.
fn tool(name: &str) -> std::path::PathBuf {
    process::which(name).unwrap_or_else(|| name.into())
}

fn run(command: &mut Command, input: &str) -> io::Result<()> {
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    child.stdin.take().expect("a pipe").write_all(input.as_bytes())?;
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}
