//! Lock files are tampered with.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::{Mode, SFlag, mknod};

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::support::process::{self, NOBODY};
use crate::support::rendezvous::make_fifo;
use crate::world::Servers;

/// How soon a holder must notice that its lock file is gone, with its command dead by then: as promised.
const NOTICED: Duration = Duration::from_secs(1);

/// The directory of the lock files.
fn directory(episode: &Episode<'_>) -> PathBuf {
    let Servers::File(scratch) = &episode.world.servers else { panic!("no lock files are kept here") };
    scratch.lock_dir()
}

/// A removed lock file no longer locks anything: newcomers take the new one, until the holder has noticed.
pub fn removed(episode: &mut Episode<'_>) {
    let directory = directory(episode);
    let lock = directory.join(format!("{KEY}.lock"));
    let holder = episode.scene(Way::Straight);
    let removed = episode.broken();
    match episode.rng.u8(..3) {
        0 => fs::remove_file(&lock).unwrap(),
        1 => fs::rename(&lock, episode.scratch.path("away")).unwrap(),
        _ => {
            fs::write(directory.join("new"), "").unwrap();
            fs::rename(directory.join("new"), &lock).unwrap();
        }
    }
    episode.mended();
    for _ in 0..episode.rng.u32(1..=3) {
        episode.linger(Duration::from_millis(300));
        let next = episode.dlock(Way::Straight).command(episode.section(&episode.store.write())).spawn();
        episode.follow(next);
    }
    let late = holder.died_at().saturating_sub(removed);
    if late > NOTICED {
        episode.violation(Invariant::DeadInTime, format!("the command lived for {late:?} without a lock file"));
    }
    episode.ends(holder.running, &[Ending::Lost]);
}

/// What is in place of the lock file, or around it.
#[derive(Clone, Copy, Debug)]
enum Plant {
    Link,
    DanglingLink,
    LinkToDevice,
    Fifo,
    Directory,
    Socket,
    Device,
    ForeignFile,
    OpenDirectory,
    OthersDirectory,
}

impl Plant {
    const ALL: [Self; 10] = [
        Self::Link,
        Self::DanglingLink,
        Self::LinkToDevice,
        Self::Fifo,
        Self::Directory,
        Self::Socket,
        Self::Device,
        Self::ForeignFile,
        Self::OpenDirectory,
        Self::OthersDirectory,
    ];

    /// Whether only root can make such a thing.
    fn is_for_root(self) -> bool {
        matches!(self, Self::Device | Self::OthersDirectory)
    }
}

/// What can be told of a file without reading it, to check that it was left alone.
fn seal(path: &Path) -> String {
    let Ok(about) = fs::symlink_metadata(path) else { return "nothing".to_owned() };
    let kind = about.file_type();
    let content = match () {
        () if kind.is_file() => fs::read(path).unwrap(),
        () if kind.is_symlink() => fs::read_link(path).unwrap().into_os_string().into_encoded_bytes(),
        () if kind.is_dir() => format!("{:?}", fs::read_dir(path).unwrap().count()).into(),
        () => Vec::new(),
    };
    let (mode, owner, number) = (about.mode(), (about.uid(), about.gid()), about.ino());
    let times = (about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec());
    format!("{mode:o} {owner:?} {number} {times:?} {content:?}, fifo: {}", kind.is_fifo())
}

/// The obstacle is refused and not touched; once it is removed, the lock can be had.
pub fn planted(episode: &mut Episode<'_>) {
    let directory = directory(episode);
    let lock = directory.join(format!("{KEY}.lock"));
    // It may have been a lock before, which its owner has to move away.
    let _ = fs::remove_file(&lock);
    if episode.coin() {
        let before = episode.hold(Way::Straight, &[]);
        before.let_go();
        episode.ends(before.running, &[Ending::Own(0)]);
        fs::remove_file(&lock).unwrap();
    }
    let began = episode.store.starts().len();
    let precious = episode.scratch.file("precious", "precious data\n");
    let away = episode.scratch.path("away");
    let plants: Vec<Plant> =
        Plant::ALL.into_iter().filter(|plant| process::is_root() || !plant.is_for_root()).collect();
    for _ in 0..episode.rng.u32(1..=4) {
        let plant = *episode.rng.choice(&plants).expect("one of several");
        let mut socket = None;
        match plant {
            Plant::Link => symlink(&precious, &lock).unwrap(),
            Plant::DanglingLink => symlink(&away, &lock).unwrap(),
            Plant::LinkToDevice => symlink("/dev/null", &lock).unwrap(),
            Plant::Fifo => make_fifo(&lock),
            Plant::Directory => fs::create_dir(&lock).unwrap(),
            Plant::Socket => socket = Some(UnixListener::bind(&lock).unwrap()),
            // The device of /dev/zero.
            Plant::Device => {
                let zero = nix::sys::stat::makedev(1, 5);
                mknod(&lock, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), zero).unwrap();
            }
            Plant::ForeignFile => {
                let foreign: [&[u8]; 4] = [b"precious data\n", b"4711\n", b"\n", b"dlock:2 17\n"];
                fs::write(&lock, episode.rng.choice(&foreign).expect("one of several")).unwrap();
            }
            Plant::OpenDirectory => fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap(),
            Plant::OthersDirectory => chown(&directory, Some(NOBODY), None).unwrap(),
        }
        // A reader would see every byte.
        let ear = matches!(plant, Plant::Fifo)
            .then(|| OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&lock).unwrap());
        episode.broken();
        let seals = [&lock, &directory, &precious, &away].map(|path| seal(path));
        let tries: Vec<_> = (0..episode.rng.u32(1..=3))
            .map(|_| {
                let patience: [&[&str]; 3] = [&["-n"], &["-w", "0.2"], &[]];
                let patience = *episode.rng.choice(&patience).expect("one of several");
                episode.dlock(Way::Straight).args(patience).command(episode.section(&episode.store.write())).spawn()
            })
            .collect();
        for refused in tries {
            let outcome = refused.wait();
            let lines = outcome.stderr().lines().count();
            if episode.ended(&outcome, &[Ending::CannotCreate]).is_some() && lines != 1 {
                episode.violation(Invariant::EndsRight, format!("{lines} lines of {plant:?}:\n{outcome:?}"));
            }
        }
        let after = [&lock, &directory, &precious, &away].map(|path| seal(path));
        if after != seals {
            episode.violation(Invariant::EndsRight, format!("{plant:?} was touched: {seals:?} became {after:?}"));
        }
        if ear.is_some_and(heard) || socket.is_some_and(|socket| was_called(&socket)) {
            episode.violation(Invariant::EndsRight, format!("dlock wrote to {plant:?}"));
        }
        match plant {
            Plant::Directory => fs::remove_dir(&lock).unwrap(),
            Plant::OpenDirectory => fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap(),
            Plant::OthersDirectory => chown(&directory, Some(nix::unistd::geteuid().as_raw()), None).unwrap(),
            _ => fs::remove_file(&lock).unwrap(),
        }
        episode.mended();
        if episode.store.starts().len() > began {
            episode.violation(Invariant::EndsRight, format!("{plant:?} did not keep a command from being started"));
        }
    }
}

/// Whether somebody wrote to the pipe.
fn heard(mut ear: File) -> bool {
    !matches!(ear.read(&mut [0]), Ok(0))
}

/// Whether somebody connected to the socket.
fn was_called(socket: &UnixListener) -> bool {
    socket.set_nonblocking(true).unwrap();
    !socket.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}
