/*!
Checks that the servers of a URL belong to one ensemble: two holders that reach different ones would each have their own
lock.

Each server lists the members of its ensemble in `/zookeeper/config`. If the server in use lists another one by its host
in the URL, that is proof enough; else the other one is asked too, in a session that is closed at once. Servers that do
not answer soon are skipped.
*/

use std::io;
use std::time::Duration;

use ::zookeeper_client::Client;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::backend::error::Error;
use crate::backend::net::race::round;
use crate::backend::net::wire::Address;
use crate::backend::zookeeper::configuration::Configuration;
use crate::backend::zookeeper::ensemble::Ensemble;
use crate::backend::zookeeper::errors;
use crate::backend::zookeeper::frames;
use crate::clock::{Instant, before};

/// The time that the server in use, and then all others together, have to answer, in addition to twice the time that it
/// took to open our session; and the limit of the sum, as all this is part of the first contact.
const TIMEOUT: Duration = Duration::from_millis(250);
const MAX_TIMEOUT: Duration = Duration::from_millis(750);
/// The length of a session that only asks: if it is not closed, it is over soon.
const SESSION: Duration = Duration::from_secs(1);
/// A server numbers its sessions consecutively, starting from its start time in milliseconds times this number. That
/// identifies a standalone server, whatever its name is.
const IDS_OF_ONE_MILLISECOND: u64 = 1 << 16;

/// The answers of one server.
#[derive(Clone, Debug)]
struct Answers {
    /// The index of its address in the location.
    place: usize,
    /// The id of a session that it created.
    session: i64,
    configuration: Configuration,
}

impl Answers {
    /// Returns `true` if the two cannot belong to one ensemble.
    fn is_stranger_to(&self, other: &Self) -> bool {
        if self.configuration.is_of_one() && other.configuration.is_of_one() {
            return self.session.abs_diff(other.session) >= IDS_OF_ONE_MILLISECOND;
        }
        self.configuration.excludes(&other.configuration)
    }
}

/// Fails if a server of the URL shows that it belongs to another ensemble than the server in use, to which `client` is
/// connected; `opened` is the time that it took to open that session.
pub(super) async fn one_ensemble(ensemble: &Ensemble, client: &Client, opened: Duration) -> Result<(), Error> {
    let addresses = &ensemble.location().addresses;
    if addresses.len() == 1 {
        return Ok(());
    }
    let timeout = (TIMEOUT + opened * 2).min(MAX_TIMEOUT);
    let Ok(Ok((text, _))) = before(Instant::now() + timeout, client.get_config()).await else { return Ok(()) };
    let Some(configuration) = Configuration::read(&text) else { return Ok(()) };
    let used = Answers { place: ensemble.in_use(), session: client.session_id().0, configuration };
    let mut asked: FuturesUnordered<_> = round(addresses.len(), used.place)
        .skip(1)
        .filter(|&place| !is_proven(&used.configuration, addresses, place))
        .map(|place| ask(ensemble, place))
        .collect();
    let deadline = Instant::now() + timeout;
    while let Ok(Some(told)) = before(deadline, asked.next()).await {
        if let Ok(told) = told
            && told.is_stranger_to(&used)
        {
            return Err(errors::two_clusters(&addresses[used.place], &addresses[told.place]));
        }
    }
    Ok(())
}

/// Returns `true` if `configuration` names this server by its host, which no other server of the URL is on.
fn is_proven(configuration: &Configuration, addresses: &[Address], place: usize) -> bool {
    let host = |address: &Address| match address {
        Address::Tcp(host, _) => host.to_ascii_lowercase(),
        Address::Unix(_) => String::new(),
    };
    let own = host(&addresses[place]);
    addresses.iter().filter(|address| host(address) == own).count() == 1 && configuration.names(&own)
}

/// Asks one server for its configuration.
async fn ask(ensemble: &Ensemble, place: usize) -> io::Result<Answers> {
    let odd = || io::Error::from(io::ErrorKind::InvalidData);
    let mut wire = ensemble.dial_at(place).await.map_err(|error| io::Error::other(error.to_string()))?;
    wire.write_all(&frames::connect(SESSION)).await?;
    wire.flush().await?;
    let welcome = frames::read(&mut wire).await?.ok_or_else(odd)?;
    frames::welcome(&welcome)?;
    let session = frames::session(&welcome).ok_or_else(odd)?;
    wire.write_all(&frames::read_configuration()).await?;
    wire.flush().await?;
    let answer = frames::read(&mut wire).await?.ok_or_else(odd)?;
    let configuration = frames::data(&answer).and_then(Configuration::read).ok_or_else(odd)?;
    wire.write_all(&frames::close()).await?;
    wire.flush().await?;
    // The server ends the connection when it has ended the session.
    let _ = wire.read(&mut [0; 64]).await;
    Ok(Answers { place, session, configuration })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(session: i64, text: &str) -> Answers {
        Answers { place: 0, session, configuration: Configuration::read(text.as_bytes()).expect("a configuration") }
    }

    #[test]
    fn servers_that_work_alone_are_told_apart_by_their_sessions() {
        let (first, later) = (0x0001_7989_90ab_0000, 0x0001_7989_90ac_0000);
        for (one, other, strangers) in [
            (told(first, ""), told(first + 7, ""), false),
            (told(first, ""), told(later, ""), true),
            (told(first, ""), told(later, "server.1=a:1:2"), true),
            (told(first, "server.1=a:1:2"), told(later, "server.1=a:1:2"), false),
            (told(i64::MIN, ""), told(i64::MAX, ""), true),
        ] {
            assert_eq!(one.is_stranger_to(&other), strangers, "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_host_that_the_url_names_twice_proves_nothing() {
        let settings = Configuration::read(b"server.1=a:1:2\nserver.2=b:1:2").expect("a configuration");
        let tcp = |host: &str, port| Address::Tcp(host.to_owned(), port);
        let urls = [tcp("a", 1), tcp("b", 1), tcp("c", 1), tcp("A", 2)];
        assert_eq!([0, 1, 2, 3].map(|place| is_proven(&settings, &urls, place)), [false, true, false, false]);
    }
}
