/*!
ZooKeeper's own promises and faults.

A lock is as alive as its session, which only the leader can end, and a connection may go to a server that has lost it.
So what is measured is the leader's own account, the end of the node that stands for the lock, against the end of the
last process of a stubborn tree.
*/

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::certificates::{ClientCertificate, Identity, Tls};
use crate::support::dlock::{Dlock, Outcome};
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::scene::assert_in_time;
use crate::support::scratch::Scratch;
use crate::support::service::{Gated, Service, ZooKeeperService};
use crate::support::tree::Tree;
use crate::support::zookeeper::{Acl, Kind, Node, ZooKeeper, ZooKeeperOptions};
use crate::support::zookeeper_proxy::{
    CREATE2, DELETE, Fate, GET_CHILDREN, GET_DATA, MULTI, PING, SET_DATA, ZooKeeperProxy, framed,
};

/// Where the lock `job` is.
const LOCK: &str = "/dlock/job";

/// How long a test's own requests may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The nodes of the lock `job`, with their names, in the order of their sequence numbers.
fn nodes(zookeeper: &ZooKeeper) -> Vec<(String, Node)> {
    let mut names = zookeeper.children(LOCK).unwrap_or_default();
    names.sort_by_key(|name| sequence(name));
    names.into_iter().filter_map(|name| zookeeper.get(&format!("{LOCK}/{name}")).map(|node| (name, node))).collect()
}

/// The last ten digits of a node's name.
fn sequence(name: &str) -> i64 {
    name[name.len() - 10..].parse().unwrap_or_else(|_| panic!("{name} has no sequence number"))
}

/// Whoever made a node, by what it says: the owner's id.
fn owner(node: &Node) -> String {
    let published: serde_json::Value = serde_json::from_str(&node.data).unwrap();
    published["id"].as_str().unwrap().to_owned()
}

/// The same dlock for another URL of the same servers.
fn run_at(service: &ZooKeeperService, url: &str, options: &[&str]) -> Dlock {
    service.scratch().dlock().run("job").backend(url).args(options)
}

/// Waits behind others at `url`, and returns once it has found its place and said so.
fn queue_up_at(service: &ZooKeeperService, url: &str, options: &[&str]) -> Gated {
    let waiter = Gated::spawn(service.scratch(), run_at(service, url, options));
    waiter.running.wait_stderr("waiting for job");
    waiter
}

/// Lets it go, and checks that it has said nothing but whom it waits for.
fn ends_well(waiter: Gated) {
    let outcome = waiter.let_go();
    outcome.code(0);
    assert!(outcome.stderr().lines().all(|line| line.starts_with("dlock: waiting for job: ")), "{outcome:?}");
}

mod spelling {
    use super::*;

