//! The test's own connection to a server.

use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use crate::support::databases::Session;

/// How long a server may take to answer one request of the test itself.
const ANSWER: Duration = Duration::from_secs(10);

/// A connection to the database `postgres`.
pub struct Client {
    runtime: Runtime,
    client: tokio_postgres::Client,
}

impl Session for Client {
    const ADMINISTRATOR: &'static str = "postgres";

    fn connect_as(user: &str, socket: &Path) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let stream = UnixStream::connect(socket).await.ok()?;
            let mut config = Config::new();
            config.user(user).dbname("postgres").application_name("test");
            config.ssl_mode(tokio_postgres::config::SslMode::Disable);
            let connected = tokio::time::timeout(ANSWER, config.connect_raw(stream, NoTls)).await.ok()?;
            let (client, connection) = connected.ok()?;
            tokio::spawn(connection);
            Some(client)
        })?;
        Some(Self { runtime, client })
    }

    fn is_usable(&self) -> bool {
        !self.client.is_closed()
    }

    fn change(&mut self, sql: &str) -> Result<u64, String> {
        let messages = self.ask(sql)?;
        let changed = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::CommandComplete(rows) => *rows,
            _ => 0,
        };
        Ok(messages.iter().map(changed).sum())
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, String> {
        let messages = self.ask(sql)?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|index| row.get(index).unwrap_or("NULL").to_owned()).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }
}

impl Client {
    fn ask(&self, sql: &str) -> Result<Vec<SimpleQueryMessage>, String> {
        let answered = async { tokio::time::timeout(ANSWER, self.client.simple_query(sql)).await };
        let answered = self.runtime.block_on(answered).map_err(|_| "no answer".to_owned())?;
        answered.map_err(|error| match error.as_db_error() {
            Some(said) => format!("{} {}", said.code().code(), said.message()),
            None => error.to_string(),
        })
    }
}
