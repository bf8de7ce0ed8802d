/*!
The ear of a holder: from its first renewal on it waits, on a connection of its own, on a list that whoever intervenes writes
to. What it hears decides nothing: it is worth another renewal at once. Where it cannot listen, it hears of it at the next
renewal that is due.
*/

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::backend::ErrorKind;
use crate::backend::redis::Server;
use crate::backend::redis::connection::{Connection, Outstanding};
use crate::clock::{Instant, before, sleep_until};

/// How long one wait lasts, and how much later its answer may come.
const WAIT: Duration = Duration::from_secs(60);
const SLACK: Duration = Duration::from_secs(5);
/// How long it rests when it could not listen.
const PAUSE: Duration = Duration::from_secs(5);

/// An ear at one server.
#[derive(Debug)]
pub(in crate::backend) struct Ear {
    server: String,
    heard: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ear {
    /// Listens on this list at `server`.
    fn at(server: Server, list: String) -> Self {
        let heard = Arc::new(Notify::new());
        let (name, told) = (server.to_string(), Arc::clone(&heard));
        let task = tokio::spawn(listen(Connection::new(server), list, told));
        Self { server: name, heard, task }
    }

    /// Resolves when something was heard on this list at `server`, since the last time or from now on. The ear is made when
    /// there is none yet, or one at another server.
    pub(in crate::backend) async fn hear(ear: &mut Option<Self>, server: &Server, list: String) {
        if ear.as_ref().is_none_or(|ear| ear.server != server.to_string()) {
            *ear = Some(Self::at(server.clone(), list));
        }
        match ear {
            Some(ear) => ear.heard.notified().await,
            None => std::future::pending().await,
        }
    }
}

async fn listen(mut connection: Connection, list: String, heard: Arc<Notify>) {
    let mut command = ::redis::cmd("BLPOP");
    command.arg(list).arg(WAIT.as_secs());
    loop {
        let asked = before(Instant::now() + WAIT + SLACK, async {
            connection.connect().await?;
            connection.ask(&command, Outstanding::Blocker).await
        });
        match asked.await {
            Ok(Ok(::redis::Value::Nil)) => {}
            Ok(Ok(_)) => heard.notify_one(),
            // Without the right to wait there, each renewal looks.
            Ok(Err(error)) if error.kind == ErrorKind::Denied => return,
            Ok(Err(_)) | Err(_) => sleep_until(Instant::now() + PAUSE).await,
        }
    }
}
