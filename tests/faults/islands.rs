//! Checks that islands are cut as described, and that nothing of them is left.

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use crate::support::islands::{Island, Islands};
use crate::support::rendezvous::eventually;

/// How long a packet may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// Checks all of it, and returns what does not hold.
pub fn check() -> Result<(), String> {
    let islands = Islands::new(3);
    let links: Vec<String> = (0..3).map(|index| islands.link(index)).collect();
    let left = || -> Vec<&String> {
        let all = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        links.iter().filter(|link| all.contains(&format!("{link}:"))).collect()
    };
    if left().len() != links.len() {
        return Err(format!("of the links {links:?} there are {:?}", left()));
    }
    for cut in [&[][..], &[(0, 1)], &[(0, 1), (1, 0)], &[(2, 0), (2, 1)], &[(0, 2), (1, 2), (2, 0), (2, 1)]] {
        check_cut(&islands, cut)?;
    }
    drop(islands);
    if left().is_empty() { Ok(()) } else { Err(format!("links that are left: {:?}", left())) }
}

/// Checks that with these ways cut, exactly the others let packets pass, and that all do afterwards.
fn check_cut(islands: &Islands, ways: &[(usize, usize)]) -> Result<(), String> {
    let sockets: Vec<UdpSocket> = islands.all().iter().map(socket).collect();
    let pairs = || (0..3).flat_map(|from| (0..3).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let send = |word: &str| {
        for (from, to) in pairs() {
            let message = format!("{word} from {from}");
            sockets[from].send_to(message.as_bytes(), sockets[to].local_addr().unwrap()).unwrap();
        }
    };
    let cut = (!ways.is_empty()).then(|| islands.cut(ways));
    send("first");
    if let Some(cut) = cut {
        // A packet on its way would still get through.
        let all = u64::try_from(ways.len()).unwrap();
        eventually("the packets to vanish", || (cut.vanished() >= all).then_some(()));
    }
    send("second");
    for (to, socket) in sockets.iter().enumerate() {
        // What was sent first arrives first, if it arrives.
        let mut wanted: Vec<String> = Vec::new();
        for (from, _) in pairs().filter(|&(_, receiver)| receiver == to) {
            let cut = ways.contains(&(from, to));
            wanted.extend((!cut).then(|| format!("first from {from}")));
            wanted.push(format!("second from {from}"));
        }
        let mut heard: Vec<String> = Vec::new();
        while wanted.iter().any(|word| !heard.contains(word)) {
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer).map_err(|error| format!("{to}, cut {ways:?}: {error}, {heard:?}"))?;
            heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        if heard.len() != wanted.len() {
            return Err(format!("{to}, cut {ways:?}: heard {heard:?} instead of {wanted:?}"));
        }
    }
    Ok(())
}

fn socket(island: &Island) -> UdpSocket {
    let socket = island.inside(|| UdpSocket::bind((island.address(), 0))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}
