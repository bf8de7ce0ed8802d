/*!
That the fault tools do what they say: a tool that quietly does nothing would turn every test that uses it green.
*/

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::rendezvous::eventually;

/// How long we listen for what must not come. A tool that fails to hold something back delivers it in a millisecond.
const A_MOMENT: Duration = Duration::from_millis(100);

/// A server that returns what it gets, on a port of its own, until it is dropped.
struct Echo {
    port: u16,
    listener: Arc<TcpListener>,
    heard: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start() -> Echo {
        let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(AtomicU64::new(0));
        let thread = std::thread::spawn({
            let (listener, heard) = (Arc::clone(&listener), Arc::clone(&heard));
            move || {
                while let Ok((stream, _)) = listener.accept() {
                    let heard = Arc::clone(&heard);
                    std::thread::spawn(move || {
                        let mut buffer = [0; 1024];
                        while let Ok(n @ 1..) = (&stream).read(&mut buffer) {
                            heard.fetch_add(n as u64, Ordering::SeqCst);
                            if (&stream).write_all(&buffer[..n]).is_err() {
                                break;
                            }
                        }
                    });
                }
            }
        });
        Echo { port, listener, heard, thread: Some(thread) }
    }

    fn heard(&self) -> u64 {
        self.heard.load(Ordering::SeqCst)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        use std::os::fd::AsRawFd;
        let _ = nix::sys::socket::shutdown(self.listener.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Panics unless something is there within 30 s whenever it reads.
fn client(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn say(mut stream: &TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
}

/// One read. A read with a time-out is interrupted by the SIGCHLD of any child whose starter is just starting another.
fn hear(mut stream: &TcpStream, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[track_caller]
fn assert_hears(mut stream: &TcpStream, text: &str) {
    let mut buffer = vec![0; text.len()];
    stream.read_exact(&mut buffer).unwrap();
    assert_eq!(String::from_utf8_lossy(&buffer), text);
}

#[track_caller]
fn assert_hears_nothing(stream: &TcpStream) {
    stream.set_read_timeout(Some(A_MOMENT)).unwrap();
    let result = hear(stream, &mut [0]);
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[track_caller]
fn assert_reset(stream: &TcpStream) {
    assert_eq!(hear(stream, &mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[track_caller]
fn assert_panics(what: &str, act: impl FnOnce()) {
    let payload = catch_unwind(AssertUnwindSafe(act)).expect_err("it should have been caught");
    let message = payload.downcast_ref::<String>().expect("a message");
    assert!(message.contains(what), "{message}");
}

mod proxy {
    use super::*;
    use crate::support::proxy::{Counts, Mode, Proxy};

    #[test]
    fn forward_passes_everything_and_counts_it() {
        let (echo, proxy) = start();
        let one = client(proxy.port());
        say(&one, "hello");
        assert_hears(&one, "hello");
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(hear(&one, &mut [0]).unwrap(), 0);
        eventually("the connection to be over", || (proxy.counts().open == 0).then_some(()));
        let counts = Counts { accepted: 1, requests: 5, replies: 5, ..Counts::default() };
        assert_eq!((proxy.counts(), echo.heard()), (counts, 5));
    }

    #[test]
    fn silent_swallows_both_ways_on_open_and_on_new_connections() {
        let (echo, proxy) = start();
        let old = client(proxy.port());
        say(&old, "a");
        assert_hears(&old, "a");
        proxy.set(Mode::Silent);
        let new = client(proxy.port());
        say(&old, "bb");
        say(&new, "ccc");
        eventually("the loss of five bytes", || (proxy.counts().lost_requests == 5).then_some(()));
        assert_hears_nothing(&old);
        assert_hears_nothing(&new);
        // The end of a stream is swallowed as well.
        old.shutdown(Shutdown::Write).unwrap();
        assert_hears_nothing(&old);
        assert_eq!((echo.heard(), proxy.counts().open), (1, 2));
    }

    #[test]
    fn a_hole_in_a_stream_is_never_followed_by_a_byte() {
        let (_echo, proxy) = start();
        let (torn, whole) = (client(proxy.port()), client(proxy.port()));
        proxy.set(Mode::Silent);
        say(&torn, "lost");
        eventually("the loss", || (proxy.counts().lost_requests == 4).then_some(()));
        proxy.set(Mode::Forward);
        assert_hears_nothing(&torn);
        say(&torn, "more");
        assert_reset(&torn);
        say(&whole, "fine");
        assert_hears(&whole, "fine");
    }

    #[test]
    fn drop_replies_lets_requests_through() {
        let (echo, proxy) = start();
        let one = client(proxy.port());
        proxy.set(Mode::DropReplies);
        say(&one, "hello");
        eventually("the loss of the reply", || (proxy.counts().lost_replies == 5).then_some(()));
        assert_eq!(echo.heard(), 5);
        assert_hears_nothing(&one);
    }

    #[test]
    fn drop_requests_lets_replies_through() {
        let (echo, proxy) = start();
        let one = client(proxy.port());
        proxy.set(Mode::Delay(A_MOMENT));
        say(&one, "a");
        eventually("the request", || (echo.heard() == 1).then_some(()));
        // The reply is under way and must still come, the next request must not.
        proxy.set(Mode::DropRequests);
        say(&one, "b");
        assert_hears(&one, "a");
        eventually("the loss of the request", || (proxy.counts().lost_requests == 1).then_some(()));
        assert_eq!(echo.heard(), 1);
    }

    #[test]
    fn hold_delivers_everything_late() {
        let (echo, proxy) = start();
        let one = client(proxy.port());
        proxy.set(Mode::Hold);
        say(&one, "hello");
        assert_hears_nothing(&one);
        assert_eq!(echo.heard(), 0);
        proxy.set(Mode::Forward);
        assert_hears(&one, "hello");
    }

    #[test]
    fn refuse_closes_and_refuses_and_comes_back_on_the_same_port() {
        let (_echo, proxy) = start();
        let one = client(proxy.port());
        say(&one, "a");
        assert_hears(&one, "a");
        for _ in 0..3 {
            proxy.set(Mode::Refuse);
            let error = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(matches!(hear(&one, &mut [0]), Ok(0) | Err(_)));
            proxy.set(Mode::Forward);
            let two = client(proxy.port());
            say(&two, "b");
            assert_hears(&two, "b");
        }
    }

    #[test]
    fn reset_resets_open_and_new_connections() {
        let (_echo, proxy) = start();
        let old = client(proxy.port());
        say(&old, "a");
        assert_hears(&old, "a");
        proxy.set(Mode::Reset);
        assert_reset(&old);
        match TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())) {
            Ok(new) => assert_reset(&new),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        assert_eq!(proxy.counts().open, 0);
    }

    #[test]
    fn drip_gives_one_byte_at_a_time() {
        let (echo, proxy) = start();
        let one = client(proxy.port());
        proxy.set(Mode::Drip(Duration::from_millis(20)));
        let start = Instant::now();
        say(&one, "hello");
        eventually("the whole request", || (echo.heard() == 5).then_some(()));
        // Not earlier, each of them, is all that can be seen from here: a late reader finds several.
        for (n, byte) in (1..).zip(["h", "e", "l", "l", "o"]) {
            assert_hears(&one, byte);
            assert!(start.elapsed() >= Duration::from_millis(20 * n));
        }
        // What is on its way passes at once when the drip ends.
        proxy.set(Mode::Drip(Duration::from_secs(3600)));
        say(&one, "world");
        eventually("the whole request", || (echo.heard() == 10).then_some(()));
        assert_hears_nothing(&one);
        proxy.set(Mode::Forward);
        assert_hears(&one, "world");
    }

    #[test]
    fn delay_delays_both_ways() {
        let (_echo, proxy) = start();
        let one = client(proxy.port());
        proxy.set(Mode::Delay(Duration::from_millis(60)));
        let start = Instant::now();
        say(&one, "hello");
        assert_hears(&one, "hello");
        assert!(start.elapsed() >= Duration::from_millis(120));
    }

    #[test]
    fn cut_reply_lets_n_bytes_through_on_each_connection() {
        let (_echo, proxy) = start();
        let (one, two) = (client(proxy.port()), client(proxy.port()));
        say(&one, "whole");
        assert_hears(&one, "whole");
        proxy.set(Mode::CutReplyAfter(3));
        say(&one, "he");
        assert_hears(&one, "he");
        say(&one, "llo");
        say(&two, "world");
        assert_hears(&one, "l");
        assert_hears(&two, "wor");
        eventually("the loss of the rest", || (proxy.counts().lost_replies == 4).then_some(()));
        assert_hears_nothing(&one);
        assert_hears_nothing(&two);
    }

    #[test]
    fn a_client_of_a_dead_server_is_reset() {
        let proxy = Proxy::to({
            // Its port is free again, and was somebody's a moment ago.
            let echo = Echo::start();
            echo.port
        });
        assert_reset(&client(proxy.port()));
    }

    #[test]
    fn dropping_it_closes_everything() {
        let (_echo, proxy) = start();
        let (one, port) = (client(proxy.port()), proxy.port());
        proxy.set(Mode::Silent);
        drop(proxy);
        assert!(matches!(hear(&one, &mut [0]), Ok(0) | Err(_)));
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    }

    fn start() -> (Echo, Proxy) {
        let echo = Echo::start();
        let proxy = Proxy::to(echo.port);
        (echo, proxy)
    }
}

mod hostile {
    use super::*;
    use crate::support::proxy::{Behaviour, Hostile};

    const PING: &str = "*1\r\n$4\r\nPING\r\n";

    #[test]
    fn huge_bulk_announces_the_impossible_and_goes_on() {
        assert_floods(Behaviour::HugeBulk, "$9223372036854775807\r\nxxxx");
    }

    #[test]
    fn huge_array_announces_too_much_and_goes_on() {
        assert_floods(Behaviour::HugeArray, "*2147483647\r\n:1\r\n:1\r\n");
    }

    #[test]
    fn endless_line_has_no_end() {
        assert_floods(Behaviour::EndlessLine, "+xxxxxxxx");
    }

    #[test]
    fn garbage_differs_between_connections_and_not_between_runs() {
        let noise = || {
            let server = Hostile::start(Behaviour::Garbage);
            [(); 2].map(|()| {
                let one = client(server.port());
                say(&one, PING);
                let mut bytes = [0; 4096];
                (&one).read_exact(&mut bytes).unwrap();
                bytes
            })
        };
        let (first, second) = (noise(), noise());
        assert_eq!(first, second);
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn half_reply_stops_in_the_middle() {
        let (_server, one) = ask(Behaviour::HalfReply, PING);
        assert_hears(&one, "$10\r\nhello");
        assert_hears_nothing(&one);
    }

    #[test]
    fn silence_takes_everything_and_says_nothing() {
        let (server, one) = ask(Behaviour::Silence, PING);
        eventually("the request", || (server.received() == PING.len() as u64).then_some(()));
        assert_hears_nothing(&one);
        assert_eq!((server.connections(), server.sent()), (1, 0));
    }

    #[test]
    fn http_is_not_redis() {
        let (_server, one) = ask(Behaviour::Http, PING);
        let mut reply = String::new();
        (&one).read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{reply}");
    }

    #[test]
    fn close_at_once_closes_at_once() {
        let server = Hostile::start(Behaviour::CloseAtOnce);
        for n in 1..=3 {
            assert_eq!(hear(&client(server.port()), &mut [0]).unwrap(), 0);
            assert_eq!(server.connections(), n);
        }
    }

    #[test]
    fn deep_nesting_is_deep() {
        let (_server, one) = ask(Behaviour::DeepNesting, PING);
        assert_hears(&one, &("*1\r\n".repeat(100_000) + ":1\r\n"));
    }

    #[test]
    fn wrong_types_answers_each_command_once_and_wrongly() {
        let get = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        let eval = "*3\r\n$4\r\nEVAL\r\n$9\r\nreturn\r\n1\r\n$1\r\n0\r\n";
        let select = "*2\r\n$6\r\nselect\r\n$1\r\n0\r\n";
        let (server, one) = ask(Behaviour::WrongTypes, &[select, get, eval, eval, PING].concat());
        assert_hears(&one, "+OK\r\n:-7\r\n:-7\r\n$8\r\nsurprise\r\n:-7\r\n");
        // A command in two pieces is one command.
        say(&one, &get[..9]);
        eventually("the first piece", || (server.received() % 100 != 0).then_some(()));
        assert_hears_nothing(&one);
        say(&one, &get[9..]);
        assert_hears(&one, ":-7\r\n");
    }

    fn ask(behaviour: Behaviour, request: &str) -> (Hostile, TcpStream) {
        let server = Hostile::start(behaviour);
        let one = client(server.port());
        say(&one, request);
        (server, one)
    }

    #[track_caller]
    fn assert_floods(behaviour: Behaviour, beginning: &str) {
        let (server, one) = ask(behaviour, PING);
        assert_hears(&one, beginning);
        let mut buffer = vec![0; 1 << 20];
        for _ in 0..8 {
            (&one).read_exact(&mut buffer).unwrap();
        }
        assert!(server.sent() > 8 << 20);
        // It stops while it is still sending.
        drop(server);
    }
}

mod pty {
    use super::*;
    use crate::support::pty::{PROMPT, Pty, bash};
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::{Pid, getpgid};

    #[test]
    fn it_is_a_terminal_of_a_given_size() {
        let terminal = Pty::spawn(&mut bash());
        terminal.expect(PROMPT);
        terminal.send("test -t 0 && test -t 1 && test -t 2 && echo y''es; stty size\n");
        terminal.expect("yes");
        terminal.expect("40 240");
        terminal.expect(PROMPT);
        terminal.resize(24, 80);
        terminal.send("stty size\n");
        terminal.expect("24 80");
        assert!(terminal.screen().contains("40 240"));
    }

    #[test]
    fn ctrl_c_reaches_the_whole_foreground_group_and_not_the_shell() {
        let terminal = Pty::spawn(&mut bash());
        terminal.expect(PROMPT);
        let up = up();
        terminal.send(&format!("tail -f {0} >/dev/tty | tail -f {0}\n", up.path().display()));
        terminal.expect("up\r\n");
        terminal.expect("up\r\n");
        assert_ne!(terminal.foreground(), terminal.pid());
        terminal.send_key('c');
        terminal.expect(PROMPT);
        terminal.send("echo \"${PIPESTATUS[@]}\"; exit 5\n");
        terminal.expect("130 130");
        assert_eq!(terminal.wait().code(), Some(5));
        assert!(terminal.hang_up().contains("exit"));
    }

    #[test]
    fn a_death_by_signal_is_reported_as_one() {
        let up = up();
        let terminal = Pty::spawn(Command::new("tail").arg("-f").arg(up.path()));
        terminal.expect("up");
        terminal.send_key('\\');
        assert_eq!(terminal.wait().signal(), Some(3));
        // Again the same: it is not gone before the terminal is.
        assert_eq!(terminal.wait().signal(), Some(3));
    }

    #[test]
    fn job_control_works() {
        let terminal = Pty::spawn(&mut bash());
        terminal.expect(PROMPT);
        let up = up();
        terminal.send(&format!("cat {} -\n", up.path().display()));
        terminal.expect("up\r\n");
        let job = terminal.foreground();
        assert_ne!(job, terminal.pid());
        terminal.send_key('z');
        terminal.expect("Stopped");
        terminal.expect(PROMPT);
        assert_eq!(terminal.foreground(), terminal.pid());
        terminal.send("fg\n");
        eventually("cat in the foreground again", || (terminal.foreground() == job).then_some(()));
        terminal.send("back\n");
        terminal.expect("back\r\n");
        terminal.expect("back\r\n");
        terminal.send_key('d');
        terminal.expect(PROMPT);
    }

    #[test]
    fn a_missing_text_is_reported_with_the_screen() {
        let terminal = Pty::spawn(Command::new("sh").args(["-c", "echo something else"]));
        assert_panics("something else", || drop(terminal.expect("what never comes")));
    }

    #[test]
    fn dropping_it_kills_everything_on_it_and_below_it() {
        let terminal = Pty::spawn(&mut bash());
        terminal.expect(PROMPT);
        // One in another process group, one in another session and without a parent, one that only has no parent.
        let pids = [
            "sleep 1000 & echo pid''=$!.",
            "setsid sh -c 'echo pid\"\"=$$.; exec sleep 1000' &",
            "sh -c 'nohup sleep 1000 >/dev/null 2>&1 & echo pid\"\"=$!.'",
        ]
        .map(|line| {
            terminal.send(&format!("{line}\n"));
            terminal.expect("pid=");
            Pid::from_raw(terminal.expect(".").trim_end_matches('.').parse().unwrap())
        });
        assert!(pids.iter().all(|pid| kill(*pid, None).is_ok()));
        assert_eq!(getpgid(Some(terminal.pid())).unwrap(), terminal.pid());
        let status = {
            kill(terminal.pid(), Signal::SIGSTOP).unwrap();
            drop(terminal);
            pids.map(is_gone)
        };
        assert_eq!(status, [true; 3]);
    }

    /// A file that makes a program say `up`: only then it has its own dispositions of signals. A shell that is about to
    /// become that program may still catch a Ctrl-C, or ignore a Ctrl-Z.
    fn up() -> tempfile::NamedTempFile {
        let mut file = tempfile::Builder::new().prefix("says-").tempfile().unwrap();
        file.write_all(b"up\n").unwrap();
        file
    }

    /// A zombie counts: whoever inherits it may take its time.
    fn is_gone(pid: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    }
}

mod witness {
    use super::*;
    use crate::support::witness::{OVERLAP_CODE, Witness, read_counter};
    use nix::time::{ClockId, clock_gettime};

    #[test]
    fn sections_are_recorded_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let witness = Witness::in_dir(dir.path());
        assert_eq!(witness.check(), []);
        let before = now();
        for (token, work, code) in [(7, "true", 0), (8, "exit 3", 3), (20, "test \"$DLOCK_TOKEN\" = 20", 0)] {
            assert_eq!(start(&witness.command(work), token).wait().unwrap().code(), Some(code));
        }
        let after = now();
        let sections = witness.check();
        assert_eq!(sections.iter().map(|section| section.token).collect::<Vec<_>>(), [7, 8, 20]);
        let mut last = before - crate::support::witness::RESOLUTION_NS;
        for section in sections {
            let end = section.end.expect("an end");
            assert!(last <= section.start && section.start <= end, "{section:?}");
            last = end;
        }
        assert!(last <= after);
    }

    #[test]
    fn an_overlap_is_caught() {
        let dir = tempfile::tempdir().unwrap();
        let witness = Witness::in_dir(dir.path());
        let mut first = start(&witness.command("read line"), 1);
        eventually("the first section", || witness.log().contains("start 1 ").then_some(()));
        let second = start(&witness.command("echo did it"), 2).wait_with_output().unwrap();
        assert_eq!((second.status.code(), second.stdout), (Some(OVERLAP_CODE), Vec::new()));
        drop(first.stdin.take());
        first.wait().unwrap();
        assert_panics("two commands ran at the same time", || drop(witness.check()));
    }

    #[test]
    fn a_surviving_grandchild_is_an_overlap() {
        let dir = tempfile::tempdir().unwrap();
        let witness = Witness::in_dir(dir.path());
        let mut first = start(&witness.command("exec 4<&0; setsid cat <&4 >/dev/null &"), 1);
        // The shell has ended; the grandchild ends when its input does.
        let input = first.stdin.take();
        assert!(first.wait().unwrap().success());
        assert_eq!(start(&witness.command("true"), 2).wait().unwrap().code(), Some(OVERLAP_CODE));
        drop(input);
        eventually("the end of the grandchild", || {
            start(&witness.command("true"), 3).wait().unwrap().success().then_some(())
        });
        assert_panics("two commands ran at the same time", || drop(witness.check()));
    }

    #[test]
    fn a_killed_section_has_no_end() {
        let dir = tempfile::tempdir().unwrap();
        let witness = Witness::in_dir(dir.path());
        let mut first = start(&witness.command("read line"), 1);
        eventually("the first section", || witness.log().contains("start 1 ").then_some(()));
        first.kill().unwrap();
        assert_eq!(first.wait().unwrap().signal(), Some(9));
        assert!(start(&witness.command("true"), 2).wait().unwrap().success());
        let sections = witness.check();
        assert_eq!(sections.iter().map(|section| section.end.is_some()).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn tokens_that_do_not_rise_are_caught() {
        for second in [4, 5] {
            let dir = tempfile::tempdir().unwrap();
            let witness = Witness::in_dir(dir.path());
            for token in [5, second] {
                assert!(start(&witness.command("true"), token).wait().unwrap().success());
            }
            assert_panics("the token does not rise", || drop(witness.check()));
        }
    }

    #[test]
    fn a_log_that_does_not_fit_together_is_caught() {
        for (log, what) in [
            ("start 1 10\nstart 2 20\nend 1 30\n", "ends a section that is not the one before it"),
            ("start 1 10\nend 1 20\nend 1 30\n", "ends a section that is not the one before it"),
            ("end 1 10\n", "ends a section that is not the one before it"),
            ("start 1 20\nend 1 10\n", "is earlier than the line before it"),
            ("start - 10\n", "no usable DLOCK_TOKEN"),
            ("start 1\n", "is not a line of the witness"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("log"), log).unwrap();
            assert_panics(what, || drop(Witness::in_dir(dir.path()).check()));
        }
    }

    #[test]
    fn the_counter_counts_and_is_not_protected() {
        let dir = tempfile::tempdir().unwrap();
        let counter = dir.path().join("counter");
        let [witness, other] = ["a", "b it's"].map(|name| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            Witness::in_dir(dir.path().join(name))
        });
        for token in 1..=10 {
            assert!(start(&witness.counter_command(&counter), token).wait().unwrap().success());
        }
        assert_eq!((witness.check().len(), read_counter(&counter)), (10, 10));
        // Under witnesses of their own nothing keeps them apart: updates get lost.
        eventually("a lost update", || {
            let before = read_counter(&counter);
            let both = [&witness, &other].map(|witness| start(&witness.counter_command(&counter), 1));
            for mut child in both {
                assert!(child.wait().unwrap().success());
            }
            (read_counter(&counter) != before + 2).then_some(())
        });
    }

    fn start(command: &[std::ffi::OsString], token: u64) -> Child {
        Command::new(&command[0])
            .args(&command[1..])
            .env("DLOCK_TOKEN", token.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn now() -> u64 {
        u64::try_from(Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap()).as_nanos()).unwrap()
    }
}

mod netns {
    use super::*;
    use crate::support::netns::Netns;
    use std::process::{ChildStdin, ChildStdout};

    const PORT: u16 = 6379;

    #[test]
    fn packets_are_dropped_not_refused_and_pass_after_healing() {
        let net = Netns::start();
        // Another port than the server's: in there all of them are free, and nobody listens on that one.
        assert!(!connects(&net, PORT), "without a server the port refuses");
        let _server = serve(&net);

        let mut open = Conversation::start(&net);
        open.ping();
        assert_eq!(open.hear(), "+PONG");

        net.drop_port(PORT);
        open.ping();
        let mut new = connect(&net, PORT);
        eventually("some lost packets", || (net.dropped() > 3).then_some(()));
        // Neither refused nor answered.
        assert_eq!(new.try_wait().unwrap(), None);
        net.heal();
        assert_eq!(open.hear(), "+PONG");
        assert!(new.wait().unwrap().success());
        assert_eq!(net.dropped(), 0);
    }

    #[test]
    fn only_the_dropped_port_is_dropped() {
        let net = Netns::start();
        let _server = serve(&net);
        net.drop_port(PORT + 1);
        assert!(connects(&net, PORT));
        net.heal();
        net.heal();
        assert!(connects(&net, PORT));
    }

    #[test]
    fn it_is_a_network_of_its_own() {
        let (one, two) = (Netns::start(), Netns::start());
        let _server = serve(&one);
        assert!(connects(&one, PORT));
        assert!(!connects(&two, PORT));
        let names = one.command("ls").arg("/sys/class/net").output().unwrap();
        assert!(names.status.success());
        let interfaces = one.command("ip").args(["-brief", "link"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&interfaces.stdout).lines().count(), 1);
    }

    #[test]
    fn the_program_is_the_process_that_was_started() {
        let net = Netns::start();
        let mut child = net.command("sh").args(["-c", "echo $$; exit 9"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim_end().parse(), Ok(child.id()));
        assert_eq!(child.wait().unwrap().code(), Some(9));
    }

    #[test]
    fn dropping_it_kills_what_runs_inside() {
        let net = Netns::start();
        let mut child = net.command("setsid").args(["sleep", "1000"]).spawn().unwrap();
        let inside = std::fs::read_link(format!("/proc/{}/ns/net", child.id())).unwrap();
        eventually("it to be inside", || {
            let now = std::fs::read_link(format!("/proc/{}/ns/net", child.id())).unwrap();
            (now != std::fs::read_link("/proc/self/ns/net").unwrap() || now != inside).then_some(())
        });
        drop(net);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    /// A redis, ready.
    fn serve(net: &Netns) -> Server {
        let dir = std::env::temp_dir();
        let mut server = net
            .command("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &PORT.to_string(), "--save", "", "--appendonly", "no", "--dir"])
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("redis to listen", || {
            assert_eq!(server.try_wait().unwrap(), None, "redis-server ended");
            connects(net, PORT).then_some(())
        });
        Server(server)
    }

    struct Server(Child);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn connect(net: &Netns, port: u16) -> Child {
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        net.command("bash").args(["-c", &script]).stderr(Stdio::null()).spawn().unwrap()
    }

    fn connects(net: &Netns, port: u16) -> bool {
        connect(net, port).wait().unwrap().success()
    }

    /// One open connection to the server, kept by a process inside.
    struct Conversation {
        child: Child,
        input: ChildStdin,
        output: BufReader<ChildStdout>,
    }

    impl Conversation {
        fn start(net: &Netns) -> Conversation {
            let script = format!(
                "exec 3<>/dev/tcp/127.0.0.1/{PORT}; while read -r line; do printf '%s\\r\\n' \"$line\" >&3; read -r reply <&3; echo \"$reply\"; done"
            );
            let mut bash = net.command("bash");
            let mut child = bash.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
            Conversation { child, input, output }
        }

        fn ping(&mut self) {
            self.input.write_all(b"PING\n").unwrap();
        }

        fn hear(&mut self) -> String {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        }
    }

    impl Drop for Conversation {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
