/*!
The records of latches and barriers in a table beside the table of locks: see
[`records`](crate::backend::meeting::records). Each change first locks the row of its latch or barrier, which counts the
changes there, so that a later change has a larger number and sees all earlier ones. A removed record stays for a minute
as an expired one: a late change then finds that it was overtaken.
*/

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::backend::contract::claim::Claim;
use crate::backend::error::Error;
use crate::backend::meeting::Meeting;
use crate::backend::meeting::records::{Moment, Page, Record, Records};
use crate::backend::sql::answers::{self, Look, Row};
use crate::backend::sql::connection::{Connection, Outstanding, Unasked};
use crate::backend::sql::dialect::Dialect;
use crate::backend::sql::link::Said;
use crate::backend::sql::name;
use crate::backend::sql::session::Session;
use crate::backend::sql::table::{Table, Tables};
use crate::backend::sql::turn::{POOLED, Watch};
use crate::clock::Instant;

/// The number of searches for the table: another client may remove it at the same time.
const TRIES: usize = 4;
/// Finds out if the table exists.
const FIND: &str = "SELECT 'found' FROM {record} r WHERE {here} AND r.record = '';\n";
/// The most records that are read: more than there can be parties.
const MOST: usize = 10_000;

/// The parameters of a request about records.
#[derive(Clone, Copy, Debug, Default)]
struct Request<'a> {
    /// The name of a record.
    name: &'a str,
    text: &'a str,
    life: Duration,
    seen: Option<Moment>,
    /// Records with their new texts; empty if a single one is written, of that name.
    records: &'a [Record],
    /// The number of records to read at most.
    most: usize,
}

/// The latch or barrier to which the records belong.
#[derive(Debug)]
struct RecordPlace {
    /// The name of the lock's row beside which they are kept.
    name: String,
    /// The kind: `latch` or `barrier`.
    what: &'static str,
}

impl RecordPlace {
    /// Returns these statements for `request`, each as its own transaction.
    fn requests<D: Dialect>(&self, statements: &D, texts: &[&str], request: &Request<'_>) -> String {
        let filled = |text: &&&str| statements.request(text, &|place| self.value::<D>(statements, place, request));
        texts.iter().filter(|text| !text.is_empty()).map(|text| filled(&text)).collect()
    }

    /// Returns the value of this placeholder in a statement.
    fn value<D: Dialect>(&self, statements: &D, place: &str, request: &Request<'_>) -> Option<String> {
        let literal = D::LOOKS.literal;
        let Request { name, text, life, seen, records, most } = request;
        let key = |name: &str| literal(&kept_as(name));
        Some(match place {
            "what" => literal(self.what),
            "here" => format!("r.name = {} AND r.what = {}", literal(&self.name), literal(self.what)),
            "key" => key(name),
            "content" => literal(text),
            "life" => life.as_millis().to_string(),
            "from" => (D::RECORDS.at)(seen.map(|seen| seen.micros)),
            "seen" => seen.map_or(i64::MAX, |seen| seen.version).to_string(),
            "channel" => self.channel(statements.table()),
            "most" => (*most).min(MOST).to_string(),
            "keys" if records.is_empty() => key(name),
            "keys" => records.iter().map(|record| key(&record.name)).collect::<Vec<_>>().join(", "),
            "cases" => {
                let case = |record: &Record| format!("WHEN {} THEN {}", key(&record.name), literal(&record.text));
                records.iter().map(case).collect::<Vec<_>>().join(" ") + " "
            }
            "count" => records.len().max(1).to_string(),
            _ => return None,
        })
    }

    /// Returns the channel on which changes are announced.
    fn channel(&self, table: &Table) -> String {
        let digest = Sha256::digest(format!("{}\0{}\0{}", table.record(), self.what, self.name));
        digest.iter().take(16).fold("dlock_".to_owned(), |channel, byte| channel + &format!("{byte:02x}"))
    }
}

/// Returns the name of a record in the table. It ends in a dot, because some databases ignore a space at the end.
fn kept_as(name: &str) -> String {
    format!("{name}.")
}

/// The records of one latch or barrier, for one dlock.
#[derive(Debug)]
pub(super) struct SqlRecords<D: Dialect> {
    meeting: Meeting,
    place: RecordPlace,
    session: Session<D>,
    /// `true` if the table may be missing, as far as is known.
    is_missing: bool,
    /// `true` if something may have been changed.
    has_changed: bool,
    /// `true` if notifications are known not to arrive.
    is_poll_only: bool,
    /// The last change that was seen, and the time of the look that first saw it.
    last: (Moment, Instant),
}

impl<D: Dialect> SqlRecords<D> {
    /// Creates the records of a latch or barrier (`what`) on this connection, which need not be made yet.
    pub(super) fn new(meeting: Meeting, what: &'static str, connection: Connection<D::Link>) -> Self {
        let place = RecordPlace { name: name::row(&meeting.namespace, &meeting.key), what };
        let session = Session::new(&Claim::like(&meeting), connection);
        Self {
            meeting,
            place,
            session,
            is_missing: true,
            has_changed: false,
            is_poll_only: false,
            last: (Moment::default(), Instant::now()),
        }
    }

    /// Sends these statements. If the table is missing, the next [`Records::connect`] makes it.
    async fn ask(&mut self, texts: &[&str], request: &Request<'_>) -> Result<Vec<Row>, Error> {
        let place = &self.place;
        let text = |statements: &D| place.requests(statements, texts, request);
        let asked = self.session.ask(text, Tables::RECORD, Outstanding::Request).await;
        self.is_missing = matches!(&asked, Err(Unasked::Said(said, _)) if said.is_missing_table());
        self.session.lacks(self.is_missing);
        Ok(asked?)
    }

