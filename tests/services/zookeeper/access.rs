//! Names, passwords, and who may use a node.

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
        assert!(outcome.stderr().contains("the access list there "), "{outcome:?}");
        assert!(!outcome.stderr().contains("a:b/c") && !outcome.stderr().contains("wrong"), "{outcome:?}");
    }
    holder.let_go().success();
    // What was made is taken away by whoever may, but for the user's namespace.
    service.assert_tidy(&[]);
    let sessions = || service.zookeeper.sessions();
    eventually("the sessions of those refused to end", || sessions().is_empty().then_some(()));
}

/// Whoever comes next would own it. Also below a chroot, and where a latch is the first to make it.
#[test]
fn a_namespace_stays_with_its_user_when_its_last_lock_is_gone() {
    let lock = (&["run", "-k", "job"][..], &["true"][..]);
    let latch = (&["latch", "-k", "job"][..], &["down", "--as", "a"][..]);
    for (chroot, (verb, rest)) in [("", lock), ("/apps", latch)] {
        let service = ZooKeeperService::fresh();
        let url = format!("{}{chroot}", service.url());
        let dlock = |words: &[&str]| service.scratch().dlock().args(words).backend(&url);
        let by = |user: &str, words: &[&str]| with_password(dlock(words), user, "secret");
        by("alice", verb).args(rest).output().code(0);
        if chroot.is_empty() {
            assert_eq!(service.zookeeper.tree(), ["/dlock", "/dlock/%dlock"]);
            service.assert_tidy(&[]);
        }
        let namespace = format!("{chroot}/dlock");
        let keeper = format!("{namespace}/%dlock");
        for path in [chroot, &namespace, &keeper].into_iter().filter(|path| !path.is_empty()) {
            let acl = service.zookeeper.acl(path).unwrap();
            assert!(matches!(acl.as_slice(), [(31, _, id)] if id.starts_with("alice:")), "{path}: {acl:?}");
        }
        let port = service.zookeeper.server(0).port();
        let mut mallory = Client::connect(port, Duration::from_secs(5)).unwrap();
        mallory.add_auth("mallory", "secret").unwrap();
        for path in [&keeper, &namespace] {
            assert!(mallory.delete(path).is_err(), "{path} can be removed by others");
        }
        let other = ["run", "-n", "-k", "other"];
        by("mallory", &other).command(["true"]).output().code(77).stderr_is_one_line("refused access to ");
        dlock(&other).command(["true"]).output().code(77).stderr_is_one_line("no user was given");
        by("alice", &other).command(["true"]).output().code(0);
        let listed = by("alice", &["list"]).output();
        listed.code(0).stderr_is_one_line("no lock is held in the namespace dlock");
    }
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

/// Next to the lock's nodes, which anybody may change, only their owner can make any.
#[test]
fn a_lock_is_broken_also_by_those_who_may_leave_no_trace() {
    let service = ZooKeeperService::fresh();
    let mut owner = service.zookeeper.client();
    owner.add_auth("alice", "secret").unwrap();
    owner.create("/dlock", "", Kind::Persistent, Acl::Readable).unwrap();
    owner.create(LOCK, "", Kind::Persistent, Acl::Open).unwrap();
    let look = |words: &[&str]| service.scratch().dlock().args(words).backend(service.url());
    for now in [None, Some("--now")] {
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "4s"]));
        holder.wait_held();
        let seen = look(&["status", "-k", "job", "--json"]).output();
        let seen: serde_json::Value = serde_json::from_str(&seen.stdout()).unwrap();
        let id = seen["holder"]["id"].as_str().unwrap();
        let broken = look(&["break", "-k", "job", "--owner", id]).args(now).output();
        let said = broken.code(0).stderr();
        let untraced = "dlock: could not record this break of 'job', so dlock status will not show it: ";
        assert!(said.starts_with(untraced) && said.contains("/dlock/job%dlock"), "{said}");
        holder.running.wait().code(79).stderr_is_one_line("lost 'job' at ");
        assert!(!look(&["status", "-k", "job"]).output().code(0).stdout().contains("earlier"));
    }
}

/// Every contender lists the directory with the record of a break.
#[test]
fn a_break_by_another_user_keeps_nobody_out() {
    let service = ZooKeeperService::fresh();
    let look = |words: &[&str]| service.scratch().dlock().args(words).backend(service.url());
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "4s"]));
    holder.wait_held();
    let seen = look(&["status", "-k", "job", "--json"]).output();
    let seen: serde_json::Value = serde_json::from_str(&seen.stdout()).unwrap();
    let id = seen["holder"]["id"].as_str().unwrap();
    let broken = with_password(look(&["break", "-k", "job", "--owner", id]), "alice", "secret").output();
    broken.code(0).stderr_ends_with_line("'job' was released after ");
    holder.running.wait().code(79).stderr_is_one_line("asked it to stop");
    service.run("job").args(["-n"]).command(["true"]).output().success();
    assert!(look(&["status", "-k", "job"]).output().code(0).stdout().contains("  earlier  "));
    let acl = |path: &str| service.zookeeper.acl(path).unwrap();
    assert_eq!(acl(&format!("{LOCK}%dlock")), acl("/dlock"));
}
