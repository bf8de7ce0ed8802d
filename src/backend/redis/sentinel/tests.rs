use proptest::prelude::*;

use super::*;
use crate::backend::redis::answers::any;
use crate::property::{holds, one_of};

fn fields(pairs: &[(&str, &str)]) -> Vec<Value> {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    pairs.iter().flat_map(|(name, value)| [text(name), text(value)]).collect()
}

#[test]
fn a_statement_is_read_by_the_names_of_its_fields() {
    let good = |flags| {
        let ip = [("name", "ip"), ("ip", "10.0.0.1"), ("port", "6379")];
        fields(&[ip.as_slice(), &[("flags", flags)]].concat())
    };
    for (flags, leaving) in [("master", false), ("master,s_down", false), ("s_down,o_down,master", true)] {
        let master = Address::Tcp("10.0.0.1".to_owned(), 6379);
        assert_eq!(read(&good(flags)), Some(Statement { master, leaving }));
    }
    for bad in [&[][..], &[("ip", "10.0.0.1")], &[("ip", "h"), ("port", "x"), ("flags", "master")]] {
        assert_eq!(read(&fields(bad)), None);
    }
    assert_eq!(read(&good("master")[..3]), None);
}

#[test]
fn a_master_is_whom_a_majority_names() {
    let server = |host: &str| Address::Tcp(host.to_owned(), 1);
    for (named, pending, needed, expected) in [
        ("", 3, 2, Agreement::Open),
        ("a", 2, 2, Agreement::Open),
        ("a a", 1, 2, Agreement::On(server("a"))),
        ("b a", 1, 2, Agreement::Open),
        ("b a a", 0, 2, Agreement::On(server("a"))),
        ("a b c", 0, 2, Agreement::None),
        ("a b", 0, 2, Agreement::None),
        ("a", 0, 2, Agreement::None),
        ("", 1, 2, Agreement::None),
        ("a", 0, 1, Agreement::On(server("a"))),
        // Three failed, and two disagree.
        ("a b", 0, 3, Agreement::None),
        ("a a b", 1, 3, Agreement::Open),
        ("a b c", 1, 3, Agreement::None),
    ] {
        let masters: Vec<Address> = named.split_whitespace().map(server).collect();
        assert_eq!(agreement(&masters, pending, needed), expected, "{named}, {pending} to come");
    }
}

#[test]
fn an_address_that_is_another_server_on_each_host() {
    for (host, expected) in [
        ("127.0.0.1", true),
        ("127.9.9.9", true),
        ("::1", true),
        ("::ffff:127.0.0.1", true),
        ("0.0.0.0", true),
        ("::", true),
        ("localhost", true),
        ("redis.LOCALHOST.", true),
        ("10.0.0.1", false),
        ("::2", false),
        ("localhost.example.org", false),
        ("notlocalhost", false),
    ] {
        assert_eq!(is_local(&Address::Tcp(host.to_owned(), 6379)), expected, "{host}");
    }
}

/// Generates a nearly valid statement: fields in any order, some of them missing or invalid.
fn near_statement() -> impl Strategy<Value = Value> {
    let field = |name: &'static str, values| {
        proptest::option::weighted(0.9, one_of(values)).prop_map(move |value| value.map(|value| (name, value)))
    };
    let port = field("port", "6379|6379|0|65536|+3|x|");
    let all = (field("ip", "10.0.0.1|h|"), port, field("flags", "master|o_down,master|"));
    let all = all.prop_flat_map(|(ip, port, flags)| Just(vec![ip, port, flags]).prop_shuffle());
    all.prop_map(|all| Value::Array(fields(&all.into_iter().flatten().collect::<Vec<_>>())))
}

#[test]
fn only_a_whole_statement_names_a_master() {
    holds(2000, prop_oneof![any::answer(), near_statement()], |answer| {
        if let Value::Array(fields) = &answer
            && let Some(Statement { master: Address::Tcp(host, port), .. }) = read(fields)
        {
            for text in [host, port.to_string()] {
                prop_assert!(fields.iter().filter_map(text_of).any(|field| field == text), "{answer:?}");
            }
            for name in ["ip", "port", "flags"] {
                prop_assert!(fields.iter().step_by(2).any(|field| text_of(field) == Some(name)), "{answer:?}");
            }
        }
        Ok(())
    });
}