    #[test]
    fn a_holder_has_one_node_as_curator_and_one_as_kazoo_spell_it() {
        let service = ZooKeeperService::fresh();
        let running = service
            .run("job")
            .shell("echo $DLOCK_OWNER $DLOCK_TOKEN; read -r line")
            .stdin(std::process::Stdio::piped());
        let mut running = running.spawn();
        let line = running.wait_stdout(" ");
        let (id, token) = line.trim().split_once(' ').unwrap();
        let nodes = nodes(&service.zookeeper);
        let [(curator, first), (kazoo, second)] = nodes.as_slice() else { panic!("{nodes:?}") };
        let uuid = format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]);
        assert_eq!(*curator, format!("_c_{uuid}-lock-0000000000"));
        assert_eq!(*kazoo, format!("f{}__lock__0000000001", &id[1..]));
        for node in [first, second] {
            // Made in one transaction, which is the token.
            assert_eq!(node.czxid.to_string(), token);
            assert!(node.ephemeral_owner != 0 && node.ephemeral_owner == first.ephemeral_owner);
            assert_eq!(owner(node), id);
        }
        drop(running.take_stdin());
        running.wait().code(1).quiet();
    }

    #[test]
    fn directories_that_were_there_before_are_left_alone() {
        let service = ZooKeeperService::fresh();
        service.zookeeper.create("/dlock", "somebody's");
        service.run("job").command(["true"]).output().success();
        assert_eq!(service.zookeeper.tree(), ["/dlock"]);
        service.zookeeper.create(LOCK, "");
        service.run("job").command(["true"]).output().success();
        assert_eq!(service.zookeeper.tree(), ["/dlock", LOCK]);
        // One with contents stays in any case.
        service.zookeeper.create("/dlock/job/config", "");
        service.run("job").command(["true"]).output().success();
        assert_eq!(service.zookeeper.tree(), ["/dlock", LOCK, "/dlock/job/config"]);
    }

    #[test]
    fn a_chroot_stands_before_everything() {
        let service = ZooKeeperService::fresh();
        let url = format!("{}/apps/one", service.url());
        let holder = Gated::spawn(service.scratch(), run_at(&service, &url, &[]));
        holder.wait_held();
        assert_eq!(service.zookeeper.children("/apps/one/dlock/job").unwrap().len(), 2);
        service.assert_free("job");
        run_at(&service, &url, &["-n"]).command(["true"]).output().code(75).stderr_is_one_line("held by ");
        holder.let_go().success();
        assert!(service.zookeeper.tree().is_empty());
    }

    #[test]
    fn zookeepers_own_nodes_are_no_locks() {
        let service = ZooKeeperService::fresh();
        let bare = |key: &str| service.scratch().dlock().run(key).backend(service.url()).args(["--namespace", ""]);
        bare("zookeeper").command(["true"]).output().code(73).stderr_is_one_line("ZooKeeper's own");
        bare("other").command(["true"]).output().success();
        let odd = service.run("job").args(["--namespace", "a//b"]).command(["true"]).output();
        odd.code(73).stderr_is_one_line("no path that ZooKeeper allows");
    }

    #[test]
    fn others_are_waited_for_whatever_their_spelling_and_named() {
        let service = ZooKeeperService::fresh();
        service.zookeeper.create("/dlock", "");
        service.zookeeper.create(LOCK, "");
        // Its name begins with digits, and what is no lock does not count.
        let uuid = "00000000-1111-2222-3333-444444444444";
        service.zookeeper.create("/dlock/job/0-config", "");
        for name in [
            "aaaaaaaa11112222333344444444aaaa__lock__".to_owned(),
            "bbbbbbbb11112222333344444444bbbb__rlock__".to_owned(),
            format!("_c_{uuid}-lock-"),
            format!("_c_{uuid}-__WRIT__"),
            "ex".to_owned(),
        ] {
            let mut foreign = service.zookeeper.client();
            let mine = format!("{LOCK}/{name}");
            foreign.create(&mine, "10.1.2.3", Kind::EphemeralSequential, Acl::Open).unwrap();
            let refused = service.run("job").arg("-n").command(["echo", "overlap"]).output();
            refused.code(75).stdout_is("").stderr_is_one_line("held by another program: 10.1.2.3");
            let waiter = Gated::spawn(service.scratch(), service.run("job"));
            let line = waiter.running.wait_stderr("waiting for job");
            assert!(line.ends_with("held by another program: 10.1.2.3; next in line"), "{line}");
            assert!(!waiter.has_held());
            foreign.close().unwrap();
            waiter.wait_held();
            waiter.let_go().code(0).stderr_ends_with_line("next in line");
        }
        // A node without a session never goes by itself.
        service.zookeeper.create("/dlock/job/left-0000000000", "");
        let refused = service.run("job").arg("-n").command(["echo", "overlap"]).output();
        refused.code(75).stderr_is_one_line("blocked by the node left-0000000000, which no session owns");
    }

    #[test]
    fn sequence_numbers_near_their_end_are_refused() {
        let service = ZooKeeperService::fresh();
        // As if two thousand million nodes had been made there before.
        let (low, high) = ("000000", "214700");
        let swap = |bytes: &mut Vec<u8>, from: &str, to: &str| {
            for mark in ["-lock-", "__lock__"] {
                let (from, to) = (format!("{mark}{from}"), format!("{mark}{to}"));
                for at in 0..bytes.len().saturating_sub(from.len()) {
                    if bytes[at..].starts_with(from.as_bytes()) {
                        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
                    }
                }
            }
        };
        let proxy = ZooKeeperProxy::editing(
            service.zookeeper.server(0).port(),
            move |request| swap(request, high, low),
            move |_, reply| {
                let mut reply = reply.to_vec();
                swap(&mut reply, low, high);
                Fate::Instead(framed(&reply))
            },
        );
        let refused = run_at(&service, &proxy.url(), &[]).command(["echo", "ran"]).output();
        refused.code(73).stdout_is("").stderr_is_one_line("the sequence numbers in /dlock/job are all but used up");
        let left = service.litter(&["job"]);
        assert!(left.is_empty(), "{left:?}");
    }
}

