//! Servers that are no ZooKeeper, or lie as one.

use super::*;
use crate::services::hostile::wait_within_memory;
use crate::support::rendezvous::Gate;

/// The head of a reply to the request with the number that `reply` answers, and `body`.
fn answer(reply: &[u8], body: &[u8]) -> Fate {
    Fate::Instead(framed(&[&reply[..4], &[0; 12], body].concat()))
}

/// Makes a lie of a reply.
type Lie = Box<dyn Fn(&[u8]) -> Fate + Send + Sync>;

/// Replies that lie about how much there is, or that have no sense; each instead of the one to some request.
fn lies() -> Vec<(i32, Lie)> {
    let many = i32::MAX.to_be_bytes();
    let lie = |operation: i32, body: Vec<u8>| -> (i32, Lie) {
        (operation, Box::new(move |reply: &[u8]| answer(reply, &body)))
    };
    vec![
        lie(GET_CHILDREN, many.to_vec()),
        lie(GET_CHILDREN, [&1_i32.to_be_bytes()[..], &many].concat()),
        lie(GET_CHILDREN, vec![0xff; 3]),
        lie(MULTI, vec![]),
        lie(MULTI, [&15_i32.to_be_bytes()[..], &[0], &many, &0_i32.to_be_bytes()].concat()),
        (GET_CHILDREN, Box::new(|_| Fate::Instead(many_bytes()))),
        // It was asked for nothing of the kind.
        (GET_CHILDREN, Box::new(|_| Fate::Instead(framed(&[0x55; 16])))),
        // A notification about no path.
        (GET_CHILDREN, Box::new(|_| Fate::Instead(framed(&[&(-1_i32).to_be_bytes()[..], &[0; 24]].concat())))),
    ]
}

/// A frame of two gigabytes, of which the beginning comes.
fn many_bytes() -> Vec<u8> {
    [&i32::MAX.to_be_bytes()[..], &vec![0; 1 << 16]].concat()
}

#[test]
fn replies_that_lie_end_in_one_line() {
    let service = ZooKeeperService::fresh();
    for (index, (operation, lie)) in lies().into_iter().enumerate() {
        let proxy = ZooKeeperProxy::to(service.zookeeper.server(0).port(), move |request, reply| {
            if request.operation == operation { lie(reply) } else { Fate::Pass }
        });
        let outcome = run_at(&service, &proxy.url(), &["-t", "2s"]).command(["echo", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("does not answer as ZooKeeper does");
        assert!(outcome.elapsed() < PATIENCE, "{index}: {outcome:?}");
    }
}

/// What answers at the port may be anything.
#[test]
fn another_kind_of_server_ends_in_one_line() {
    use crate::support::proxy::{Behaviour, Hostile};
    for behaviour in Behaviour::ALL {
        let hostile = Hostile::start(behaviour);
        let scratch = Scratch::new();
        let url = format!("zk://127.0.0.1:{}", hostile.port());
        let outcome = scratch.dlock().run("job").backend(url).args(["-t", "1s"]).command(["echo", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("did not get 'job': ");
        assert!(outcome.elapsed() < PATIENCE, "{behaviour:?}: {outcome:?}");
    }
}

#[test]
fn a_lie_to_a_holder_leaves_no_command_behind() {
    let service = ZooKeeperService::fresh();
    let armed = Arc::new(AtomicBool::new(false));
    let lying = Arc::clone(&armed);
    let proxy = ZooKeeperProxy::to(service.zookeeper.server(0).port(), move |request, reply| {
        let lies = request.operation == MULTI && lying.load(Ordering::SeqCst);
        if lies { answer(reply, &[0x7f; 40]) } else { Fate::Pass }
    });
    let mut tree = Tree::new(service.scratch());
    let dlock = run_at(&service, &proxy.url(), &["-t", "4s"]).shell(tree.work());
    let running = dlock.lifeline(tree.end()).spawn();
    tree.wait_grown();
    armed.store(true, Ordering::SeqCst);
    let started = boottime();
    let died = tree.died_at();
    assert!(died < started + Duration::from_secs(4), "{:?}", died - started);
    // What is said of the last try depends on how far it got.
    running.wait().code(79).stderr_is_one_line("no renewal was confirmed");
}

/// An honest reply after so many bytes of notifications about nodes that nobody watches.
fn after_notifications(reply: &[u8], bytes: usize) -> Fate {
    let path = [b"/".as_slice(), &[b'x'; 9999]].concat();
    // That it was deleted, while connected.
    let body = [&2_i32.to_be_bytes()[..], &3_i32.to_be_bytes(), &10_000_i32.to_be_bytes(), &path].concat();
    let notification = framed(&[&(-1_i32).to_be_bytes()[..], &[0; 12], &body].concat());
    let mut flood = notification.repeat(bytes / notification.len());
    flood.extend(framed(reply));
    Fate::Instead(flood)
}

/// The library answers each with a request of its own, and keeps that.
#[test]
fn notifications_that_nobody_waits_for_use_no_memory() {
    const SENT: usize = 300 << 20;
    let service = ZooKeeperService::fresh();
    let (flooded, passed) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let through = Arc::clone(&passed);
    let proxy = ZooKeeperProxy::to(service.zookeeper.server(0).port(), move |request, reply| {
        // While the lock is held, it watches the children of its own nodes.
        let watches = request.operation == GET_CHILDREN && request.frame.last() == Some(&1);
        if watches && !flooded.swap(true, Ordering::SeqCst) {
            return after_notifications(reply, SENT);
        }
        // All of them have been taken before the answer to the next renewal.
        through.fetch_or(request.operation == MULTI && flooded.load(Ordering::SeqCst), Ordering::SeqCst);
        Fate::Pass
    });
    let gate = Gate::new(service.scratch().path("flooded"));
    let running = run_at(&service, &proxy.url(), &["-t", "12s"]).shell(gate.wait()).spawn();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("the flood to be over", || passed.load(Ordering::SeqCst).then_some(()));
            gate.open();
        });
        wait_within_memory(running).success();
    });
}

