/*!
URLs: accepted, rejected, and in their printed form.
*/

use super::*;

#[test]
fn a_scheme_alone_is_this_host() {
    for (text, expected) in [
        ("file", "file:"),
        ("file:", "file:"),
        ("redis", "redis://localhost:6379"),
        ("valkeys", "valkeys://localhost:6379"),
        ("etcd", "etcd://localhost:2379"),
        ("zks", "zks://localhost:2281"),
        ("postgres", "postgres://localhost:5432"),
    ] {
        assert_eq!(Target::parse(text).expect(text).to_string(), expected);
    }
    for (bad, instead) in [
        ("redis+unix", "redis+unix:///socket"),
        ("redis+sentinel", "redis+sentinel://host,host/NAME"),
        ("etcds:", "etcds://host,host,host"),
        ("zk:x", "zk://host,host,host[/chroot]"),
        ("mariadb", "mariadb://host,host/database"),
    ] {
        let error = Target::parse(bad).expect_err(bad);
        assert_eq!(error, format!("could not read the backend URL: use {instead}"));
    }
    assert_eq!(Target::default_one().expect("valid").to_string(), "file:");
}

#[test]
fn what_other_clients_call_it_is_told() {
    for (text, expected) in [
        ("http://h", "unknown backend http://: use etcd:// for etcd"),
        ("https://h", "unknown backend https://: use etcds:// for etcd with TLS"),
        ("zookeeper://h", "unknown backend zookeeper://: use zk://, or zks:// with TLS"),
        ("redis+ssl://h", "unknown backend redis+ssl://: use rediss://"),
        ("unix:///s", "unknown backend unix://: use redis+unix://"),
        ("sentinel://h", "unknown backend sentinel://: use redis+sentinel://"),
    ] {
        assert_eq!(Target::parse(text).expect_err(text), expected);
    }
    for (text, expected) in [
        ("mysql://h", "name the database"),
        ("k8s://h", "there is no backend for the Kubernetes API"),
        ("consul://h", "there is no backend for Consul"),
        ("pigeon://h", "unknown backend pigeon://: use file: or redis:// "),
    ] {
        let error = Target::parse(text).expect_err("unknown");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_backend_decides_what_is_said_of_it() {
    for (text, kind, has_lease, share, tls, replicas, redlock) in [
        ("file:", "file", false, 2, None, false, false),
        ("redis://h", "redis", true, 2, Some(false), true, false),
        ("valkeys://h", "redis", true, 2, Some(true), true, false),
        ("redis+unix:///s", "redis", true, 2, None, true, false),
        ("rediss+sentinel://h/n", "redis", true, 2, Some(true), true, false),
        ("redlock://a,b,c", "redlock", true, 2, Some(false), false, true),
        ("etcds://h", "etcd", true, 2, Some(true), false, false),
        ("zk://h", "zookeeper", true, 4, Some(false), false, false),
        ("postgres://h", "postgres", true, 2, Some(false), false, false),
        ("postgres://h?sslmode=require", "postgres", true, 2, Some(true), false, false),
        ("postgress://h", "postgres", true, 2, Some(true), false, false),
        ("postgres+unix:///s", "postgres", true, 2, None, false, false),
        ("mariadb://h/d", "mysql", true, 2, Some(false), false, false),
        ("mysqls://h/d", "mysql", true, 2, Some(true), false, false),
        ("mysql+unix:///s?db=d", "mysql", true, 2, None, false, false),
    ] {
        let target = Target::parse(text).expect(text);
        let said = (target.kind(), target.has_lease(), target.kill_after_share(), target.is_tls());
        assert_eq!(said, (kind, has_lease, share, tls), "{text}");
        assert_eq!((target.has_replicas(), target.is_redlock()), (replicas, redlock), "{text}");
    }
}

#[test]
fn what_is_wrong_is_refused_without_telling_the_password() {
    for bad in [
        "",
        "locks:6379",
        "secret@locks",
        "redis:",
        "redis://",
        "redis://:secret@",
        "redis://:secret@h:0",
        "redis://:secret@h:99999",
        "redis://:secret@h:port",
        "redis://u:se/cret@h",
        "redis://:secret@h/x",
        "redis://:secret@h/1/2",
        "redis://:secret@h?x=1",
        "mysql://:secret@h",
        "secret:x",
    ] {
        let error = Target::parse(bad).expect_err(bad);
        assert!(!error.contains("secret") && !error.contains("se/cret") && !error.contains("cret@"), "{bad}: {error}");
    }
    assert!(!format!("{:?}", Target::parse("redis://:secret@h")).contains("secret"));
}

#[test]
fn a_password_with_a_bare_slash_is_not_taken_for_a_path() {
    for bad in [
        "redis+sentinel://u:12/secret@h",
        "zk://u:12/secret@h",
        "redlock://:7,secret,secret/x@h",
        "redis+unix://:@/secret@/run/r",
    ] {
        let error = Target::parse(bad).expect_err(bad);
        assert!(error.contains("%2F") && !error.contains("secret"), "{bad}: {error}");
    }
}

#[test]
fn credentials_stand_once_before_the_first_server() {
    for bad in [
        "redlock://u:secret@a,u:secret@b,u:secret@c",
        "redlock://a,b,u:secret@c",
        "redis+sentinel://:secret@a,b@c/NAME",
        "etcd://u:secret@a,u:secret@b",
        "zk://u:sec,ret@a",
        "redis://u:sec@ret@a",
        "redis+unix://u:sec,ret@/run/r",
    ] {
        let error = Target::parse(bad).expect_err(bad);
        assert!(error.starts_with("credentials stand once, before the first server: "), "{bad}: {error}");
        assert!(error.contains("%40 and %2C") && !error.contains("sec"), "{bad}: {error}");
    }
    for good in ["redlock://u:sec%2Cr%40et@a:6379,b:6379,c:6379", "etcd://u:secret@a:2379,b:2379"] {
        let (login, servers) = good.split_once('@').expect("credentials");
        let user = login.rsplit_once(':').expect("a password").0;
        assert_eq!(Target::parse(good).expect(good).to_string(), format!("{user}@{servers}"));
    }
}

#[test]
fn what_is_printed_means_the_same() {
    for text in [
        "redis+unix:///run/r?db=2",
        "redis://a%40b%3A@h:7000/3",
        "redis+sentinel://h:26379/a%3Fb/2",
        "zk://h:2181/a%25b%40",
        "postgres://a%40b@h:5432,i:1/d%25?sslmode=require&table=own.locks",
        "postgres+unix:///run/r?db=d%26e&table=locks",
        "mariadb://a%40b@h:3306,i:1/d%25?sslmode=require&table=own.locks",
        "file:///a%25b%3Fc?remote=trust",
        "file:///%FF",
    ] {
        assert_eq!(Target::parse(text).expect(text).to_string(), text);
    }
}

#[test]
fn the_password_is_found_as_it_is_written() {
    for (text, expected) in [
        ("redis://u:secret@h/1", Some("secret")),
        ("redis://:se/cr@et@h", Some("se/cr@et")),
        ("redlock://u:%40x@a,b,c", Some("%40x")),
        ("redis://u:@h", None),
        ("redis://u@h", None),
        ("file:///a:b@c", None),
        ("redis", None),
    ] {
        assert_eq!(password_in(text), expected, "{text}");
    }
}

#[test]
fn passwords_are_removed_from_any_text() {
    for (text, expected) in [
        ("redis://u:secret@h/1", "redis://u@h/1"),
        ("redis://:se/cr@et@h", "redis://h"),
        ("redis://u@h", "redis://u@h"),
        ("file:///a:b@c", "file:///a:b@c"),
    ] {
        assert_eq!(without_password(text), expected);
    }
}