mod lost_answers {
    use super::*;

    /// As an ensemble's servers do now and then up to ZooKeeper 3.8.0 (ZOOKEEPER-4537): what is written is done, and said
    /// only when something else is asked.
    #[test]
    fn a_server_that_sleeps_over_its_answers_is_woken() {
        let service = ZooKeeperService::fresh();
        let first_ping = AtomicBool::new(true);
        let proxy = ZooKeeperProxy::to(service.zookeeper.server(0).port(), move |request, _| {
            let sleeps = match request.operation {
                CREATE2 | DELETE | SET_DATA | MULTI => true,
                PING => first_ping.swap(false, Ordering::SeqCst),
                _ => false,
            };
            if sleeps { Fate::Asleep } else { Fate::Pass }
        });
        // The second run finds that the first one has taken the directory away.
        for _ in 0..2 {
            let outcome = run_at(&service, &proxy.url(), &["-n"]).command(["echo", "ran"]).output();
            outcome.success().stdout_is("ran\n");
            assert_eq!(service.zookeeper.children("/dlock"), None);
        }
    }

    /// A holder, one who waits behind it and whose next request to make nodes is carried out and not answered, and those
    /// nodes.
    struct Scene {
        service: ZooKeeperService,
        holder: Gated,
        waiter: Gated,
        proxy: ZooKeeperProxy,
        armed: Arc<AtomicBool>,
        made: Vec<(String, Node)>,
    }

    fn scene() -> Scene {
        let service = ZooKeeperService::fresh();
        let holder = service.hold("job");
        let armed = Arc::new(AtomicBool::new(false));
        let judge = {
            let armed = Arc::clone(&armed);
            move |request: &crate::support::zookeeper_proxy::Request, _: &[u8]| {
                let lost = armed.load(Ordering::SeqCst) && request.makes_nodes();
                if lost { Fate::Silence } else { Fate::Pass }
            }
        };
        let proxy = ZooKeeperProxy::to(service.zookeeper.server(0).port(), judge);
        let waiter = queue_up_at(&service, &proxy.url(), &["-t", "3s"]);
        let before = nodes(&service.zookeeper);
        armed.store(true, Ordering::SeqCst);
        // It has to make new ones.
        for (name, _) in &before[2..] {
            service.zookeeper.delete(&format!("{LOCK}/{name}"));
        }
        let made = eventually("new nodes", || {
            let all = nodes(&service.zookeeper);
            let new: Vec<_> = all.into_iter().filter(|(name, _)| !before.iter().any(|(old, _)| old == name)).collect();
            (new.len() == 2).then_some(new)
        });
        Scene { service, holder, waiter, proxy, armed, made }
    }

    /// Lets the holder go and the other one follow, which must hold by these nodes.
    fn follows(scene: Scene, nodes: &[(String, Node)]) {
        let Scene { service, holder, waiter, proxy, .. } = scene;
        assert!(!waiter.has_held());
        holder.let_go().success();
        waiter.wait_held();
        assert_eq!(service.zookeeper.children(LOCK).unwrap().len(), 2);
        let token = &process::environ(waiter.running.command_pid())["DLOCK_TOKEN"];
        assert_eq!(*token, nodes[0].1.czxid.to_string());
        ends_well(waiter);
        // The directory stays where somebody else had nodes in it too.
        assert!(service.zookeeper.children(LOCK).unwrap_or_default().is_empty());
        drop(proxy);
    }

    #[test]
    fn nodes_whose_making_was_not_answered_are_found_again() {
        let scene = scene();
        scene.armed.store(false, Ordering::SeqCst);
        let made = scene.made.clone();
        follows(scene, &made);
    }

