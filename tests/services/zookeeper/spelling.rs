//! The spellings of a lock, and other programs that use them.

use super::*;

#[test]
fn a_holder_has_nodes_as_curators_two_locks_and_kazoos_spell_them() {
    for (options, curator, read_write, kazoo, mode, slot) in [
        (&[][..], "-lock-", "-__WRIT__", "__lock__", None, None),
        (&["-s"], "-lock-", "-__READ__", "__rlock__", Some("shared"), None),
        (&["--slots", "5"], "-slots5-lock-", "-slots5-__WRIT__", "-slots5__lock__", Some("slots5"), Some(0)),
    ] {
        let service = ZooKeeperService::fresh();
        let dlock = service.run("job").args(options).shell("echo $DLOCK_OWNER $DLOCK_TOKEN; read -r line");
        let mut running = dlock.stdin(std::process::Stdio::piped()).spawn();
        let line = running.wait_stdout(" ");
        let (id, token) = line.trim().split_once(' ').unwrap();
        let nodes = nodes(&service.zookeeper);
        let uuid = format!("_c_{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]);
        let expected = [
            format!("{uuid}{curator}0000000000"),
            format!("{uuid}{read_write}0000000001"),
            format!("f{}{kazoo}0000000002", &id[1..]),
        ];
        assert_eq!(nodes.iter().map(|(name, _)| name).collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
        for (index, (_, node)) in nodes.iter().enumerate() {
            // Made in one transaction, which is the token.
            assert_eq!(node.czxid.to_string(), token);
            assert!(node.ephemeral_owner != 0 && node.ephemeral_owner == nodes[0].1.ephemeral_owner);
            assert_eq!(owner(node), id);
            let published: serde_json::Value = serde_json::from_str(&node.data).unwrap();
            assert_eq!(published["mode"].as_str(), mode);
            // Who enters a slot says so on the first node, which names the holder, and on the last, which others watch.
            assert_eq!(published["slot"].as_u64(), slot.filter(|_| index != 1), "{index}");
        }
        drop(running.take_stdin());
        running.wait().code(1).quiet();
    }
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
    assert_eq!(service.zookeeper.children("/apps/one/dlock/job").unwrap().len(), 3);
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
        let line = waiter.running.wait_stderr("waiting for 'job'");
        assert!(line.ends_with("held by another program: 10.1.2.3; you are next"), "{line}");
        assert!(!waiter.has_held());
        foreign.close().unwrap();
        waiter.wait_held();
        waiter.let_go().code(0).stderr_ends_with_line("you are next");
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
        for mark in ["-lock-", "__WRIT__", "__lock__"] {
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
