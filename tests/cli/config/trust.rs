//! A config file that other users could have written is refused, and so is one with a secret that they can read.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use nix::sys::stat::Mode;

use super::{USER, put, with};
use crate::support::dlock::{Dlock, Outcome};
use crate::support::process::is_root;
use crate::support::scratch::Scratch;

/// A user who is neither root nor the one that tests without privileges run as.
const THIRD: u32 = 1;

fn chmod(file: &Path, mode: u32) {
    fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
}

/// A run that reads `file`.
fn run(scratch: &Scratch, file: &Path) -> Dlock {
    with(scratch, file).run("k").backend(scratch.file_url()).command(["echo", "ran"])
}

/// A run that reads `file`, by a user without privileges.
fn run_of_user(scratch: &Scratch, file: &Path) -> Dlock {
    let own = scratch.directory("own", 0o700);
    scratch.give_away(&own);
    let backend = format!("file://{}", own.display());
    with(scratch, file).unprivileged().run("k").backend(backend).command(["echo", "ran"])
}

/// The command was not started, and the last thing that was said is a command for a shell; runs it.
#[track_caller]
fn mended(outcome: &Outcome, said: &str) {
    let line = outcome.code(78).stdout_is("").stderr_is_one_line(said).stderr();
    let remedy = line.trim_end().rsplit(": ").next().unwrap().to_owned();
    assert!(remedy.starts_with("chmod "), "{line}");
    assert!(Command::new("sh").args(["-c", &remedy]).status().unwrap().success(), "{remedy}");
}