    /// CURATOR-604: a node with our name that another session owns is about to go, and whoever relies on it holds nothing.
    #[test]
    fn nodes_with_our_name_that_another_session_owns_are_never_ours() {
        let scene = scene();
        let mut other = scene.service.zookeeper.client();
        let twins: Vec<String> =
            scene.made.iter().map(|(name, _)| format!("{LOCK}/{}", &name[..name.len() - 10])).collect();
        for (name, _) in &scene.made {
            scene.service.zookeeper.delete(&format!("{LOCK}/{name}"));
        }
        other.create_together(&[&twins[0], &twins[1]], &scene.made[0].1.data).unwrap();
        scene.armed.store(false, Ordering::SeqCst);
        let own = eventually("nodes of its own session", || {
            let (waiters, session) = (&scene.made[0].1, other.session());
            let all = nodes(&scene.service.zookeeper);
            let own = all.into_iter().filter(|(_, node)| owner(node) == owner(waiters)).collect::<Vec<_>>();
            let replaced = own.len() == 2 && own.iter().all(|(_, node)| node.ephemeral_owner != session);
            replaced.then_some(own)
        });
        follows(scene, &own);
    }

    #[test]
    fn what_was_made_without_an_answer_is_taken_back_by_a_run_that_gives_up() {
        let service = ZooKeeperService::fresh();
        let armed = Arc::new(AtomicBool::new(true));
        let once = Arc::clone(&armed);
        let proxy = ZooKeeperProxy::to(service.zookeeper.server(0).port(), move |request, reply| {
            // The first one finds no directory.
            let made = request.makes_nodes() && reply.windows(6).any(|part| part == b"-lock-");
            if made && once.swap(false, Ordering::SeqCst) { Fate::Silence } else { Fate::Pass }
        });
        let outcome = run_at(&service, &proxy.url(), &["-t", "1s"]).command(["echo", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("did not get job: ");
        assert!(!armed.load(Ordering::SeqCst), "nothing was made");
        // By itself it would have gone only with the session.
        assert_eq!(service.zookeeper.children(LOCK).unwrap_or_default(), Vec::<String>::new());
        eventually("the session to end", || service.litter(&["job"]).is_empty().then_some(()));
    }
}

mod sessions {
    use super::*;

    #[test]
    fn a_waiter_whose_session_has_ended_queues_anew_behind_those_who_came_meanwhile() {
        let service = ZooKeeperService::fresh();
        let holder = service.hold("job");
        let proxy = Proxy::to(service.zookeeper.server(0).port());
        let behind = format!("zk://127.0.0.1:{}", proxy.port());
        let waiter = queue_up_at(&service, &behind, &["-t", "1s"]);
        let old = nodes(&service.zookeeper)[2].clone();
        proxy.set(Mode::Hold);
        service.wait_queued("job", 0);
        let second = service.queue_up("job", &["-q"]);
        holder.let_go().success();
        second.wait_held();
        proxy.set(Mode::Forward);
        // On its old place it would run now.
        let new = eventually("new nodes of the waiter", || {
            let all = nodes(&service.zookeeper);
            all.into_iter().find(|(_, node)| owner(node) == owner(&old.1))
        });
        assert_ne!(new.1.ephemeral_owner, old.1.ephemeral_owner);
        assert!(!waiter.has_held());
        second.let_go().success();
        waiter.wait_held();
        ends_well(waiter);
        assert!(service.zookeeper.tree().is_empty());
    }

    #[test]
    fn a_waiter_behind_a_server_that_was_frozen_is_not_refused() {
        let service = ZooKeeperService::fresh();
        let holder = service.queue_up_alone(&["-q", "-t", "20s"]);
        let waiter = service.queue_up("job", &["-q", "-t", "4s"]);
        // Not so long that an answer is overdue, and the lock passes on before a quarter of a session has gone by since.
        service.zookeeper.stop();
        last_until(boottime() + Duration::from_millis(1250));
        service.zookeeper.cont();
        last_until(boottime() + Duration::from_millis(750));
        holder.let_go().success();
        waiter.wait_held();
        waiter.let_go().success();
    }

    /// Nobody is told that the node before ours is gone, as after an outage that has swallowed the event.
    #[test]
    fn a_waiter_whose_event_is_lost_looks_anew_within_a_session() {
        let service = ZooKeeperService::fresh();
        let holder = service.hold("job");
        let ignore_watches = |request: &mut Vec<u8>| {
            // The last byte says whether there is to be a watch.
            if request[4..8] == GET_DATA.to_be_bytes()
                && let Some(wanted) = request.last_mut()
            {
                *wanted = 0;
            }
        };
        let proxy = ZooKeeperProxy::editing(service.zookeeper.server(0).port(), ignore_watches, |_, _| Fate::Pass);
        let session = Duration::from_secs(2);
        let waiter = queue_up_at(&service, &proxy.url(), &["-t", "2s"]);
        holder.let_go().success();
        let free = boottime();
        waiter.wait_held();
        let delay = boottime() - free;
        assert!(delay < 2 * session, "the lock was free for {delay:?}");
        ends_well(waiter);
    }

    #[test]
    fn a_waiter_whose_nodes_are_deleted_makes_new_ones() {
        let service = ZooKeeperService::fresh();
        let holder = service.hold("job");
        let waiter = service.queue_up("job", &["-q", "-t", "2s"]);
        // One is enough: who knows only that spelling would pass the waiter.
        let (name, _) = nodes(&service.zookeeper)[3].clone();
        service.zookeeper.delete(&format!("{LOCK}/{name}"));
        eventually("both nodes anew", || {
            let sequences: Vec<i64> = nodes(&service.zookeeper).iter().map(|(name, _)| sequence(name)).collect();
            (sequences == [0, 1, 4, 5]).then_some(())
        });
        holder.let_go().success();
        waiter.wait_held();
        waiter.let_go().success();
    }

    #[test]
    fn a_holder_one_of_whose_nodes_is_deleted_has_lost() {
        for index in [0, 1] {
            let service = ZooKeeperService::fresh();
            let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "2s"]));
            holder.wait_held();
            let (name, _) = nodes(&service.zookeeper)[index].clone();
            service.zookeeper.delete(&format!("{LOCK}/{name}"));
            holder.running.wait().code(79).stderr_is_one_line("its node is gone from the server");
            // The other one is of no use to anybody.
            assert!(service.zookeeper.tree().is_empty());
        }
    }

    impl ZooKeeperService {
        /// Takes the free lock `job`.
        fn queue_up_alone(&self, options: &[&str]) -> Gated {
            let holder = Gated::spawn(self.scratch(), self.run("job").args(options));
            holder.wait_held();
            holder
        }
    }
}

