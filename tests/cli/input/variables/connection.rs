//! The variables of options that say how a service is reached.

use super::*;

#[test]
fn profile() {
    let scratch = Scratch::new();
    let backend =
        format!("[profile.p]\nbackend = \"{}\"\n[profile.q]\nbackend = \"redis://127.0.0.1:1\"\n", scratch.file_url());
    let file = scratch.secret("config.toml", backend);
    let run = || run(&scratch).env("DLOCK_CONFIG", &file);
    run().env("DLOCK_PROFILE", "p").command(["true"]).output().success();
    // A flag beats it.
    run().env("DLOCK_PROFILE", "q").args(["--profile", "p"]).command(["true"]).output().success();
    run()
        .env("DLOCK_PROFILE", "r")
        .command(["true"])
        .output()
        .code(78)
        .stderr_is_one_line("DLOCK_PROFILE: no config file");
}

#[test]
fn connect_timeout() {
    let scratch = Scratch::new();
    let server = Hostile::start(Behaviour::Silence);
    // Logging in is part of connecting.
    let run = || run(&scratch).backend(format!("redis://:x@127.0.0.1:{}", server.port()));
    let variable = run().env("DLOCK_CONNECT_TIMEOUT", "0.2").command(["true"]).output();
    variable.code(69).stderr_is_one_line("did not answer within 200ms");
    let flag = run().args(["--connect-timeout", "0.1"]).env("DLOCK_CONNECT_TIMEOUT", "1h").command(["true"]).output();
    flag.code(69).stderr_is_one_line("did not answer within 100ms");
}

#[test]
fn user_and_password_file() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    with_user(&redis, ACL);
    redis.cli(&["ACL", "SETUSER", "default", "off"]);
    let file = scratch.secret("password", format!("{ODD_PASSWORD}\n"));
    let wrong = scratch.secret("wrong", "wrong\n");
    let run = |flags: &[&OsStr]| run(&scratch).backend(redis.url()).args(flags).command(["true"]);
    let user = |dlock: Dlock| dlock.env("DLOCK_USER", "worker");
    user(run(&[])).env("DLOCK_PASSWORD", ODD_PASSWORD).output().success();
    user(run(&[])).env("DLOCK_PASSWORD_FILE", &file).env("DLOCK_PASSWORD", "").output().success();
    user(run(&[])).env("DLOCK_PASSWORD_FILE", "").env("DLOCK_PASSWORD", ODD_PASSWORD).output().success();
    // Flags beat variables, across the two ways as well.
    let flag = run(&[OsStr::new("--password-file"), file.as_os_str()]);
    user(flag).env("DLOCK_PASSWORD_FILE", &wrong).env("DLOCK_PASSWORD", "wrong").output().success();
    let flag = run(&[OsStr::new("--user"), OsStr::new("worker")]);
    flag.env("DLOCK_USER", "nobody").env("DLOCK_PASSWORD", ODD_PASSWORD).output().success();
    let url = scratch.dlock().run("k").backend(redis.url_for("worker", ODD_PASSWORD, 0)).command(["true"]);
    url.env("DLOCK_USER", "nobody").env("DLOCK_PASSWORD", "wrong").output().success();
}

/// That each of them does its work, and that a wrong file is found out, is in `tls.rs`.
#[test]
fn tls_ca_and_tls_cert_and_tls_key_and_tls_server_name() {
    let (scratch, files) = (Scratch::new(), Certificates::new());
    let tls = Tls { server: Identity::OtherHost, clients: ClientCertificate::Needed };
    let redis = Redis::with_tls(tls, [""; 0]);
    let ca = files.ca();
    let (name, wrong) = (OsStr::new("elsewhere.example"), OsStr::new("/nonexistent"));
    let (cert, key) = (files.certificate(Identity::Client), files.key(Identity::Client));
    let all = [("ca", ca.as_os_str()), ("cert", cert.as_os_str()), ("key", key.as_os_str()), ("server-name", name)];
    let variable = |option: &str| format!("DLOCK_TLS_{}", option.replace('-', "_").to_uppercase());
    let run = || run(&scratch).backend(redis.url());
    let variables = |run: Dlock| all.iter().fold(run, |run, (option, value)| run.env(variable(option), value));
    variables(run()).command(["true"]).output().success();
    for (option, value) in all {
        // Each of them is needed, and an empty one is none.
        let outcome = variables(run()).env(variable(option), "").command(["touch", "ran"]).output();
        assert!(matches!(outcome.status().code(), Some(64 | 69)), "without {option}: {outcome:?}");
        outcome.stderr_is_one_line("--tls-");
        // A flag beats it.
        let flag = variables(run()).env(variable(option), wrong).arg(format!("--tls-{option}")).arg(value);
        flag.command(["true"]).output().success();
    }
    assert!(!scratch.path("ran").exists());
}

#[test]
fn replicas() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let run = || run(&scratch).backend(redis.url()).args(["-t", "1s"]);
    for more in ["1", "4294967295"] {
        let variable = run().env("DLOCK_REPLICAS", more).command(["touch", "ran"]).output();
        variable.code(69).stderr_is_one_line(&format!("0 of the {more} replicas that --replicas wants"));
    }
    assert!(!scratch.path("ran").exists());
    for none in ["0", ""] {
        run().env("DLOCK_REPLICAS", none).command(["true"]).output().success();
    }
    run().args(["--replicas", "0"]).env("DLOCK_REPLICAS", "1").command(["true"]).output().success();
    // It may stand for all of a user's backends; a flag may not.
    run_file(&scratch).env("DLOCK_REPLICAS", "1").command(["true"]).output().success();
    let flag = run_file(&scratch).args(["--replicas", "1"]).command(["true"]).output();
    flag.code(64).stderr_is_one_line("--replicas is only for a redis server with replicas");
}

/// That it refuses the servers that it must refuse is shown where the servers are.
#[test]
fn strict_fencing() {
    let scratch = Scratch::new();
    for value in ["1", "true", "0", ""] {
        run_file(&scratch).env("DLOCK_STRICT_FENCING", value).command(["true"]).output().success();
    }
    for url in [scratch.file_url(), "redis://127.0.0.1:1".to_owned(), "etcd://127.0.0.1:1".to_owned()] {
        let flag = run(&scratch).backend(&url).arg("--strict-fencing").command(["touch", "ran"]).output();
        flag.code(64).stderr_is_one_line("--strict-fencing is only for redlock://");
    }
    assert!(!scratch.path("ran").exists());
}
