//! Requests that are carried out, and whose answers nobody hears.

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
    for (name, _) in &before[3..] {
        service.zookeeper.delete(&format!("{LOCK}/{name}"));
    }
    let made = eventually("new nodes", || {
        let all = nodes(&service.zookeeper);
        let new: Vec<_> = all.into_iter().filter(|(name, _)| !before.iter().any(|(old, _)| old == name)).collect();
        (new.len() == 3).then_some(new)
    });
    Scene { service, holder, waiter, proxy, armed, made }
}

/// Lets the holder go and the other one follow, which must hold by these nodes.
fn follows(scene: Scene, nodes: &[(String, Node)]) {
    let Scene { service, holder, waiter, proxy, .. } = scene;
    assert!(!waiter.has_held());
    holder.let_go().success();
    waiter.wait_held();
    assert_eq!(service.zookeeper.children(LOCK).unwrap().len(), 3);
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
    let twins: Vec<&str> = twins.iter().map(String::as_str).collect();
    other.create_together(&twins, &scene.made[0].1.data).unwrap();
    scene.armed.store(false, Ordering::SeqCst);
    let own = eventually("nodes of its own session", || {
        let (waiters, session) = (&scene.made[0].1, other.session());
        let all = nodes(&scene.service.zookeeper);
        let own = all.into_iter().filter(|(_, node)| owner(node) == owner(waiters)).collect::<Vec<_>>();
        let replaced = own.len() == 3 && own.iter().all(|(_, node)| node.ephemeral_owner != session);
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
    let outcome = run_at(&service, &proxy.url(), &["-t", "1s", "-w", "0.1"]).command(["echo", "ran"]).output();
    outcome.code(69).stdout_is("").stderr_ends_with_line("did not get 'job' within 100ms: ");
    assert!(!armed.load(Ordering::SeqCst), "nothing was made");
    // By itself it would have gone only with the session.
    assert_eq!(service.zookeeper.children(LOCK).unwrap_or_default(), Vec::<String>::new());
    eventually("the session to end", || service.litter(&["job"]).is_empty().then_some(()));
}