mod ensemble {
    use super::*;

    /// A stubborn tree under the lock, with a session of two seconds.
    struct Holder {
        tree: Tree,
        running: crate::support::dlock::Running,
        node: String,
        scratch: Scratch,
    }

    fn hold(zookeeper: &ZooKeeper, url: &str) -> Holder {
        let scratch = Scratch::new();
        // Servers that have just started are slow at what they do for the first time, and the session is short.
        eventually("the servers to be warm", || {
            let first = scratch.dlock().run("first").backend(url).args(["-t", "30s"]).command(["true"]).output();
            first.stderr().is_empty().then_some(())
        });
        let mut tree = Tree::new(&scratch);
        let dlock = scratch.dlock().run("job").backend(url).args(["-t", "2s"]).shell(tree.work());
        let running = dlock.lifeline(tree.end()).spawn();
        tree.wait_grown();
        let node = format!("{LOCK}/{}", nodes(zookeeper)[0].0);
        Holder { tree, running, node, scratch }
    }

    /// Waits until the holder has renewed so many times more; when the last one was seen.
    fn renewed(zookeeper: &ZooKeeper, node: &str, times: i32) -> Duration {
        let version = || zookeeper.get(node).unwrap_or_else(|| panic!("{node} is gone")).version;
        let first = version();
        eventually("renewals", || (version() >= first + times).then(boottime))
    }

    /// Whatever the leader does, and it counts in whole ticks: the deadline counts from a request that is a quarter of a
    /// session older than the last renewal, which was answered before `confirmed`.
    fn assert_early(died: Duration, confirmed: Duration) {
        let after = died.saturating_sub(confirmed);
        assert!(after < Duration::from_millis(1500), "{after:?} after the last renewal of a session of two seconds");
    }

    fn lost(outcome: &Outcome) {
        outcome.code(79).stderr_is_one_line("dlock: lost job at zk://127.0.0.1:");
    }