#[test]
fn a_number_that_is_no_fencing_token_is_no_lock() {
    // The servers of this version leave the status out when they make nodes, so that it is asked for.
    const EXISTS: i32 = 3;
    let service = ZooKeeperService::fresh();
    for transaction in [i64::MAX, 1 << 53, 0, -1] {
        let proxy = ZooKeeperProxy::to(service.zookeeper.server(0).port(), move |request, reply| {
            if request.operation != EXISTS || reply.len() < 24 {
                return Fate::Pass;
            }
            // After the head comes the status, which begins with the transaction that made the node.
            Fate::Instead(framed(&[&reply[..16], &transaction.to_be_bytes(), &reply[24..]].concat()))
        });
        let outcome = run_at(&service, &proxy.url(), &[]).command(["echo", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("cannot be a fencing token");
        eventually("its nodes to go", || nodes(&service.zookeeper).is_empty().then_some(()));
    }
}

/// The client library is led through a listener on this host: it serves nobody else.
#[test]
fn a_stranger_on_this_host_gets_nothing_from_the_way_inside() {
    use std::io::{Read, Write};
    let service = ZooKeeperService::fresh();
    let proxy = Proxy::to(service.zookeeper.server(0).port());
    let url = format!("zk://127.0.0.1:{}", proxy.port());
    let holder = Gated::spawn(service.scratch(), run_at(&service, &url, &["-t", "10s"]));
    holder.wait_held();
    let connections = proxy.counts().accepted;
    let mut stranger = TcpStream::connect(("127.0.0.1", listening_port(holder.running.dlock_pid()))).unwrap();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    // The request for a session of ten seconds that every client begins with.
    let password = [&16_i32.to_be_bytes()[..], &[0; 16]].concat();
    let request = [&[0; 12][..], &10_000_i32.to_be_bytes(), &[0; 8], &password, &[0]].concat();
    let _ = stranger.write_all(&framed(&request));
    let mut heard = Vec::new();
    // A reset is as good an answer as the end.
    let _ = stranger.read_to_end(&mut heard);
    assert!(heard.is_empty(), "{heard:?}");
    renewed(&service);
    // Nor does it disturb anybody.
    assert_eq!(proxy.counts().accepted, connections);
    holder.let_go().success();
}

fn renewed(service: &ZooKeeperService) {
    let version = || nodes(&service.zookeeper)[0].1.version;
    let first = version();
    eventually("a renewal", || (version() > first).then_some(()));
}

/// The TCP port of this host that `pid` listens on.
fn listening_port(pid: i32) -> u16 {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let inodes: Vec<String> =
        links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let listening = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ours = words.get(3) == Some(&"0A") && inodes.iter().any(|inode| words.get(9) == Some(&inode.as_str()));
        ours.then(|| u16::from_str_radix(words[1].split_once(':').unwrap().1, 16).unwrap())
    };
    table.lines().find_map(listening).expect("it listens")
}
