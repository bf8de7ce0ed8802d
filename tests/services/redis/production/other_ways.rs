//! Local sockets, and redis by another name.

use super::*;

#[test]
fn a_local_socket_with_database_and_password() {
    let (scratch, redis) = (Scratch::new(), Redis::with(["--requirepass", SECRET]));
    let path = redis.socket().display().to_string();
    let monitor = redis.monitor();
    let url = format!("redis+unix://:{}@{path}?db=3", encoded(SECRET));
    let outcome = run(&scratch, &url).arg("-v").shell("env").output();
    outcome.code(0).stderr_ends_with_line("released 'k'");
    assert!(outcome.stderr().contains(&format!("acquired 'k' at redis+unix://{path}")), "{outcome:?}");
    assert_silent(&outcome);
    let databases: Vec<u32> =
        monitor.all().into_iter().filter(|seen| runs_script(&seen.words)).map(|seen| seen.db).collect();
    assert_eq!(databases, [3, 3]);
    // From the environment, without the password in that of the command.
    let outcome = scratch.dlock().run("k").env("DLOCK_BACKEND", &url).shell("printf %s \"$DLOCK_BACKEND\"").output();
    outcome.success().stdout_is(&format!("redis+unix://{path}?db=3"));
    let file = scratch.secret("password", SECRET);
    run(&scratch, redis.socket_url()).arg("--password-file").arg(file).command(["true"]).output().success();
    let outcome = refused(&scratch, run(&scratch, redis.socket_url()), 77, &["no password was given"]);
    assert_silent(&outcome);
    // The same lock as through TCP.
    let holder = hold(&scratch, run(&scratch, &url));
    let by_tcp = run(&scratch, redis.url_for("", SECRET, 3)).args(["-n", "-q"]).command(["true"]);
    by_tcp.output().code(75).quiet();
    holder.let_go().success();
}

#[test]
fn a_socket_whose_path_is_odd_and_one_that_is_not_there() {
    let scratch = Scratch::new();
    let directory = scratch.directory("open", 0o777);
    let odd = directory.join("a b@c%d?e,f");
    let _redis = Redis::with(["--unixsocket", odd.to_str().unwrap()]);
    let url = format!("redis+unix://{}/{}", directory.display(), encoded("a b@c%d?e,f"));
    run(&scratch, &url).command(["true"]).output().success();
    let missing = format!("redis+unix://{}", scratch.path("missing").display());
    refused(&scratch, run(&scratch, &missing), 69, &["could not reach", "/missing", "is it running there?"]);
    let file = scratch.file("file", "");
    refused(&scratch, run(&scratch, format!("redis+unix://{}", file.display())), 69, &["could not reach"]);
}

#[test]
fn valkey_is_redis_by_another_name() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let url = format!("valkey://127.0.0.1:{}", redis.port());
    let outcome = run(&scratch, &url).arg("-v").shell("echo $DLOCK_BACKEND_KIND").output();
    outcome.code(0).stdout_is("redis\n").stderr_ends_with_line("released 'k'");
    assert!(outcome.stderr().contains(&format!("acquired 'k' at {url}, token ")), "{outcome:?}");
    let holder = hold(&scratch, run(&scratch, &url));
    run(&scratch, redis.url()).args(["-n", "-q"]).command(["true"]).output().code(75).quiet();
    holder.let_go().success();
}