    /// A follower answers for itself for as long as it believes in its leader, and its leader has not heard from our
    /// session since then, or even since a little earlier: half a tick, which here is a quarter of the session.
    #[test]
    fn a_follower_that_is_cut_off_is_survived_by_no_command() {
        let lines = vec!["syncLimit=10".to_owned()];
        let options =
            ZooKeeperOptions { tick: 1000, min_session: 2000, cuttable: true, lines, ..ZooKeeperOptions::ensemble() };
        let zookeeper = ZooKeeper::with(options);
        // The test itself looks through the first server that is at work.
        let follower = if zookeeper.leader() == 2 { 1 } else { 2 };
        let holder = hold(&zookeeper, &format!("zk://127.0.0.1:{}", zookeeper.server(follower).port()));
        let confirmed = renewed(&zookeeper, &holder.node, 3);
        zookeeper.cut_off(follower);
        let died = holder.tree.died_at();
        assert_early(died, confirmed);
        // The last look at which it was still there.
        let mut alive = None;
        eventually("the leader to end the session", || {
            let now = boottime();
            let there = zookeeper.get(&holder.node).is_some();
            if there {
                alive = Some(now);
            }
            (!there).then_some(())
        });
        let alive = alive.expect("the session was over before its command was dead");
        assert_in_time(died, alive);
        lost(&holder.running.wait());
        zookeeper.heal(follower);
        drop(holder.scratch);
    }

    #[test]
    fn a_leader_that_is_killed_is_not_noticed() {
        let service = ZooKeeperService::on(ZooKeeper::ensemble());
        let zookeeper = &service.zookeeper;
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "12s"]));
        holder.wait_held();
        let node = format!("{LOCK}/{}", nodes(zookeeper)[0].0);
        let waiter = queue_up_at(&service, &service.url(), &["-t", "12s"]);
        zookeeper.server(zookeeper.leader()).kill();
        renewed(zookeeper, &node, 2);
        assert!(!waiter.has_held());
        holder.let_go().success();
        waiter.wait_held();
        // It may have had something to say of the time without a leader.
        waiter.let_go().code(0).stderr_ends_with_line("waiting for job: ");
    }

    /// The one that it talks to answers nothing; the others do.
    #[test]
    fn a_server_that_is_frozen_is_left_for_another() {
        let service = ZooKeeperService::on(ZooKeeper::ensemble());
        let zookeeper = &service.zookeeper;
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "8s"]));
        holder.wait_held();
        let (name, made) = nodes(zookeeper)[0].clone();
        let session = format!("{:#x}", made.ephemeral_owner);
        let index = eventually("its server", || {
            zookeeper.servers().iter().position(|server| server.four_letters("cons").contains(&session))
        });
        zookeeper.server(index).stop();
        renewed(zookeeper, &format!("{LOCK}/{name}"), 2);
        zookeeper.server(index).cont();
        holder.let_go().success();
    }

    #[test]
    fn a_majority_that_is_frozen_is_survived_by_no_command() {
        let zookeeper = ZooKeeper::ensemble();
        let holder = hold(&zookeeper, &zookeeper.url());
        let leader = zookeeper.leader();
        let confirmed = renewed(&zookeeper, &holder.node, 3);
        let frozen = [leader, (leader + 1) % 3].map(|index| zookeeper.server(index));
        for server in frozen {
            server.stop();
        }
        assert_early(holder.tree.died_at(), confirmed);
        lost(&holder.running.wait());
        for server in frozen {
            server.cont();
        }
        zookeeper.leader();
        let next = holder.scratch.dlock().run("job").backend(zookeeper.url()).args(["-q", "-t", "4s"]);
        next.command(["true"]).output().success();
    }

    #[test]
    fn servers_that_are_dead_cost_little_and_none_at_all_is_an_error() {
        let zookeeper = ZooKeeper::ensemble();
        let scratch = Scratch::new();
        zookeeper.server(0).kill();
        for _ in 0..4 {
            let outcome = scratch.dlock().run("job").backend(zookeeper.url()).command(["true"]).output();
            outcome.success();
            assert!(outcome.elapsed() < Duration::from_secs(3), "{outcome:?}");
        }
        zookeeper.server(1).kill();
        // The last one serves nobody without a majority.
        let alone = scratch.dlock().run("job").backend(zookeeper.url()).command(["true"]).output();
        alone.code(69).stderr_is_one_line("hung up before it answered; it may be starting, lack a quorum");
        zookeeper.server(2).kill();
        let none = scratch.dlock().run("job").backend(zookeeper.url()).command(["true"]).output();
        none.code(69).stderr_is_one_line("Connection refused");
    }
}