    /// Makes a change and notifies the others; returns `true` if it was made.
    async fn change(&mut self, text: &str, request: &Request<'_>) -> Result<bool, Error> {
        let of = D::RECORDS;
        let change = format!("{}{text}", of.place);
        self.has_changed = true;
        let rows = self.ask(&[&change, of.made, of.wake], request).await?;
        Ok(answers::of(&rows, "made").is_some())
    }

    /// Reads an answer; `None` if it is malformed.
    fn page(&mut self, rows: &[Row]) -> Option<Page> {
        let [_, version, micros, count, process] = answers::of(rows, "page")?[..] else { return None };
        let moment = Moment { version: version?.parse().ok()?, micros: micros?.parse().ok()? };
        if let Some(process) = process {
            let look = Look { process: Some(process.parse().ok()?), ..Look::default() };
            self.is_poll_only = self.session.connection.is_poll_only(&look);
        }
        let record = |row: &Row| match &row[..] {
            [Some(word), Some(name), Some(text), Some(version), _] if word == "record" => Some(Record {
                name: name.strip_suffix('.')?.to_owned(),
                text: text.clone(),
                version: version.parse().ok()?,
            }),
            _ => None,
        };
        let is_record = |row: &&Row| row.first().is_some_and(|word| word.as_deref() == Some("record"));
        let mut records = rows.iter().filter(is_record).map(record).collect::<Option<Vec<_>>>()?;
        records.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Some(Page { records, count: count?.parse().ok()?, moment })
    }
}

#[async_trait::async_trait(?Send)]
impl<D: Dialect> Records for SqlRecords<D> {
    fn meeting(&self) -> &Meeting {
        &self.meeting
    }

    async fn connect(&mut self) -> Result<(), Error> {
        // Making the table counts as connecting, which may take longer than an answer.
        for _ in 0..TRIES {
            self.session.connect().await?;
            if !self.is_missing {
                return Ok(());
            }
            match self.ask(&[FIND], &Request::default()).await {
                Err(_) if self.is_missing => {}
                found => return found.map(drop),
            }
        }
        Err(self.session.malformed())
    }

    async fn connect_in_order(&mut self) -> Result<(), Error> {
        self.session.connect_in_order().await
    }

    async fn read(&mut self, most: usize) -> Result<Page, Error> {
        let of = D::RECORDS;
        let name = self.meeting.name.clone();
        let request = Request { name: &name, life: self.meeting.lease, most, ..Request::default() };
        self.session.connection.forget_notifications();
        let listens = !self.is_poll_only && !self.session.connection.is_listening();
        let listen = if listens { of.listen } else { "" };
        let rows = self.ask(&[listen, of.extend, of.read], &request).await?;
        if listens {
            self.session.connection.listens();
        }
        let page = self.page(&rows).ok_or_else(|| self.session.malformed())?;
        if page.moment.version != self.last.0.version {
            self.last = (page.moment, Instant::now());
        }
        Ok(page)
    }

    async fn put(&mut self, name: &str, text: &str, life: Duration, seen: Option<Moment>) -> Result<bool, Error> {
        self.change(D::RECORDS.put, &Request { name, text, life, seen, ..Request::default() }).await
    }

    async fn amend(&mut self, records: &[Record], seen: Moment) -> Result<bool, Error> {
        self.change(D::RECORDS.amend, &Request { records, seen: Some(seen), ..Request::default() }).await
    }

    async fn clear(&mut self) -> Result<(), Error> {
        self.ask(&[D::RECORDS.clear, D::RECORDS.wake], &Request::default()).await.map(drop)
    }

    async fn changed(&mut self, at_most: Duration) -> Result<(), Error> {
        let (now, (seen, since)) = (Instant::now(), self.last);
        if D::RECORDS.glance.is_empty() {
            let wait = if self.is_poll_only { at_most.min(POOLED) } else { at_most };
            return self.session.connection.notified(now + wait).await;
        }
        let glance = Request { seen: Some(seen), ..Request::default() };
        let request = self.place.requests(&self.session.statements, &[D::RECORDS.glance], &glance);
        self.session.connection.watched(&Watch::Room { request }, since, now + at_most).await.map(drop)
    }

    /// Removes records that ended long ago. This may wait for another client, or fail: no change may depend on it.
    async fn close(&mut self) {
        if self.has_changed {
            let _ = self.ask(&[D::RECORDS.sweep], &Request::default()).await;
        }
    }
}

/// Asserts that every placeholder of every statement has a value, even if the texts look like placeholders.
#[cfg(test)]
#[track_caller]
pub(crate) fn check<D: Dialect>(table: Table) {
    let claim = Claim::example("dlock", "it's {now}").expect("names");
    let statements = D::new(table, &claim, Duration::from_secs(15));
    let place = RecordPlace { name: "dlock:it's {now}".to_owned(), what: "latch" };
    let of = D::RECORDS;
    let records = [Record { name: "{a}".to_owned(), text: "b'".to_owned(), version: 7 }];
    let seen = Some(Moment { version: 7, micros: 8 });
    for seen in [None, seen] {
        let request =
            Request { name: "{a}", text: "b'", life: Duration::from_secs(1), seen, records: &records, most: 9 };
        for text in [
            of.listen, of.extend, of.read, of.place, of.put, of.amend, of.clear, of.made, of.sweep, of.wake, of.glance,
            FIND,
        ] {
            let sent = place.requests(&statements, &[text], &request);
            let own = ["{a}.", "b'", "dlock:it's {now}"].map(D::LOOKS.literal);
            let sent = own.iter().fold(sent, |sent, own| sent.replace(own, "TEXT"));
            assert!(!sent.contains('{'), "{sent}");
            assert_eq!(sent.contains("COMMIT;"), !text.is_empty(), "{sent}");
        }
    }
}
