//! The test's own connection to a server: the client program, asked line by line.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::support::daemon::need;
use crate::support::databases::Session;

/// What ends the answer to each request.
const END: &str = "end of the answer";

/// A connection to the database `locks`.
pub struct Client {
    program: Child,
    requests: ChildStdin,
    answers: BufReader<std::io::PipeReader>,
    is_closed: bool,
}

impl Session for Client {
    const ADMINISTRATOR: &'static str = "root";

    fn connect_as(user: &str, socket: &Path) -> Option<Self> {
        let (answers, end) = std::io::pipe().unwrap();
        let mut command = Command::new(need("mariadb", "mariadb-client"));
        command.args(["--no-defaults", "--connect-timeout=10", "--batch", "--skip-column-names"]);
        command.args(["--unbuffered", "--force", "--skip-reconnect", "--default-character-set=utf8mb4"]);
        command
            .arg(format!("--user={user}"))
            .arg(format!("--socket={}", socket.display()))
            .arg("locks")
            .stdin(Stdio::piped());
        command.stdout(OwnedFd::from(end.try_clone().unwrap())).stderr(OwnedFd::from(end));
        let mut program = command.spawn().unwrap();
        // It has the other end of the pipe too, of which the last one must be gone when the program is.
        drop(command);
        let requests = program.stdin.take().unwrap();
        let mut client = Self { program, requests, answers: BufReader::new(answers), is_closed: false };
        client.query("SELECT 1").ok().map(|_| client)
    }

    fn is_usable(&self) -> bool {
        !self.is_closed
    }

    fn change(&mut self, sql: &str) -> Result<u64, String> {
        let rows = self.query(&format!(
            "{sql};
SELECT ROW_COUNT()"
        ))?;
        Ok(rows[0][0].parse().unwrap())
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, String> {
        // Until it is answered.
        self.is_closed = true;
        let sql = sql.trim_end().trim_end_matches(';');
        writeln!(self.requests, "{sql}\n;\nSELECT '{END}';").map_err(|_| "no connection".to_owned())?;
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line).map_err(|error| error.to_string())? == 0 {
                return Err(error.unwrap_or_else(|| "no connection".to_owned()));
            }
            let line = line.trim_end_matches('\n');
            match line.strip_prefix("ERROR ") {
                _ if line == END => {
                    self.is_closed = false;
                    return error.map_or(Ok(rows), Err);
                }
                Some(said) => error = error.or_else(|| Some(said.to_owned())),
                None if line.starts_with("------") || (line.is_empty() && error.is_some()) => {}
                None => rows.push(line.split('\t').map(str::to_owned).collect()),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