mod hostile {
    use super::*;

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
            outcome.code(69).stdout_is("").stderr_is_one_line("did not get job: ");
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
        let dlock = run_at(&service, &proxy.url(), &["-t", "2s"]).shell(tree.work());
        let running = dlock.lifeline(tree.end()).spawn();
        tree.wait_grown();
        armed.store(true, Ordering::SeqCst);
        let started = boottime();
        let died = tree.died_at();
        assert!(died < started + Duration::from_secs(2), "{:?}", died - started);
        // What is said of the last try depends on how far it got.
        running.wait().code(79).stderr_is_one_line("no renewal was confirmed");
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
        let inodes: Vec<String> = links
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
        let listening = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ours = words.get(3) == Some(&"0A") && inodes.iter().any(|inode| words.get(9) == Some(&inode.as_str()));
            ours.then(|| u16::from_str_radix(words[1].split_once(':').unwrap().1, 16).unwrap())
        };
        table.lines().find_map(listening).expect("it listens")
    }
}

mod access {
    use super::*;

    fn with_password(dlock: Dlock, user: &str, password: &str) -> Dlock {
        dlock.args(["--user", user]).env("DLOCK_PASSWORD", password)
    }

    #[test]
    fn nodes_belong_to_the_user_who_made_them() {
        let service = ZooKeeperService::fresh();
        let holder = Gated::spawn(service.scratch(), with_password(service.run("job"), "alice", "a:b/c"));
        holder.wait_held();
        let names = service.zookeeper.children(LOCK).unwrap();
        for path in names.iter().map(|name| format!("{LOCK}/{name}")).chain([LOCK.to_owned(), "/dlock".to_owned()]) {
            let acl = service.zookeeper.acl(&path).unwrap();
            let [(31, scheme, id)] = acl.as_slice() else { panic!("{path}: {acl:?}") };
            assert!(scheme == "digest" && id.starts_with("alice:"), "{path}: {acl:?}");
        }
        with_password(service.run("job").arg("-n"), "alice", "a:b/c")
            .command(["true"])
            .output()
            .code(75)
            .stderr_is_one_line("held by ");
        for outcome in [
            with_password(service.run("job"), "alice", "wrong").command(["true"]).output(),
            with_password(service.run("other"), "mallory", "a:b/c").command(["true"]).output(),
            service.run("job").command(["true"]).output(),
        ] {
            outcome.code(77).stderr_is_one_line("refused access to /dlock/");
            assert!(!outcome.stderr().contains("a:b/c") && !outcome.stderr().contains("wrong"), "{outcome:?}");
        }
        holder.let_go().success();
        // What was made is taken away by whoever may.
        assert!(service.zookeeper.tree().is_empty());
        let sessions = || service.zookeeper.sessions();
        eventually("the sessions of those refused to end", || sessions().is_empty().then_some(()));
    }

    #[test]
    fn half_a_login_is_refused() {
        let service = ZooKeeperService::fresh();
        let user = service.run("job").args(["--user", "alice"]).command(["true"]).output();
        user.code(77).stderr_is_one_line("needs a password too");
        let password = service.run("job").env("DLOCK_PASSWORD", "secret").command(["true"]).output();
        password.code(77).stderr_is_one_line("needs a user too");
    }

    #[test]
    fn a_server_with_tls_must_be_the_right_one_and_may_want_the_same_of_us() {
        let with = |tls: Tls| {
            ZooKeeperService::on(ZooKeeper::with(ZooKeeperOptions { tls: Some(tls), ..ZooKeeperOptions::single() }))
        };
        let run = |service: &ZooKeeperService, options: &[std::ffi::OsString]| {
            let dlock = service.scratch().dlock().run("job").backend(service.url()).args(options);
            dlock.command(["true"]).output()
        };
        let service = with(Tls { server: Identity::OtherHost, clients: ClientCertificate::Needed });
        let files = service.zookeeper.certificates();
        let (ca, other_ca) = (["--tls-ca".into(), files.ca().into()], ["--tls-ca".into(), files.other_ca().into()]);
        run(&service, &other_ca).code(69).stderr_is_one_line("--tls-ca");
        run(&service, &ca).code(69).stderr_is_one_line("--tls-server-name");
        let name = ["--tls-server-name".into(), "elsewhere.example".into()];
        let named = [&ca[..], &name].concat();
        run(&service, &named).code(77).stderr_is_one_line("--tls-cert");
        let (cert, key) = (files.certificate(Identity::Client), files.key(Identity::Client));
        let known = ["--tls-cert".into(), cert.into(), "--tls-key".into(), key.into()];
        run(&service, &[&named[..], &known].concat()).success();
    }
}
