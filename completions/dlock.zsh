#compdef dlock

autoload -U is-at-least

_dlock() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_dlock_commands" \
"*::: :->dlock" \
&& ret=0
    case $state in
    (dlock)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:dlock-command-$line[1]:"
        case $line[1] in
            (flock)
_arguments "${_arguments_options[@]}" : \
'-w+[Wait at most this long, such as 10 or 0.5; 0 is -n]:SECONDS:_default' \
'--timeout=[Wait at most this long, such as 10 or 0.5; 0 is -n]:SECONDS:_default' \
'--wait=[Wait at most this long, such as 10 or 0.5; 0 is -n]:SECONDS:_default' \
'-E+[Exit code when the lock was not acquired, instead of 1]:N:_default' \
'--conflict-exit-code=[Exit code when the lock was not acquired, instead of 1]:N:_default' \
'-c+[After FILE only\: run STRING with \$SHELL -c, or with /bin/sh if SHELL is not set]:STRING:_default' \
'--command=[After FILE only\: run STRING with \$SHELL -c, or with /bin/sh if SHELL is not set]:STRING:_default' \
'-s[Hold the lock together with others that share it]' \
'--shared[Hold the lock together with others that share it]' \
'-x[Hold the lock alone, which is the default]' \
'--exclusive[Hold the lock alone, which is the default]' \
'-u[Drop the lock of the open file; usually unnecessary, because it is dropped when the last process closes the file]' \
'--unlock[Drop the lock of the open file; usually unnecessary, because it is dropped when the last process closes the file]' \
'-n[Do not wait\: exit with 1 when the lock is held]' \
'--nonblock[Do not wait\: exit with 1 when the lock is held]' \
'--nb[Do not wait\: exit with 1 when the lock is held]' \
'-o[Do not let the command inherit the locked descriptor]' \
'--close[Do not let the command inherit the locked descriptor]' \
'-F[Become the command instead of starting it; with a backend, dlock stays to keep the lock]' \
'--no-fork[Become the command instead of starting it; with a backend, dlock stays to keep the lock]' \
'--verbose[Also report how long it took to acquire the lock, or why it was not acquired]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
'*::words -- A file, which is created if it is missing, or a directory, and the command to run under its lock; or the number of an open descriptor:_default' \
&& ret=0
;;
(break)
_arguments "${_arguments_options[@]}" : \
'*-k+[The lock'\''s name\: 1 to 512 bytes of UTF-8 without control characters]:KEY:_default' \
'*--key=[The lock'\''s name\: 1 to 512 bytes of UTF-8 without control characters]:KEY:_default' \
'--owner=[The owner id that dlock status shows (holder.id in JSON), or at least its first 8 characters]:ID:_default' \
'--reason=[The reason\: the holder reports it, and dlock status shows it for a week]:TEXT:_default' \
'-w+[Wait at most this long for the lock to be released; default\: the length of the holder'\''s lease plus 15s]:DURATION:_default' \
'--wait=[Wait at most this long for the lock to be released; default\: the length of the holder'\''s lease plus 15s]:DURATION:_default' \
'--timeout=[Wait at most this long for the lock to be released; default\: the length of the holder'\''s lease plus 15s]:DURATION:_default' \
'-b+[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:_default' \
'--backend=[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:_default' \
'--namespace=[Prefix for every key on a server; may be empty. Ignored by file\:]:NS:_default' \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--time=[Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always]:ZONE:((utc\:"UTC"
local\:"The time zone of this host, or of TZ"))' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:_default' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'--now[Take the lock away at once. Until its holder notices, two commands can run. Not for file\:]' \
'-y[Do not ask for confirmation on a terminal]' \
'--yes[Do not ask for confirmation on a terminal]' \
'-q[Errors only]' \
'--quiet[Errors only]' \
'--require-backend[If no backend is chosen, exit with 64 instead of using file\:]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
'*-k+[The lock'\''s name\: 1 to 512 bytes of UTF-8 without control characters]:KEY:_default' \
'*--key=[The lock'\''s name\: 1 to 512 bytes of UTF-8 without control characters]:KEY:_default' \
'-b+[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:_default' \
'--backend=[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:_default' \
'--namespace=[Prefix for every key on a server; may be empty. Ignored by file\:]:NS:_default' \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--time=[Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always]:ZONE:((utc\:"UTC"
local\:"The time zone of this host, or of TZ"))' \
'-t+[Length of the lease, from 1s to 24h\: the lock is free that long after it was acquired or last renewed. No variable sets it, because it must fit the steps. Required without --while-pid; with it, 30s by default. etcd has its own limit (at least 2s by default), and grants the nearest length]:DURATION:_default' \
'--ttl=[Length of the lease, from 1s to 24h\: the lock is free that long after it was acquired or last renewed. No variable sets it, because it must fit the steps. Required without --while-pid; with it, 30s by default. etcd has its own limit (at least 2s by default), and grants the nearest length]:DURATION:_default' \
'--while-pid=[Leave a process behind, the keeper, that renews the lock until process PID has ended, and then releases it. In a script, PID is \$\$. If the lock is lost, the keeper stops PID, but of what PID started only the runs under dlock run --handle. Works on every backend, but not for process 1, which no signal stops]:PID:_default' \
'-w+[Wait at most this long for the lock, or for a backend that cannot be reached; 0 means --nonblock. By default, the wait for the lock has no limit, and a backend that cannot be reached at first is an error at once]:DURATION:_default' \
'--wait=[Wait at most this long for the lock, or for a backend that cannot be reached; 0 means --nonblock. By default, the wait for the lock has no limit, and a backend that cannot be reached at first is an error at once]:DURATION:_default' \
'--timeout=[Wait at most this long for the lock, or for a backend that cannot be reached; 0 means --nonblock. By default, the wait for the lock has no limit, and a backend that cannot be reached at first is an error at once]:DURATION:_default' \
'-E+[Exit code when the lock was not acquired; not 0, because the next step would start without the lock. A 0 in a variable or config file is meant for dlock run, and counts as 75]:N:_default' \
'--conflict-exit-code=[Exit code when the lock was not acquired; not 0, because the next step would start without the lock. A 0 in a variable or config file is meant for dlock run, and counts as 75]:N:_default' \
'--reason=[Text shown to waiters, and by status and list]:TEXT:_default' \
'--events=[Append a JSON line for each event (waiting, acquired, trouble, refused, end) to this file, or write it to an open descriptor, fd\:3 or higher; see dlock-json(7). dlock never waits for a reader. With --while-pid the keeper has it open until PID has ended\: use a file, because the reader of a pipe would wait that long]:FILE:_files' \
'--kill-after=[With --while-pid\: time between SIGTERM and SIGKILL, at most half of the ttl (zk\: a quarter); default\: the smaller of 5s and a quarter of the ttl. A shell runs a trap only after the command that it waits for has ended\: give it time]:DURATION:_default' \
'--on-lost=[With --while-pid\: what happens to PID when the lock is lost, or dlock break asks for it]:ACTION:((stop\:"SIGTERM, then SIGKILL"
kill\:"SIGKILL at once, without SIGTERM"
ignore\:"Do not stop it; dlock run exits with the command'\''s own exit code"))' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:_default' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'--replicas=[redis\: count a grant or renewal only when this many replicas have confirmed it]:N:_default' \
'--require-backend[If no backend is chosen, exit with 64 instead of using file\:]' \
'-n[Do not wait\: exit with 75 when the lock is held. Connecting may then take 2s at most]' \
'--nonblock[Do not wait\: exit with 75 when the lock is held. Connecting may then take 2s at most]' \
'--nb[Do not wait\: exit with 75 when the lock is held. Connecting may then take 2s at most]' \
'--shell[Print a line for eval in a shell. It exports DLOCK_HANDLE, DLOCK_KEY, DLOCK_TOKEN and DLOCK_OWNER, and DLOCK_HANDLE_SHELL, by which dlock release knows that shell. On failure, it unsets all of them and fails with dlock'\''s exit code]' \
'--json[Print one JSON document, see dlock-json(7)]' \
'-q[Errors only]' \
'--quiet[Errors only]' \
'-v[Also report what was done]' \
'--verbose[Also report what was done]' \
'--strict-fencing[redlock\: refuse servers that could forget a fencing token (appendfsync always is needed)]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
&& ret=0
;;
(renew)
_arguments "${_arguments_options[@]}" : \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:_default' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'--replicas=[redis\: count a grant or renewal only when this many replicas have confirmed it]:N:_default' \
'-q[Errors only]' \
'--quiet[Errors only]' \
'-v[Also report what was done]' \
'--verbose[Also report what was done]' \
'--strict-fencing[redlock\: refuse servers that could forget a fencing token (appendfsync always is needed)]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
'::handle -- The handle that dlock acquire printed:_default' \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:_default' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'--replicas=[redis\: count a grant or renewal only when this many replicas have confirmed it]:N:_default' \
'-q[Errors only]' \
'--quiet[Errors only]' \
'-v[Also report what was done]' \
'--verbose[Also report what was done]' \
'--strict-fencing[redlock\: refuse servers that could forget a fencing token (appendfsync always is needed)]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
'::handle -- The handle that dlock acquire printed:_default' \
&& ret=0
;;
(check)
_arguments "${_arguments_options[@]}" : \
'-t+[Length of the lease that runs will ask for, to compare with what the service grants and how fast it answers]:DURATION:_default' \
'--ttl=[Length of the lease that runs will ask for, to compare with what the service grants and how fast it answers]:DURATION:_default' \
'-b+[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:_default' \
'--backend=[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:_default' \
'--namespace=[Prefix for every key on a server; may be empty. Ignored by file\:]:NS:_default' \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--time=[Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always]:ZONE:((utc\:"UTC"
local\:"The time zone of this host, or of TZ"))' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:_default' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'--replicas=[redis\: count a grant or renewal only when this many replicas have confirmed it]:N:_default' \
'--json[Print one JSON document, see dlock-json(7)]' \
'-q[Print nothing unless --json is given; only the exit code tells]' \
'--quiet[Print nothing unless --json is given; only the exit code tells]' \
'--require-backend[If no backend is chosen, exit with 64 instead of using file\:]' \
'--strict-fencing[redlock\: refuse servers that could forget a fencing token (appendfsync always is needed)]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
&& ret=0
;;
(config)
_arguments "${_arguments_options[@]}" : \
'-b+[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:_default' \
'--backend=[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:_default' \
'--namespace=[Prefix for every key on a server; may be empty. Ignored by file\:]:NS:_default' \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--time=[Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always]:ZONE:((utc\:"UTC"
local\:"The time zone of this host, or of TZ"))' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:_default' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'--json[Print one JSON object; see dlock-json(7)]' \
'--require-backend[If no backend is chosen, exit with 64 instead of using file\:]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
&& ret=0
;;
(generate)
_arguments "${_arguments_options[@]}" : \
'-b+[With postgres or mysql\: the URL of the locks, for the names of their table and their user]:URL:_default' \
'--backend=[With postgres or mysql\: the URL of the locks, for the names of their table and their user]:URL:_default' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':what -- What to print:((man\:"The man page"
bash\:"Completions for bash"
zsh\:"Completions for zsh"
fish\:"Completions for fish"
postgres\:"The statements that make the tables there"
mysql\:"The statements that make the tables there"))' \
'::page -- With man\: the page of this subcommand, json for dlock-json(7), or config.5 for dlock-config(5):_default' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
'::name -- The subcommand:(run flock status list held break acquire renew release latch barrier check config generate help)' \
&& ret=0
;;
(run)
_arguments "${_arguments_options[@]}" : \
'*-k+[The lock'\''s name\: 1 to 512 bytes of UTF-8 without control characters. Repeat it to hold up to 16 locks at once, all or none; every dlock takes them in the same order, so that runs cannot deadlock]:KEY:_default' \
'*--key=[The lock'\''s name\: 1 to 512 bytes of UTF-8 without control characters. Repeat it to hold up to 16 locks at once, all or none; every dlock takes them in the same order, so that runs cannot deadlock]:KEY:_default' \
'--handle=[Run under a lock that dlock acquire has taken, instead of taking one. The lock is renewed while the command runs, and stays held afterwards. If it is no longer held, exit with 79 without running the command. Runs under one handle do not exclude each other. Excludes the options that say which lock to take, and how]:HANDLE:_default' \
'--namespace=[Prefix for every key on a server; may be empty. Ignored by file\:]:NS:_default' \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--time=[Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always]:ZONE:((utc\:"UTC"
local\:"The time zone of this host, or of TZ"))' \
'--slots=[Let up to N runs (1 to 1000) hold the lock at the same time. Each run finds its own number, from 0 to N-1, in DLOCK_SLOT. While the lock is in use with another N, exit with 64]:N:_default' \
'-E+[Exit code when the lock was not acquired; 0 makes a skipped run a success]:N:_default' \
'--conflict-exit-code=[Exit code when the lock was not acquired; 0 makes a skipped run a success]:N:_default' \
'--on-lost=[Action on the command when the lock is lost]:ACTION:((stop\:"SIGTERM, then SIGKILL"
kill\:"SIGKILL at once, without SIGTERM"
ignore\:"Do not stop it; dlock run exits with the command'\''s own exit code"))' \
'--leftovers=[Action on processes that the command leaves running. If a signal ended the command, or it was told to end and did so within --kill-after, they are always stopped]:ACTION:((leave\:"Leave them running, and release the lock"
wait\:"Hold the lock until they have ended. A signal that asks dlock to end, and --max-run, stop them"
kill\:"Stop them, then release the lock"))' \
'-c+[Run STRING with /bin/sh -c instead of a command]:STRING:_default' \
'--command=[Run STRING with /bin/sh -c instead of a command]:STRING:_default' \
'--reason=[Text shown to waiters, and by status and list]:TEXT:_default' \
'--events=[Append a JSON line for each event (waiting, acquired, started, renewed, lost, stopping, exited, released, end and more) to this file, or write it to an open descriptor, fd\:3 or higher; see dlock-json(7). COMMAND does not inherit the descriptor, and dlock never waits for a reader]:FILE:_files' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'--replicas=[redis\: count a grant or renewal only when this many replicas have confirmed it]:N:_default' \
'-b+[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'--backend=[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'-w+[Wait at most this long for the lock, or for a backend that cannot be reached; 0 means --nonblock. By default, the wait for the lock has no limit, and a backend that cannot be reached at first is an error at once]:DURATION:(10s 1m 10m 1h)' \
'--wait=[Wait at most this long for the lock, or for a backend that cannot be reached; 0 means --nonblock. By default, the wait for the lock has no limit, and a backend that cannot be reached at first is an error at once]:DURATION:(10s 1m 10m 1h)' \
'--timeout=[Wait at most this long for the lock, or for a backend that cannot be reached; 0 means --nonblock. By default, the wait for the lock has no limit, and a backend that cannot be reached at first is an error at once]:DURATION:(10s 1m 10m 1h)' \
'-t+[Length of the lease, at least 1s\: how long the lock outlives a dead holder. etcd (at least 2s by default) and ZooKeeper (4s to 40s) have their own limits, and grant the nearest length]:DURATION:(10s 30s 1m 5m)' \
'--ttl=[Length of the lease, at least 1s\: how long the lock outlives a dead holder. etcd (at least 2s by default) and ZooKeeper (4s to 40s) have their own limits, and grant the nearest length]:DURATION:(10s 30s 1m 5m)' \
'--kill-after=[Time between SIGTERM and SIGKILL where dlock stops the command (the lock is lost, --max-run, dlock break), at most half of the granted ttl (zk\: a quarter); default\: the smaller of 5s and a quarter of the ttl. A signal to dlock is only passed on]:DURATION:(1s 5s 10s)' \
'--min-hold=[Keep the lock for at least this long after it was acquired, even if the command ends or fails sooner, or dlock is killed. With -n, a job that several hosts start at about the same time then runs once\: make it longer than the clock skew between the hosts, but shorter than the interval between runs. A command that cannot be executed frees the lock. Ignored in a nested run for the same lock]:DURATION:(10s 1m 5m)' \
'--lock-delay=[Keep the lock for this much longer if its holder vanishes without releasing it (its host died, dlock was killed), so that work that cannot check DLOCK_TOKEN can finish. The command still ends within --ttl, and a release frees the lock at once, also after the command was stopped. zk\: at most a sixth of --ttl. Not for file\:. Ignored in a nested run for the same lock]:DURATION:(5s 15s 1m)' \
'--once-per=[Let at most one run for this lock succeed (exit code 0) in each PERIOD, such as 1h. The other runs with the same PERIOD wait\: if it succeeds they are skipped, with the exit code of a lock that was not acquired, and if it fails one of them takes over. With -n they do not wait. Periods are multiples of their length since 1970 in UTC, by the clock of this host. Not with --shared or --slots, nor in a nested run for the same lock]:PERIOD:(15m 1h 1d)' \
'--max-run=[Stop the command after this long, and exit with 124]:DURATION:(10m 1h 12h)' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:(1s 5s 10s)' \
'--require-backend[If no backend is chosen, exit with 64 instead of using file\:]' \
'-n[Do not wait\: exit with 75 when the lock is held. Connecting may then take 2s at most]' \
'--nonblock[Do not wait\: exit with 75 when the lock is held. Connecting may then take 2s at most]' \
'--nb[Do not wait\: exit with 75 when the lock is held. Connecting may then take 2s at most]' \
'-x[Hold the lock alone, which is the default]' \
'--exclusive[Hold the lock alone, which is the default]' \
'-s[Hold the lock together with other --shared runs (readers), but never together with an --exclusive or --slots run. Waiters are served in order, so a stream of readers does not keep a writer out]' \
'--shared[Hold the lock together with other --shared runs (readers), but never together with an --exclusive or --slots run. Waiters are served in order, so a stream of readers does not keep a writer out]' \
'-o[file\: do not let the command inherit the locked descriptor]' \
'--close[file\: do not let the command inherit the locked descriptor]' \
'-q[Errors only]' \
'--quiet[Errors only]' \
'-v[Also report when the lock is acquired and released, and who broke it in the last week]' \
'--verbose[Also report when the lock is acquired and released, and who broke it in the last week]' \
'--strict-fencing[redlock\: refuse servers that could forget a fencing token (appendfsync always is needed)]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
'*::argv -- The command to run, and its arguments:_default' \
&& ret=0
;;
(status)
_arguments "${_arguments_options[@]}" : \
'*-k+[The lock'\''s name\: 1 to 512 bytes of UTF-8 without control characters]:KEY:_default' \
'*--key=[The lock'\''s name\: 1 to 512 bytes of UTF-8 without control characters]:KEY:_default' \
'(--watch)--done-within=[Exit with 0 if a run of this lock with --once-per has succeeded within this time, else with 75, and say when the last one did]:DURATION:_default' \
'--namespace=[Prefix for every key on a server; may be empty. Ignored by file\:]:NS:_default' \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--time=[Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always]:ZONE:((utc\:"UTC"
local\:"The time zone of this host, or of TZ"))' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'-b+[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'--backend=[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:(1s 5s 10s)' \
'--json[Print one JSON document, see dlock-json(7); with --watch, one line for each change]' \
'--watch[Keep the output up to date until Ctrl-C]' \
'-q[Print no remarks. With status, print nothing unless --json or --watch is given\: only the exit code tells]' \
'--quiet[Print no remarks. With status, print nothing unless --json or --watch is given\: only the exit code tells]' \
'--require-backend[If no backend is chosen, exit with 64 instead of using file\:]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
&& ret=0
;;
(list)
_arguments "${_arguments_options[@]}" : \
'--limit=[Show at most N locks, the first by name; 0 for all]:N:_default' \
'--namespace=[Prefix for every key on a server; may be empty. Ignored by file\:]:NS:_default' \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--time=[Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always]:ZONE:((utc\:"UTC"
local\:"The time zone of this host, or of TZ"))' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'-b+[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'--backend=[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:(1s 5s 10s)' \
'--json[Print one JSON document, see dlock-json(7); with --watch, one line for each change]' \
'--watch[Keep the output up to date until Ctrl-C]' \
'-q[Print no remarks. With status, print nothing unless --json or --watch is given\: only the exit code tells]' \
'--quiet[Print no remarks. With status, print nothing unless --json or --watch is given\: only the exit code tells]' \
'--require-backend[If no backend is chosen, exit with 64 instead of using file\:]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
'::prefix -- Show only locks whose names begin with PREFIX:_default' \
&& ret=0
;;
(held)
_arguments "${_arguments_options[@]}" : \
'*-k+[The lock'\''s name\: 1 to 512 bytes of UTF-8 without control characters. Repeat it to ask for several locks\: all must be held]:KEY:_default' \
'*--key=[The lock'\''s name\: 1 to 512 bytes of UTF-8 without control characters. Repeat it to ask for several locks\: all must be held]:KEY:_default' \
'--namespace=[Prefix for every key on a server; may be empty. Ignored by file\:]:NS:_default' \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--time=[Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always]:ZONE:((utc\:"UTC"
local\:"The time zone of this host, or of TZ"))' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'-b+[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'--backend=[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:(1s 5s 10s)' \
'--require-backend[If no backend is chosen, exit with 64 instead of using file\:]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
&& ret=0
;;
(latch)
_arguments "${_arguments_options[@]}" : \
'*-k+[The latch'\''s name\: 1 to 512 bytes of UTF-8 without control characters]:KEY:_default' \
'*--key=[The latch'\''s name\: 1 to 512 bytes of UTF-8 without control characters]:KEY:_default' \
'--namespace=[Prefix for every key on a server; may be empty. Ignored by file\:]:NS:_default' \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--time=[Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always]:ZONE:((utc\:"UTC"
local\:"The time zone of this host, or of TZ"))' \
'--as=[done\: the name that is done; fail\: who reports the failure (default\: this host)]:NAME:_default' \
'--count=[wait\: how many names must be done, from 1 to 1000]:N:_default' \
'--reason=[fail\: the reason, shown to those who wait]:TEXT:_default' \
'-E+[Exit code when the wait ran out]:N:_default' \
'--conflict-exit-code=[Exit code when the wait ran out]:N:_default' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'--replicas=[redis\: count a grant or renewal only when this many replicas have confirmed it]:N:_default' \
'-b+[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'--backend=[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, redlock\://host,host,host, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'-w+[Wait at most this long, including for the backend; 0 means do not wait. By default, the wait has no limit, and an error of the backend ends it]:DURATION:(10s 1m 10m 1h)' \
'--wait=[Wait at most this long, including for the backend; 0 means do not wait. By default, the wait has no limit, and an error of the backend ends it]:DURATION:(10s 1m 10m 1h)' \
'--keep=[done and fail\: how long this is remembered]:DURATION:(1h 24h 7days)' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:(1s 5s 10s)' \
'--require-backend[If no backend is chosen, exit with 64 instead of using file\:]' \
'--json[show\: print one JSON document, see dlock-json(7)]' \
'-q[Errors only]' \
'--quiet[Errors only]' \
'-v[Also report what was done]' \
'--verbose[Also report what was done]' \
'--strict-fencing[redlock\: refuse servers that could forget a fencing token (appendfsync always is needed)]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':action -- What to do:((done\:"Report that the name of --as is done"
wait\:"Wait until --count names are done"
fail\:"Mark the latch as failed\: all who wait, now or later, exit with 79"
show\:"Show which names are done, and whether the latch has failed"
forget\:"Forget the names and the failure"))' \
&& ret=0
;;
(barrier)
_arguments "${_arguments_options[@]}" : \
'*-k+[The barrier'\''s name\: 1 to 512 bytes of UTF-8 without control characters]:KEY:_default' \
'*--key=[The barrier'\''s name\: 1 to 512 bytes of UTF-8 without control characters]:KEY:_default' \
'--namespace=[Prefix for every key on a server; may be empty. Ignored by file\:]:NS:_default' \
'--profile=[Use the values of this profile in the config files]:NAME:_default' \
'--time=[Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always]:ZONE:((utc\:"UTC"
local\:"The time zone of this host, or of TZ"))' \
'--parties=[How many parties must be there, from 1 to 100]:N:_default' \
'--as=[This party'\''s name, which must be unique; default\: the name of the host, on file\: the process id]:NAME:_default' \
'-E+[Exit code when the wait ran out]:N:_default' \
'--conflict-exit-code=[Exit code when the wait ran out]:N:_default' \
'--user=[User name at the backend, if the URL has none]:NAME:_default' \
'--password-file=[Read the password for the backend from the first line of this file; - is standard input, and fd\:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m]:FILE:_files' \
'--tls-ca=[TLS\: trust these certificate authorities (PEM) instead of the system'\''s]:FILE:_files' \
'--tls-cert=[TLS\: the client certificate (PEM), for servers that require one]:FILE:_files' \
'--tls-key=[TLS\: the private key of the client certificate (PEM)]:FILE:_files' \
'--tls-server-name=[TLS\: the name in the server'\''s certificate, if it is not the host in the URL]:NAME:_default' \
'--replicas=[redis\: count a grant or renewal only when this many replicas have confirmed it]:N:_default' \
'-b+[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'--backend=[The backend\: file\: (this host and this user\: /run/dlock or /run/lock/dlock-UID), file\:///dir, file\:///dir/file?path (that file, as flock takes it), redis\://\[user\[\:password\]@\]host\[\:port\]\[/database\], redis+unix\:///socket, redis+sentinel\://host,host/NAME, etcd\://host,host,host, zk\://host,host,host\[/chroot\], postgres\://host,host/database, postgres+unix\:///socket, mysql\://host,host/database or mysql+unix\:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, etcds, zks, postgress, mysqls or mariadbs; default file\:]:URL:(file\: redis\:// rediss\:// valkey\:// valkeys\:// redis+unix\:// redis+sentinel\:// redis-sentinel\:// rediss+sentinel\:// redlock\:// redlocks\:// etcd\:// etcds\:// zk\:// zks\:// postgres\:// postgress\:// postgresql\:// postgres+unix\:// mysql\:// mysqls\:// mariadb\:// mariadbs\:// mysql+unix\://)' \
'-w+[Wait at most this long, including for the backend; 0 means do not wait. By default, the wait has no limit, and an error of the backend ends it]:DURATION:(10s 1m 10m 1h)' \
'--wait=[Wait at most this long, including for the backend; 0 means do not wait. By default, the wait has no limit, and an error of the backend ends it]:DURATION:(10s 1m 10m 1h)' \
'-t+[How long it takes to notice that a party died, at least 1s. etcd (at least 2s by default) and ZooKeeper (4s to 40s) have their own limits; file\: notices at once]:DURATION:(10s 30s 1m 5m)' \
'--ttl=[How long it takes to notice that a party died, at least 1s. etcd (at least 2s by default) and ZooKeeper (4s to 40s) have their own limits; file\: notices at once]:DURATION:(10s 30s 1m 5m)' \
'--connect-timeout=[How long connecting to the backend may take]:DURATION:(1s 5s 10s)' \
'--require-backend[If no backend is chosen, exit with 64 instead of using file\:]' \
'--patient[Keep waiting when others leave or die]' \
'-q[Errors only]' \
'--quiet[Errors only]' \
'-v[Also report what was done]' \
'--verbose[Also report what was done]' \
'--strict-fencing[redlock\: refuse servers that could forget a fencing token (appendfsync always is needed)]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
&& ret=0
;;
        esac
    ;;
esac
}

