/*!
Listens on a list, on a connection of its own: a holder for requests to stop, from its first renewal on, and a waiter of
redlock for releases. A message decides nothing: it only causes the next renewal or look at once. Whoever cannot listen
renews or looks when it would have without.
*/

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::backend::error::ErrorKind;
use crate::backend::redis::Server;
use crate::backend::redis::connection::{Connection, Outstanding};
use crate::clock::{Instant, before, sleep_until};

/// The length of one wait, and the extra time for its answer.
const WAIT: Duration = Duration::from_secs(60);
const SLACK: Duration = Duration::from_secs(5);
/// The pause after a failure to listen.
const PAUSE: Duration = Duration::from_secs(5);

/// A listener at one server.
#[derive(Debug)]
pub(in crate::backend) struct Listener {
    server: String,
    wakeups: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    /// Starts to listen on this list at `server`.
    fn at(server: Server, list: String) -> Self {
        let wakeups = Arc::new(Notify::new());
        let (name, told) = (server.to_string(), Arc::clone(&wakeups));
        let task = tokio::spawn(listen(Connection::new(server), list, told));
        Self { server: name, wakeups, task }
    }

    /// Forgets the messages that have arrived.
    pub(in crate::backend) fn forget(&self) {
        let _ = self.wakeups.notified().now_or_never();
    }

    /// Resolves when a message arrives on this list at `server`, or has arrived since the last call. A listener is
    /// started if there is none yet, or only one at another server.
    pub(in crate::backend) async fn hear(listener: &mut Option<Self>, server: &Server, list: String) {
        if listener.as_ref().is_none_or(|listener| listener.server != server.to_string()) {
            *listener = Some(Self::at(server.clone(), list));
        }
        match listener {
            Some(listener) => listener.wakeups.notified().await,
            None => std::future::pending().await,
        }
    }
}

async fn listen(mut connection: Connection, list: String, wakeups: Arc<Notify>) {
    let mut command = ::redis::cmd("BLPOP");
    command.arg(list).arg(WAIT.as_secs());
    loop {
        let asked = before(Instant::now() + WAIT + SLACK, async {
            connection.connect().await?;
            connection.ask(&command, Outstanding::Blocker).await
        });
        match asked.await {
            Ok(Ok(::redis::Value::Nil)) => {}
            Ok(Ok(_)) => wakeups.notify_one(),
            // Without the right to wait there, only renewals and looks notice anything.
            Ok(Err(error)) if error.kind == ErrorKind::Denied => return,
            Ok(Err(_)) | Err(_) => sleep_until(Instant::now() + PAUSE).await,
        }
    }
}
