/*!
Properties of every backend URL, valid or not: parsing never panics, printed URLs can be parsed again, and nothing that
is shown depends on the password.
*/

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::backend::net::location::Location;
use crate::backend::redis::Server;
use crate::property::{Holds, holds, made_of, one_of};

/// Pieces of URLs.
const PIECES: &str = "\
    file:|redis:|rediss:|valkey|redis+unix:|redis+sentinel:|redlock:|etcd:|zks:|http:|//|//|/|/|@|:|:|,|?|#|%\
    |%2F|%40|%00|%ff|%1b|%E2%82%AC|.|..|[|]|[::1]|localhost|127.0.0.1|example.org|EXAMPLE|xn--|host|user|0|7\
    |6379|65536|+1|db=3|remote=trust| |ü";

fn any_url() -> impl Strategy<Value = String> {
    let directory =
        vec(prop_oneof![Just("/".to_owned()), part(), any::<String>()], 0..4).prop_map(|path| path.concat());
    let file = (one_of("file:|file:/|file:///"), directory, one_of("||?remote=trust|?"));
    let file = file.prop_map(|(scheme, directory, query)| format!("{scheme}{directory}{query}"));
    prop_oneof![2 => made_of(PIECES), 4 => whole_url(Just(None).boxed()), 1 => file]
}

/// Generates mostly valid URLs with this password.
fn whole_url(password: BoxedStrategy<Option<String>>) -> impl Strategy<Value = String> {
    let user = prop_oneof![part(), Just("user".to_owned())];
    let host = one_of("h|[::1]|10.0.0.1|Example.ORG:80|h:7000|bücher.example|h:0|7");
    let path = vec(prop_oneof![Just("/".to_owned()), one_of("name|1|.").prop_map(str::to_owned), part()], 0..4);
    let names = schemes().filter(|(_, form, _)| form.follows != Follows::Anything).map(|(.., scheme)| scheme.name);
    let scheme = select(names.collect::<Vec<_>>());
    (scheme, option::of(user), password, vec(host, 0..4), path, one_of("||||?db=2|?x|#")).prop_map(
        |(scheme, user, password, hosts, path, query)| {
            let login = match (user, password) {
                (None, None) => String::new(),
                (user, None) => format!("{}@", user.unwrap_or_default()),
                (user, Some(password)) => format!("{}:{password}@", user.unwrap_or_default()),
            };
            let slash = if path.is_empty() { "" } else { "/" };
            format!("{scheme}://{login}{}{slash}{}{query}", hosts.join(","), path.concat())
        },
    )
}

/// Generates any text, encoded for any part of a URL.
fn part() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| encode(&text))
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Returns everything that is ever shown of a URL.
fn shown(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let servers = Location::parse("redis", rest, 1, "").map(|location| {
        let server = |address| Server::new(location.scheme, address, &location.login, 1, None);
        let servers: Vec<_> = location.addresses.iter().map(server).collect();
        format!("{} {servers:?} {location:?}", servers.iter().map(ToString::to_string).collect::<String>())
    });
    let target = Target::parse(url).map(|target| {
        // Without certificates, which a scheme with TLS would look for.
        let service = target.place.open(&Options::default(), None);
        format!("{target} {target:?} {service:?}")
    });
    format!("{target:?} {servers:?} {}", without_password(url))
}

#[test]
fn what_is_printed_is_the_same_target() {
    holds(2000, any_url(), |url| {
        if let Ok(target) = Target::parse(&url) {
            let printed = target.to_string();
            prop_assert!(!printed.contains(char::is_control), "{printed:?}");
            // `Debug` shows everything but the password.
            let again = Target::parse(&printed).map(|again| format!("{again:?}"));
            prop_assert_eq!(again, Ok(format!("{target:?}")), "{}", printed);
        }
        Ok(())
    });
}

#[test]
fn nothing_that_is_shown_depends_on_an_encoded_password() {
    let some = any::<String>().prop_filter("no password", |text| !text.is_empty()).prop_map(|text| encode(&text));
    let urls = whole_url(Just(Some("PASSWORD".to_owned())).boxed());
    holds(1000, (urls, some.clone(), some), |(url, one, other)| {
        let (one, other) = (url.replace("PASSWORD", &one), url.replace("PASSWORD", &other));
        prop_assert_eq!(shown(&one), shown(&other));
        Ok(())
    });
}

#[test]
fn not_even_a_wrongly_written_password_is_shown() {
    const SECRET: &str = "x7Qsecret";
    // Often something that looks like a port and a path.
    let before = prop_oneof![2 => made_of(PIECES), 1 => one_of("|7/|6379/x").prop_map(str::to_owned)];
    let raw = (before, made_of(PIECES)).prop_map(|(before, after)| Some(format!("{before}{SECRET}{after}")));
    holds(2000, whole_url(raw.boxed()), |url| is_silent_about(SECRET, &url));
}

fn is_silent_about(secret: &str, url: &str) -> Holds {
    let shown = shown(url).to_ascii_lowercase();
    prop_assert!(!shown.contains(&secret.to_ascii_lowercase()), "{url:?}: {shown}");
    Ok(())
}