#[test]
fn a_file_that_others_can_write_is_refused_until_its_mode_is_changed() {
    let scratch = Scratch::new();
    for mode in [0o664, 0o646, 0o602, 0o620, 0o666, 0o777] {
        let file = scratch.file("config.toml", "wait = 1\n");
        chmod(&file, mode);
        mended(
            &run(&scratch, &file).output(),
            "config.toml: the config file can be written by other users: chmod go-w /",
        );
        run(&scratch, &file).output().quiet().success();
        scratch.give_away(&file);
        chmod(&file, mode);
        mended(&run_of_user(&scratch, &file).output(), "can be written by other users: chmod go-w /");
        run_of_user(&scratch, &file).output().quiet().success();
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_file_of_another_user_is_refused_but_roots_is_trusted() {
    let scratch = Scratch::new();
    if !is_root() {
        return;
    }
    let foreign = "the config file belongs to another user, and must belong to you or to root";
    let file = scratch.file("config.toml", "wait = 1\n");
    chmod(&file, 0o644);
    run_of_user(&scratch, &file).output().quiet().success();
    chown(&file, Some(THIRD), None).unwrap();
    run_of_user(&scratch, &file).output().code(78).stdout_is("").stderr_is_one_line(foreign);
    run(&scratch, &file).output().code(78).stdout_is("").stderr_is_one_line(foreign);
    // As sudo does it that keeps HOME: the file of the user who called it is not root's.
    let home = put(&scratch, USER, "wait = 1\n");
    scratch.give_away(&home);
    let sudo = || scratch.dlock().env_remove("DLOCK_CONFIG").args(["config"]);
    sudo().output().code(78).stdout_is("").stderr_is_one_line(foreign);
    sudo().env("DLOCK_CONFIG", "/dev/null").output().quiet().success();
}

#[test]
fn a_directory_in_which_others_could_replace_the_file_is_refused() {
    let scratch = Scratch::new();
    let directory = scratch.directory("etc", 0o755);
    let file = scratch.file("etc/config.toml", "wait = 1\n");
    chmod(&file, 0o644);
    let link = scratch.path("link.toml");
    symlink(&file, &link).unwrap();
    for mode in [0o777, 0o775, 0o757] {
        for path in [&file, &link] {
            chmod(&directory, mode);
            let said = "the config file is in a directory that other users can write: chmod go-w /";
            mended(&run(&scratch, path).output(), said);
            run(&scratch, path).output().quiet().success();
        }
    }
    // Where only its owner can replace a file, as in /tmp.
    chmod(&directory, 0o1777);
    run(&scratch, &file).output().quiet().success();
    chmod(&directory, 0o755);
    if is_root() {
        chown(&directory, Some(THIRD), None).unwrap();
        let refused = run(&scratch, &file).output();
        refused.code(78).stdout_is("").stderr_is_one_line("the config file is in the directory of another user");
    }
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let scratch = Scratch::new();
    let irregular = |path: &Path| {
        run(&scratch, path).output().code(78).stdout_is("").stderr_is_one_line("is not a regular file").elapsed()
    };
    let fifo = scratch.path("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let socket = scratch.path("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let link = scratch.path("link");
    symlink(&fifo, &link).unwrap();
    for path in [scratch.directory("directory", 0o700), fifo, socket, link, "/dev/zero".into(), "/dev/tty".into()] {
        assert!(irregular(&path).as_secs() < 60);
    }
}

#[test]
fn a_file_that_is_named_must_be_there_and_readable() {
    let scratch = Scratch::new();
    let missing = "the config file could not be read: No such file";
    run(&scratch, &scratch.path("missing")).output().code(78).stderr_is_one_line(missing);
    let dangling = scratch.path("dangling");
    symlink("nowhere", &dangling).unwrap();
    run(&scratch, &dangling).output().code(78).stderr_is_one_line(missing);
    let circle = scratch.path("circle");
    symlink("circle", &circle).unwrap();
    run(&scratch, &circle).output().code(78).stderr_is_one_line("could not be read: Too many levels");
    if !is_root() {
        return;
    }
    let closed = scratch.secret("closed.toml", "wait = 1\n");
    let said =
        "could not be read: Permission denied (os error 13): let its owner make it readable, or name another file";
    run_of_user(&scratch, &closed).output().code(78).stdout_is("").stderr_is_one_line(said);
    scratch.give_away(&closed);
    chmod(&closed, 0);
    mended(&run_of_user(&scratch, &closed).output(), "Permission denied (os error 13): chmod u+r /");
    run_of_user(&scratch, &closed).output().quiet().success();
}

#[test]
fn a_file_in_its_usual_place_need_not_be_there() {
    let scratch = Scratch::new();
    let usual = || scratch.dlock().env_remove("DLOCK_CONFIG").arg("config");
    usual().output().quiet().success();
    fs::create_dir_all(scratch.path(".config/dlock")).unwrap();
    usual().output().quiet().success();
    // But a link that leads nowhere was put there for a reason.
    symlink("nowhere", scratch.path(USER)).unwrap();
    usual().output().code(78).stderr_is_one_line("config.toml: the config file could not be read: No such file");
    fs::remove_file(scratch.path(USER)).unwrap();
    // The home of a user whose rights were dropped.
    let closed = scratch.directory("closed", 0o700);
    usual().unprivileged().env("HOME", &closed).output().quiet().success();
    let file = put(&scratch, "open/.config/dlock/config.toml", "wait = 1\n");
    chmod(&file, 0o600);
    if is_root() {
        let refused = usual().unprivileged().env("HOME", scratch.path("open")).output();
        refused.code(78).stderr_is_one_line("could not be read: Permission denied");
    }
}

#[test]
fn a_file_with_a_secret_is_for_its_owner_or_for_roots_group() {
    let scratch = Scratch::new();
    let secrets = [
        "password = \"secret\"\n",
        "\n[profile.x]\nbackend = \"redis://u:secret@h\"\n",
        "\n\nbackend = \"redis://:secret@h\"\n",
    ];
    for (text, line) in secrets.into_iter().zip([1, 3, 3]) {
        let file = scratch.file("secret.toml", text);
        let said = format!(
            "{}:{line}: there is a password here, and other users can read the file: chmod 600 /",
            file.display()
        );
        chmod(&file, 0o604);
        mended(&run(&scratch, &file).output(), &said);
        chmod(&file, 0o644);
        let refused = run(&scratch, &file).output();
        assert!(!refused.stderr().contains("secret@"), "{refused:?}");
        mended(&refused, &said);
        run(&scratch, &file).output().quiet().success();
        if is_root() {
            chmod(&file, 0o640);
            run(&scratch, &file).output().quiet().success();
        }
        scratch.give_away(&file);
        chmod(&file, 0o640);
        mended(&run_of_user(&scratch, &file).output(), &said);
        run_of_user(&scratch, &file).output().quiet().success();
        fs::remove_file(&file).unwrap();
    }
    // A file without one is for everybody to read.
    let file = scratch.file("open.toml", "backend = \"redis://u@h\"\n");
    chmod(&file, 0o644);
    run(&scratch, &file).output().quiet().success();
}

#[test]
fn a_password_file_that_a_config_file_names_is_for_its_owner_or_for_roots_group() {
    let scratch = Scratch::new();
    let password = scratch.secret("password", "secret");
    let file = scratch.file("config.toml", "\npassword-file = \"password\"\n");
    chmod(&file, 0o644);
    let place = file.display();
    let said = format!("password-file ({place}:2): other users can read or write the password file: chmod 600 /");
    for mode in [0o644, 0o604, 0o602] {
        chmod(&password, mode);
        mended(&run(&scratch, &file).output(), &said);
        run(&scratch, &file).output().quiet().success();
        chmod(&password, mode);
        mended(&with(&scratch, &file).arg("config").output(), &said);
    }
    if is_root() {
        chmod(&password, 0o640);
        run(&scratch, &file).output().quiet().success();
    }
    scratch.give_away(&password);
    chmod(&password, 0o640);
    mended(&run_of_user(&scratch, &file).output(), &said);
    run_of_user(&scratch, &file).output().quiet().success();
    // One that does not count is not looked at.
    chmod(&password, 0o644);
    let other = scratch.secret("other", "secret");
    let nearer = with(&scratch, &file).run("k").backend(scratch.file_url()).arg("--password-file").arg(other);
    nearer.command(["true"]).output().quiet().success();
}

/// Every directory from the root on, and those through which symbolic links lead: who can replace one of them chooses the file.
#[test]
fn the_whole_path_to_a_file_is_walked() {
    let scratch = Scratch::new();
    let above = scratch.directory("above", 0o755);
    scratch.directory("above/own", 0o755);
    let file = scratch.file("above/own/config.toml", "wait = 1\n");
    chmod(&file, 0o644);
    let to_directory = scratch.path("to-directory");
    symlink(scratch.path("above/own"), &to_directory).unwrap();
    let linked = to_directory.join("config.toml");
    // Two steps: a link in a directory of one's own, to one in the other directory, to the file.
    scratch.directory("safe", 0o755);
    chmod(&scratch.path("safe"), 0o755);
    let there = scratch.file("safe/config.toml", "wait = 1\n");
    chmod(&there, 0o644);
    symlink("../safe/config.toml", scratch.path("above/second")).unwrap();
    let twice = scratch.path("first");
    symlink("above/second", &twice).unwrap();
    let back = scratch.path("above/own/../../safe/config.toml");
    for path in [&file, &linked, &twice, &back] {
        run(&scratch, path).output().quiet().success();
        for mode in [0o777, 0o775, 0o757] {
            chmod(&above, mode);
            let refused = run(&scratch, path).output();
            mended(&refused, "a directory that other users can write: chmod go-w /");
            run(&scratch, path).output().quiet().success();
        }
        // In a sticky one, nobody else replaces what is one's own.
        chmod(&above, 0o1777);
        run(&scratch, path).output().quiet().success();
        if is_root() {
            // But anybody may put a link there.
            let link = scratch.path("above/link");
            symlink(&there, &link).unwrap();
            run(&scratch, &link).output().quiet().success();
            std::os::unix::fs::lchown(&link, Some(THIRD), None).unwrap();
            run(&scratch, &link).output().code(78).stderr_is_one_line("is named by a symbolic link of another user");
            fs::remove_file(&link).unwrap();
        }
        chmod(&above, 0o755);
        if is_root() {
            chown(&above, Some(THIRD), None).unwrap();
            let refused = run(&scratch, path).output();
            refused.code(78).stdout_is("").stderr_is_one_line("the directory of another user, who could replace it");
            chown(&above, Some(0), None).unwrap();
        }
    }
    // By a user without privileges, below directories of root's.
    let file = scratch.file("above/own/theirs.toml", "wait = 1\n");
    scratch.give_away(&file);
    run_of_user(&scratch, &file).output().quiet().success();
    chmod(&above, 0o777);
    run_of_user(&scratch, &file)
        .output()
        .code(78)
        .stderr_is_one_line("is below a directory that other users can write");
}

/// As sudo does it that keeps HOME: the user who called it chooses among the files of root.
#[test]
fn the_home_of_another_user_is_not_on_the_way_to_a_file() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let file = put(&scratch, "roots/config.toml", "wait = 1\n");
    for home in [true, false] {
        let name = if home { "alice" } else { "bob" };
        fs::create_dir_all(scratch.path(format!("{name}/.config"))).unwrap();
        let link = scratch.path(format!("{name}/.config/dlock"));
        symlink(file.parent().unwrap(), &link).unwrap();
        let owned = if home { name.to_owned() } else { format!("{name}/.config") };
        chown(scratch.path(owned), Some(THIRD), None).unwrap();
        let sudo = scratch.dlock().env_remove("DLOCK_CONFIG").env("HOME", scratch.path(name)).arg("config");
        sudo.output().code(78).stdout_is("").stderr_is_one_line("the directory of another user");
    }
}

#[test]
fn a_password_file_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let password = scratch.secret("password", "secret\n");
    let file = scratch.file("config.toml", "password-file = \"password\"\n");
    chmod(&file, 0o644);
    let foreign = "belongs to another user, who could change it: change its owner, or hand it over open, with --password-file - <";
    let run_here = || scratch.dlock().run("k").backend(scratch.file_url());
    for owner in [0, THIRD] {
        chown(&password, Some(owner), None).unwrap();
        let runs = [
            (run(&scratch, &file), 78),
            (with(&scratch, &file).arg("config"), 78),
            (run_here().arg("--password-file").arg(&password).command(["echo", "ran"]), 64),
            (run_here().env("DLOCK_PASSWORD_FILE", &password).command(["echo", "ran"]), 64),
        ];
        for (run, code) in runs {
            let outcome = run.output();
            if owner == 0 {
                outcome.quiet().code(0);
            } else {
                outcome.code(code).stdout_is("").stderr_is_one_line(foreign);
            }
        }
    }
    // Whoever opened it has answered for it.
    let handed = run_here().args(["--password-file", "-"]).stdin(fs::File::open(&password).unwrap());
    handed.command(["echo", "ran"]).output().quiet().success();
    // A user without privileges may use root's, and not another one's.
    chmod(&file, 0o644);
    chown(&password, Some(0), None).unwrap();
    chmod(&password, 0o644);
    run_of_user(&scratch, &file)
        .output()
        .code(78)
        .stderr_is_one_line("other users can read or write the password file");
    chown(&password, Some(THIRD), None).unwrap();
    run_of_user(&scratch, &file).output().code(78).stderr_is_one_line(foreign);
}
