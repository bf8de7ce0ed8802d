//! The records of latches and barriers on a real server, a step at a time.

use std::time::Duration;

use crate::backend::contract::service::{Options, Service};
use crate::backend::meeting::Meeting;
use crate::backend::meeting::records::{Moment, Page, Record, Records};
use crate::backend::survey::Kind;
use crate::backend::url::Target;
use crate::holder::Owner;
use crate::key::{Key, Namespace};
use crate::support::service::Service as Servers;

const MINUTE: Duration = Duration::from_secs(60);
/// Number of tries to write where nothing was before.
const TRIES: usize = 9;

/// One dlock with access to the records, and the moment of its last look.
struct Party(Box<dyn Records>, Moment);

impl Party {
    async fn new(service: &dyn Service, kind: Kind, name: &str) -> Self {
        let meeting = Meeting {
            key: Key::parse("k".as_ref()).expect("a key"),
            namespace: Namespace::parse("dlock").expect("a namespace"),
            id: Owner::random().expect("random"),
            name: name.to_owned(),
            lease: MINUTE,
        };
        let mut records = service.records(meeting, kind).expect("records");
        records.connect().await.expect("a connection");
        Self(records, Moment::default())
    }

    async fn look(&mut self) -> Page {
        let page = self.0.read(usize::MAX).await.expect("read");
        self.1 = page.moment;
        page
    }

    /// The records as text: `a=1 b=2`.
    async fn sees(&mut self) -> String {
        let page = self.look().await;
        assert_eq!(page.count, page.records.len() as u64);
        let words: Vec<String> =
            page.records.iter().map(|Record { name, text, .. }| format!("{name}={text}")).collect();
        words.join(" ")
    }

    /// Writes what depends on the last look.
    async fn writes(&mut self, name: &str, text: &str) -> bool {
        self.0.put(name, text, MINUTE, Some(self.1)).await.expect("answered")
    }

    async fn removes(&mut self, name: &str) -> bool {
        self.0.put(name, "", Duration::ZERO, Some(self.1)).await.expect("answered")
    }

    async fn amends(&mut self, seen: &Page, text: &str) -> bool {
        let amended = |record: &Record| Record { text: text.to_owned(), ..record.clone() };
        let records: Vec<Record> = seen.records.iter().map(amended).collect();
        self.0.amend(&records, seen.moment).await.expect("answered")
    }

    /// Looks and writes until it is done.
    async fn comes(&mut self, name: &str, text: &str) {
        for _ in 0..TRIES {
            self.look().await;
            if self.writes(name, text).await {
                return;
            }
        }
        panic!("it is not written");
    }
}

async fn marks(service: &dyn Service) {
    let party = |name| Party::new(service, Kind::Barrier, name);
    let (mut one, mut newer, mut other, mut late) =
        (party("a").await, party("a").await, party("b").await, party("a").await);
    assert_eq!(one.sees().await, "");
    one.comes("a", "1").await;
    // Another name does not get in the way.
    newer.look().await;
    other.comes("b", "1").await;
    late.look().await;
    assert!(newer.writes("a", "2").await, "nobody was faster");
    assert!(!late.writes("a", "3").await, "written since it was seen");
    assert_eq!(one.sees().await, "a=2 b=1");

    // Nor when a record is removed.
    other.look().await;
    let mut third = party("c").await;
    third.comes("c", "1").await;
    assert!(other.removes("b").await, "of what it has written, nothing has changed");
    third.look().await;
    assert!(third.removes("c").await);
    other.comes("b", "1").await;

    let seen = other.look().await;
    late.comes("a", "4").await;
    assert!(!other.amends(&seen, "5").await, "one of them has been replaced");
    assert_eq!(other.sees().await, "a=4 b=1");
    let seen = other.look().await;
    assert!(other.amends(&seen, "6").await);
    assert_eq!(one.sees().await, "a=6 b=6");

    assert!(!late.removes("a").await, "changed since it was seen");
    late.look().await;
    assert!(late.removes("a").await);
    let seen = other.look().await;
    assert_eq!(seen.records.len(), 1);
    assert!(other.removes("b").await);
    assert!(!other.amends(&seen, "7").await, "it is gone");
    assert_eq!(one.sees().await, "");
    for mut party in [one, newer, other, late] {
        party.0.close().await;
    }
}

async fn arrivals(service: &dyn Service) {
    let party = |name| Party::new(service, Kind::Latch, name);
    let (mut one, mut other) = (party("a").await, party("b").await);
    assert!(one.0.put("nb", "", MINUTE, None).await.expect("answered"));
    for (name, text) in [("na", ""), ("f", "red"), ("na", "")] {
        assert!(other.0.put(name, text, MINUTE, None).await.expect("answered"));
    }
    assert_eq!(one.sees().await, "f=red na= nb=");
    // A record stays when its dlock ends.
    let mut third = party("c").await;
    assert!(third.0.put("f", "blue", MINUTE, None).await.expect("answered"));
    third.0.close().await;
    assert_eq!(one.sees().await, "f=blue na= nb=");
    let first = one.0.read(2).await.expect("read");
    assert_eq!((first.count, first.records.len(), first.records[1].name.as_str()), (3, 2, "na"));
    one.0.clear().await.expect("cleared");
    assert_eq!(other.sees().await, "");
    for mut party in [one, other] {
        party.0.close().await;
    }
}

/// Plays both kinds on these servers.
fn agree<S: Servers>() {
    let servers = S::fresh();
    let service = Target::parse(&servers.url()).expect("a URL").open(&Options::default()).expect("a service");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        marks(&*service).await;
        arrivals(&*service).await;
    });
}

macro_rules! keeps_records {
    ($($service:ident: $servers:ty;)*) => {
        $(mod $service {
            #[test]
            fn records_are_changed_all_or_nothing() {
                super::agree::<$servers>();
            }
        })*
    };
}

keeps_records! {
    file: crate::support::service::FileService;
    etcd: crate::support::service::EtcdService;
    zookeeper: crate::support::service::ZooKeeperService;
    postgres: crate::support::database_services::PostgresService;
    mysql: crate::support::database_services::MysqlService;
}