(( $+functions[_dlock_commands] )) ||
_dlock_commands() {
    local commands; commands=(
'flock:Replace flock(1), with the locks on a server if a backend is configured' \
'break:Ask the holder of a lock to stop and release it; with --now take the lock away' \
'acquire:Take a lock that outlives this process, and print its handle' \
'renew:Extend a lock by its handle' \
'release:Give a lock back by its handle' \
'check:Test whether locks at a backend work, how fast it answers, and what could make them unsafe' \
'config:Show the effective settings, and where each comes from' \
'generate:Print the man page, a completion script, or the SQL that creates the tables' \
'help:Print the help of dlock or of a subcommand' \
'run:Hold a lock while a command runs' \
'status:Show who holds a lock, and who waits for it' \
'list:Show every lock that is held in the namespace' \
'held:Test whether this process runs inside a dlock run that holds a lock' \
'latch:Wait until enough jobs are done, in any order' \
'barrier:Wait until enough processes are there at the same time' \
    )
    _describe -t commands 'dlock commands' commands "$@"
}
(( $+functions[_dlock__subcmd__acquire_commands] )) ||
_dlock__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'dlock acquire commands' commands "$@"
}
(( $+functions[_dlock__subcmd__barrier_commands] )) ||
_dlock__subcmd__barrier_commands() {
    local commands; commands=()
    _describe -t commands 'dlock barrier commands' commands "$@"
}
(( $+functions[_dlock__subcmd__break_commands] )) ||
_dlock__subcmd__break_commands() {
    local commands; commands=()
    _describe -t commands 'dlock break commands' commands "$@"
}
(( $+functions[_dlock__subcmd__check_commands] )) ||
_dlock__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'dlock check commands' commands "$@"
}
(( $+functions[_dlock__subcmd__config_commands] )) ||
_dlock__subcmd__config_commands() {
    local commands; commands=()
    _describe -t commands 'dlock config commands' commands "$@"
}
(( $+functions[_dlock__subcmd__flock_commands] )) ||
_dlock__subcmd__flock_commands() {
    local commands; commands=()
    _describe -t commands 'dlock flock commands' commands "$@"
}
(( $+functions[_dlock__subcmd__generate_commands] )) ||
_dlock__subcmd__generate_commands() {
    local commands; commands=()
    _describe -t commands 'dlock generate commands' commands "$@"
}
(( $+functions[_dlock__subcmd__held_commands] )) ||
_dlock__subcmd__held_commands() {
    local commands; commands=()
    _describe -t commands 'dlock held commands' commands "$@"
}
(( $+functions[_dlock__subcmd__help_commands] )) ||
_dlock__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'dlock help commands' commands "$@"
}
(( $+functions[_dlock__subcmd__latch_commands] )) ||
_dlock__subcmd__latch_commands() {
    local commands; commands=()
    _describe -t commands 'dlock latch commands' commands "$@"
}
(( $+functions[_dlock__subcmd__list_commands] )) ||
_dlock__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'dlock list commands' commands "$@"
}
(( $+functions[_dlock__subcmd__release_commands] )) ||
_dlock__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'dlock release commands' commands "$@"
}
(( $+functions[_dlock__subcmd__renew_commands] )) ||
_dlock__subcmd__renew_commands() {
    local commands; commands=()
    _describe -t commands 'dlock renew commands' commands "$@"
}
(( $+functions[_dlock__subcmd__run_commands] )) ||
_dlock__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'dlock run commands' commands "$@"
}
(( $+functions[_dlock__subcmd__status_commands] )) ||
_dlock__subcmd__status_commands() {
    local commands; commands=()
    _describe -t commands 'dlock status commands' commands "$@"
}

if [ "$funcstack[1]" = "_dlock" ]; then
    _dlock "$@"
else
    compdef _dlock dlock
fi
