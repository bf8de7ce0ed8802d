# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_dlock_global_optspecs
    string join \n h/help V/version
end

function __fish_dlock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_dlock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_dlock_using_subcommand
    set -l cmd (__fish_dlock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c dlock -n "__fish_dlock_needs_command" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_needs_command" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "flock" -d 'Replace flock(1), with the locks on a server if a backend is configured'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "break" -d 'Ask the holder of a lock to stop and release it; with --now take the lock away'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "acquire" -d 'Take a lock that outlives this process, and print its handle'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "renew" -d 'Extend a lock by its handle'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "release" -d 'Give a lock back by its handle'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "check" -d 'Test whether locks at a backend work, how fast it answers, and what could make them unsafe'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "config" -d 'Show the effective settings, and where each comes from'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "generate" -d 'Print the man page, a completion script, or the SQL that creates the tables'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "help" -d 'Print the help of dlock or of a subcommand'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "run" -d 'Hold a lock while a command runs'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "status" -d 'Show who holds a lock, and who waits for it'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "list" -d 'Show every lock that is held in the namespace'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "held" -d 'Test whether this process runs inside a dlock run that holds a lock'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "latch" -d 'Wait until enough jobs are done, in any order'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "barrier" -d 'Wait until enough processes are there at the same time'
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s w -l timeout -l wait -d 'Wait at most this long, such as 10 or 0.5; 0 is -n' -r
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s E -l conflict-exit-code -d 'Exit code when the lock was not acquired, instead of 1' -r
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s c -l command -d 'After FILE only: run STRING with $SHELL -c, or with /bin/sh if SHELL is not set' -r
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s s -l shared -d 'Hold the lock together with others that share it'
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s x -l exclusive -d 'Hold the lock alone, which is the default'
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s u -l unlock -d 'Drop the lock of the open file; usually unnecessary, because it is dropped when the last process closes the file'
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s n -l nonblock -l nb -d 'Do not wait: exit with 1 when the lock is held'
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s o -l close -d 'Do not let the command inherit the locked descriptor'
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s F -l no-fork -d 'Become the command instead of starting it; with a backend, dlock stays to keep the lock'
complete -c dlock -n "__fish_dlock_using_subcommand flock" -l verbose -d 'Also report how long it took to acquire the lock, or why it was not acquired'
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand flock" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand break" -s k -l key -d 'The lock\'s name: 1 to 512 bytes of UTF-8 without control characters' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l owner -d 'The owner id that dlock status shows (holder.id in JSON), or at least its first 8 characters' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l reason -d 'The reason: the holder reports it, and dlock status shows it for a week' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -s w -l wait -l timeout -d 'Wait at most this long for the lock to be released; default: the length of the holder\'s lease plus 15s' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -s b -l backend -d 'The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, redlock://host,host,host, etcd://host,host,host, zk://host,host,host[/chroot], postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l namespace -d 'Prefix for every key on a server; may be empty. Ignored by file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l time -d 'Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always' -r -f -a "utc\t'UTC'
local\t'The time zone of this host, or of TZ'"
complete -c dlock -n "__fish_dlock_using_subcommand break" -l connect-timeout -d 'How long connecting to the backend may take' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand break" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand break" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand break" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand break" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l now -d 'Take the lock away at once. Until its holder notices, two commands can run. Not for file:'
complete -c dlock -n "__fish_dlock_using_subcommand break" -s y -l yes -d 'Do not ask for confirmation on a terminal'
complete -c dlock -n "__fish_dlock_using_subcommand break" -s q -l quiet -d 'Errors only'
complete -c dlock -n "__fish_dlock_using_subcommand break" -l require-backend -d 'If no backend is chosen, exit with 64 instead of using file:'
complete -c dlock -n "__fish_dlock_using_subcommand break" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand break" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -s k -l key -d 'The lock\'s name: 1 to 512 bytes of UTF-8 without control characters' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -s b -l backend -d 'The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, redlock://host,host,host, etcd://host,host,host, zk://host,host,host[/chroot], postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l namespace -d 'Prefix for every key on a server; may be empty. Ignored by file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l time -d 'Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always' -r -f -a "utc\t'UTC'
local\t'The time zone of this host, or of TZ'"
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -s t -l ttl -d 'Length of the lease, from 1s to 24h: the lock is free that long after it was acquired or last renewed. No variable sets it, because it must fit the steps. Required without --while-pid; with it, 30s by default. etcd has its own limit (at least 2s by default), and grants the nearest length' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l while-pid -d 'Leave a process behind, the keeper, that renews the lock until process PID has ended, and then releases it. In a script, PID is $$. If the lock is lost, the keeper stops PID, but of what PID started only the runs under dlock run --handle. Works on every backend, but not for process 1, which no signal stops' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -s w -l wait -l timeout -d 'Wait at most this long for the lock, or for a backend that cannot be reached; 0 means --nonblock. By default, the wait for the lock has no limit, and a backend that cannot be reached at first is an error at once' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -s E -l conflict-exit-code -d 'Exit code when the lock was not acquired; not 0, because the next step would start without the lock. A 0 in a variable or config file is meant for dlock run, and counts as 75' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l reason -d 'Text shown to waiters, and by status and list' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l events -d 'Append a JSON line for each event (waiting, acquired, trouble, refused, end) to this file, or write it to an open descriptor, fd:3 or higher; see dlock-json(7). dlock never waits for a reader. With --while-pid the keeper has it open until PID has ended: use a file, because the reader of a pipe would wait that long' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l kill-after -d 'With --while-pid: time between SIGTERM and SIGKILL, at most half of the ttl (zk: a quarter); default: the smaller of 5s and a quarter of the ttl. A shell runs a trap only after the command that it waits for has ended: give it time' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l on-lost -d 'With --while-pid: what happens to PID when the lock is lost, or dlock break asks for it' -r -f -a "stop\t'SIGTERM, then SIGKILL'
kill\t'SIGKILL at once, without SIGTERM'
ignore\t'Do not stop it; dlock run exits with the command\'s own exit code'"
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l connect-timeout -d 'How long connecting to the backend may take' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l replicas -d 'redis: count a grant or renewal only when this many replicas have confirmed it' -r
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l require-backend -d 'If no backend is chosen, exit with 64 instead of using file:'
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -s n -l nonblock -l nb -d 'Do not wait: exit with 75 when the lock is held. Connecting may then take 2s at most'
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l shell -d 'Print a line for eval in a shell. It exports DLOCK_HANDLE, DLOCK_KEY, DLOCK_TOKEN and DLOCK_OWNER, and DLOCK_HANDLE_SHELL, by which dlock release knows that shell. On failure, it unsets all of them and fails with dlock\'s exit code'
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l json -d 'Print one JSON document, see dlock-json(7)'
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -s q -l quiet -d 'Errors only'
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -s v -l verbose -d 'Also report what was done'
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -l strict-fencing -d 'redlock: refuse servers that could forget a fencing token (appendfsync always is needed)'
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand acquire" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand renew" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand renew" -l connect-timeout -d 'How long connecting to the backend may take' -r
complete -c dlock -n "__fish_dlock_using_subcommand renew" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand renew" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand renew" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand renew" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand renew" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand renew" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand renew" -l replicas -d 'redis: count a grant or renewal only when this many replicas have confirmed it' -r
complete -c dlock -n "__fish_dlock_using_subcommand renew" -s q -l quiet -d 'Errors only'
complete -c dlock -n "__fish_dlock_using_subcommand renew" -s v -l verbose -d 'Also report what was done'
complete -c dlock -n "__fish_dlock_using_subcommand renew" -l strict-fencing -d 'redlock: refuse servers that could forget a fencing token (appendfsync always is needed)'
complete -c dlock -n "__fish_dlock_using_subcommand renew" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand renew" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand release" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand release" -l connect-timeout -d 'How long connecting to the backend may take' -r
complete -c dlock -n "__fish_dlock_using_subcommand release" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand release" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand release" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand release" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand release" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand release" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand release" -l replicas -d 'redis: count a grant or renewal only when this many replicas have confirmed it' -r
complete -c dlock -n "__fish_dlock_using_subcommand release" -s q -l quiet -d 'Errors only'
complete -c dlock -n "__fish_dlock_using_subcommand release" -s v -l verbose -d 'Also report what was done'
complete -c dlock -n "__fish_dlock_using_subcommand release" -l strict-fencing -d 'redlock: refuse servers that could forget a fencing token (appendfsync always is needed)'
complete -c dlock -n "__fish_dlock_using_subcommand release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand release" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand check" -s t -l ttl -d 'Length of the lease that runs will ask for, to compare with what the service grants and how fast it answers' -r
complete -c dlock -n "__fish_dlock_using_subcommand check" -s b -l backend -d 'The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, redlock://host,host,host, etcd://host,host,host, zk://host,host,host[/chroot], postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand check" -l namespace -d 'Prefix for every key on a server; may be empty. Ignored by file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand check" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand check" -l time -d 'Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always' -r -f -a "utc\t'UTC'
local\t'The time zone of this host, or of TZ'"
complete -c dlock -n "__fish_dlock_using_subcommand check" -l connect-timeout -d 'How long connecting to the backend may take' -r
complete -c dlock -n "__fish_dlock_using_subcommand check" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand check" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand check" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand check" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand check" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand check" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand check" -l replicas -d 'redis: count a grant or renewal only when this many replicas have confirmed it' -r
complete -c dlock -n "__fish_dlock_using_subcommand check" -l json -d 'Print one JSON document, see dlock-json(7)'
complete -c dlock -n "__fish_dlock_using_subcommand check" -s q -l quiet -d 'Print nothing unless --json is given; only the exit code tells'
complete -c dlock -n "__fish_dlock_using_subcommand check" -l require-backend -d 'If no backend is chosen, exit with 64 instead of using file:'
complete -c dlock -n "__fish_dlock_using_subcommand check" -l strict-fencing -d 'redlock: refuse servers that could forget a fencing token (appendfsync always is needed)'
complete -c dlock -n "__fish_dlock_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand check" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand config" -s b -l backend -d 'The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, redlock://host,host,host, etcd://host,host,host, zk://host,host,host[/chroot], postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand config" -l namespace -d 'Prefix for every key on a server; may be empty. Ignored by file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand config" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand config" -l time -d 'Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always' -r -f -a "utc\t'UTC'
local\t'The time zone of this host, or of TZ'"
complete -c dlock -n "__fish_dlock_using_subcommand config" -l connect-timeout -d 'How long connecting to the backend may take' -r
complete -c dlock -n "__fish_dlock_using_subcommand config" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand config" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand config" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand config" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand config" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand config" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand config" -l json -d 'Print one JSON object; see dlock-json(7)'
complete -c dlock -n "__fish_dlock_using_subcommand config" -l require-backend -d 'If no backend is chosen, exit with 64 instead of using file:'
complete -c dlock -n "__fish_dlock_using_subcommand config" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand config" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand generate" -s b -l backend -d 'With postgres or mysql: the URL of the locks, for the names of their table and their user' -r
complete -c dlock -n "__fish_dlock_using_subcommand generate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand generate" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand help" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand help" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s k -l key -d 'The lock\'s name: 1 to 512 bytes of UTF-8 without control characters. Repeat it to hold up to 16 locks at once, all or none; every dlock takes them in the same order, so that runs cannot deadlock' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l handle -d 'Run under a lock that dlock acquire has taken, instead of taking one. The lock is renewed while the command runs, and stays held afterwards. If it is no longer held, exit with 79 without running the command. Runs under one handle do not exclude each other. Excludes the options that say which lock to take, and how' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l namespace -d 'Prefix for every key on a server; may be empty. Ignored by file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l time -d 'Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always' -r -f -a "utc\t'UTC'
local\t'The time zone of this host, or of TZ'"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l slots -d 'Let up to N runs (1 to 1000) hold the lock at the same time. Each run finds its own number, from 0 to N-1, in DLOCK_SLOT. While the lock is in use with another N, exit with 64' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -s E -l conflict-exit-code -d 'Exit code when the lock was not acquired; 0 makes a skipped run a success' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l on-lost -d 'Action on the command when the lock is lost' -r -f -a "stop\t'SIGTERM, then SIGKILL'
kill\t'SIGKILL at once, without SIGTERM'
ignore\t'Do not stop it; dlock run exits with the command\'s own exit code'"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l leftovers -d 'Action on processes that the command leaves running. If a signal ended the command, or it was told to end and did so within --kill-after, they are always stopped' -r -f -a "leave\t'Leave them running, and release the lock'
wait\t'Hold the lock until they have ended. A signal that asks dlock to end, and --max-run, stop them'
kill\t'Stop them, then release the lock'"
complete -c dlock -n "__fish_dlock_using_subcommand run" -s c -l command -d 'Run STRING with /bin/sh -c instead of a command' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l reason -d 'Text shown to waiters, and by status and list' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l events -d 'Append a JSON line for each event (waiting, acquired, started, renewed, lost, stopping, exited, released, end and more) to this file, or write it to an open descriptor, fd:3 or higher; see dlock-json(7). COMMAND does not inherit the descriptor, and dlock never waits for a reader' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l replicas -d 'redis: count a grant or renewal only when this many replicas have confirmed it' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -s b -l backend -d 'The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, redlock://host,host,host, etcd://host,host,host, zk://host,host,host[/chroot], postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file:' -r -f -a "file:\t''
redis://\t''
rediss://\t''
valkey://\t''
valkeys://\t''
redis+unix://\t''
redis+sentinel://\t''
redis-sentinel://\t''
rediss+sentinel://\t''
redlock://\t''
redlocks://\t''
etcd://\t''
etcds://\t''
zk://\t''
zks://\t''
postgres://\t''
postgress://\t''
postgresql://\t''
postgres+unix://\t''
mysql://\t''
mysqls://\t''
mariadb://\t''
mariadbs://\t''
mysql+unix://\t''"
complete -c dlock -n "__fish_dlock_using_subcommand run" -s w -l wait -l timeout -d 'Wait at most this long for the lock, or for a backend that cannot be reached; 0 means --nonblock. By default, the wait for the lock has no limit, and a backend that cannot be reached at first is an error at once' -r -f -a "10s\t''
1m\t''
10m\t''
1h\t''"
complete -c dlock -n "__fish_dlock_using_subcommand run" -s t -l ttl -d 'Length of the lease, at least 1s: how long the lock outlives a dead holder. etcd (at least 2s by default) and ZooKeeper (4s to 40s) have their own limits, and grant the nearest length' -r -f -a "10s\t''
30s\t''
1m\t''
5m\t''"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l kill-after -d 'Time between SIGTERM and SIGKILL where dlock stops the command (the lock is lost, --max-run, dlock break), at most half of the granted ttl (zk: a quarter); default: the smaller of 5s and a quarter of the ttl. A signal to dlock is only passed on' -r -f -a "1s\t''
5s\t''
10s\t''"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l min-hold -d 'Keep the lock for at least this long after it was acquired, even if the command ends or fails sooner, or dlock is killed. With -n, a job that several hosts start at about the same time then runs once: make it longer than the clock skew between the hosts, but shorter than the interval between runs. A command that cannot be executed frees the lock. Ignored in a nested run for the same lock' -r -f -a "10s\t''
1m\t''
5m\t''"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l lock-delay -d 'Keep the lock for this much longer if its holder vanishes without releasing it (its host died, dlock was killed), so that work that cannot check DLOCK_TOKEN can finish. The command still ends within --ttl, and a release frees the lock at once, also after the command was stopped. zk: at most a sixth of --ttl. Not for file:. Ignored in a nested run for the same lock' -r -f -a "5s\t''
15s\t''
1m\t''"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l once-per -d 'Let at most one run for this lock succeed (exit code 0) in each PERIOD, such as 1h. The other runs with the same PERIOD wait: if it succeeds they are skipped, with the exit code of a lock that was not acquired, and if it fails one of them takes over. With -n they do not wait. Periods are multiples of their length since 1970 in UTC, by the clock of this host. Not with --shared or --slots, nor in a nested run for the same lock' -r -f -a "15m\t''
1h\t''
1d\t''"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l max-run -d 'Stop the command after this long, and exit with 124' -r -f -a "10m\t''
1h\t''
12h\t''"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l connect-timeout -d 'How long connecting to the backend may take' -r -f -a "1s\t''
5s\t''
10s\t''"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l require-backend -d 'If no backend is chosen, exit with 64 instead of using file:'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s n -l nonblock -l nb -d 'Do not wait: exit with 75 when the lock is held. Connecting may then take 2s at most'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s x -l exclusive -d 'Hold the lock alone, which is the default'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s s -l shared -d 'Hold the lock together with other --shared runs (readers), but never together with an --exclusive or --slots run. Waiters are served in order, so a stream of readers does not keep a writer out'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s o -l close -d 'file: do not let the command inherit the locked descriptor'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s q -l quiet -d 'Errors only'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s v -l verbose -d 'Also report when the lock is acquired and released, and who broke it in the last week'
complete -c dlock -n "__fish_dlock_using_subcommand run" -l strict-fencing -d 'redlock: refuse servers that could forget a fencing token (appendfsync always is needed)'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand status" -s k -l key -d 'The lock\'s name: 1 to 512 bytes of UTF-8 without control characters' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l done-within -d 'Exit with 0 if a run of this lock with --once-per has succeeded within this time, else with 75, and say when the last one did' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l namespace -d 'Prefix for every key on a server; may be empty. Ignored by file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l time -d 'Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always' -r -f -a "utc\t'UTC'
local\t'The time zone of this host, or of TZ'"
complete -c dlock -n "__fish_dlock_using_subcommand status" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand status" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand status" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand status" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand status" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -s b -l backend -d 'The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, redlock://host,host,host, etcd://host,host,host, zk://host,host,host[/chroot], postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file:' -r -f -a "file:\t''
redis://\t''
rediss://\t''
valkey://\t''
valkeys://\t''
redis+unix://\t''
redis+sentinel://\t''
redis-sentinel://\t''
rediss+sentinel://\t''
redlock://\t''
redlocks://\t''
etcd://\t''
etcds://\t''
zk://\t''
zks://\t''
postgres://\t''
postgress://\t''
postgresql://\t''
postgres+unix://\t''
mysql://\t''
mysqls://\t''
mariadb://\t''
mariadbs://\t''
mysql+unix://\t''"
complete -c dlock -n "__fish_dlock_using_subcommand status" -l connect-timeout -d 'How long connecting to the backend may take' -r -f -a "1s\t''
5s\t''
10s\t''"
complete -c dlock -n "__fish_dlock_using_subcommand status" -l json -d 'Print one JSON document, see dlock-json(7); with --watch, one line for each change'
complete -c dlock -n "__fish_dlock_using_subcommand status" -l watch -d 'Keep the output up to date until Ctrl-C'
complete -c dlock -n "__fish_dlock_using_subcommand status" -s q -l quiet -d 'Print no remarks. With status, print nothing unless --json or --watch is given: only the exit code tells'
complete -c dlock -n "__fish_dlock_using_subcommand status" -l require-backend -d 'If no backend is chosen, exit with 64 instead of using file:'
complete -c dlock -n "__fish_dlock_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand status" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand list" -l limit -d 'Show at most N locks, the first by name; 0 for all' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l namespace -d 'Prefix for every key on a server; may be empty. Ignored by file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l time -d 'Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always' -r -f -a "utc\t'UTC'
local\t'The time zone of this host, or of TZ'"
complete -c dlock -n "__fish_dlock_using_subcommand list" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand list" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand list" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand list" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand list" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -s b -l backend -d 'The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, redlock://host,host,host, etcd://host,host,host, zk://host,host,host[/chroot], postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file:' -r -f -a "file:\t''
redis://\t''
rediss://\t''
valkey://\t''
valkeys://\t''
redis+unix://\t''
redis+sentinel://\t''
redis-sentinel://\t''
rediss+sentinel://\t''
redlock://\t''
redlocks://\t''
etcd://\t''
etcds://\t''
zk://\t''
zks://\t''
postgres://\t''
postgress://\t''
postgresql://\t''
postgres+unix://\t''
mysql://\t''
mysqls://\t''
mariadb://\t''
mariadbs://\t''
mysql+unix://\t''"
complete -c dlock -n "__fish_dlock_using_subcommand list" -l connect-timeout -d 'How long connecting to the backend may take' -r -f -a "1s\t''
5s\t''
10s\t''"
complete -c dlock -n "__fish_dlock_using_subcommand list" -l json -d 'Print one JSON document, see dlock-json(7); with --watch, one line for each change'
complete -c dlock -n "__fish_dlock_using_subcommand list" -l watch -d 'Keep the output up to date until Ctrl-C'
complete -c dlock -n "__fish_dlock_using_subcommand list" -s q -l quiet -d 'Print no remarks. With status, print nothing unless --json or --watch is given: only the exit code tells'
complete -c dlock -n "__fish_dlock_using_subcommand list" -l require-backend -d 'If no backend is chosen, exit with 64 instead of using file:'
complete -c dlock -n "__fish_dlock_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand list" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand held" -s k -l key -d 'The lock\'s name: 1 to 512 bytes of UTF-8 without control characters. Repeat it to ask for several locks: all must be held' -r
complete -c dlock -n "__fish_dlock_using_subcommand held" -l namespace -d 'Prefix for every key on a server; may be empty. Ignored by file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand held" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand held" -l time -d 'Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always' -r -f -a "utc\t'UTC'
local\t'The time zone of this host, or of TZ'"
complete -c dlock -n "__fish_dlock_using_subcommand held" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand held" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand held" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand held" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand held" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand held" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand held" -s b -l backend -d 'The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, redlock://host,host,host, etcd://host,host,host, zk://host,host,host[/chroot], postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file:' -r -f -a "file:\t''
redis://\t''
rediss://\t''
valkey://\t''
valkeys://\t''
redis+unix://\t''
redis+sentinel://\t''
redis-sentinel://\t''
rediss+sentinel://\t''
redlock://\t''
redlocks://\t''
etcd://\t''
etcds://\t''
zk://\t''
zks://\t''
postgres://\t''
postgress://\t''
postgresql://\t''
postgres+unix://\t''
mysql://\t''
mysqls://\t''
mariadb://\t''
mariadbs://\t''
mysql+unix://\t''"
complete -c dlock -n "__fish_dlock_using_subcommand held" -l connect-timeout -d 'How long connecting to the backend may take' -r -f -a "1s\t''
5s\t''
10s\t''"
complete -c dlock -n "__fish_dlock_using_subcommand held" -l require-backend -d 'If no backend is chosen, exit with 64 instead of using file:'
complete -c dlock -n "__fish_dlock_using_subcommand held" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand held" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -s k -l key -d 'The latch\'s name: 1 to 512 bytes of UTF-8 without control characters' -r
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l namespace -d 'Prefix for every key on a server; may be empty. Ignored by file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l time -d 'Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always' -r -f -a "utc\t'UTC'
local\t'The time zone of this host, or of TZ'"
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l as -d 'done: the name that is done; fail: who reports the failure (default: this host)' -r
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l count -d 'wait: how many names must be done, from 1 to 1000' -r
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l reason -d 'fail: the reason, shown to those who wait' -r
complete -c dlock -n "__fish_dlock_using_subcommand latch" -s E -l conflict-exit-code -d 'Exit code when the wait ran out' -r
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l replicas -d 'redis: count a grant or renewal only when this many replicas have confirmed it' -r
complete -c dlock -n "__fish_dlock_using_subcommand latch" -s b -l backend -d 'The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, redlock://host,host,host, etcd://host,host,host, zk://host,host,host[/chroot], postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, mysqls or mariadbs; default file:' -r -f -a "file:\t''
redis://\t''
rediss://\t''
valkey://\t''
valkeys://\t''
redis+unix://\t''
redis+sentinel://\t''
redis-sentinel://\t''
rediss+sentinel://\t''
redlock://\t''
redlocks://\t''
etcd://\t''
etcds://\t''
zk://\t''
zks://\t''
postgres://\t''
postgress://\t''
postgresql://\t''
postgres+unix://\t''
mysql://\t''
mysqls://\t''
mariadb://\t''
mariadbs://\t''
mysql+unix://\t''"
complete -c dlock -n "__fish_dlock_using_subcommand latch" -s w -l wait -d 'Wait at most this long, including for the backend; 0 means do not wait. By default, the wait has no limit, and an error of the backend ends it' -r -f -a "10s\t''
1m\t''
10m\t''
1h\t''"
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l keep -d 'done and fail: how long this is remembered' -r -f -a "1h\t''
24h\t''
7days\t''"
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l connect-timeout -d 'How long connecting to the backend may take' -r -f -a "1s\t''
5s\t''
10s\t''"
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l require-backend -d 'If no backend is chosen, exit with 64 instead of using file:'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l json -d 'show: print one JSON document, see dlock-json(7)'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -s q -l quiet -d 'Errors only'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -s v -l verbose -d 'Also report what was done'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -l strict-fencing -d 'redlock: refuse servers that could forget a fencing token (appendfsync always is needed)'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -s k -l key -d 'The barrier\'s name: 1 to 512 bytes of UTF-8 without control characters' -r
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l namespace -d 'Prefix for every key on a server; may be empty. Ignored by file:' -r
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l profile -d 'Use the values of this profile in the config files' -r
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l time -d 'Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always' -r -f -a "utc\t'UTC'
local\t'The time zone of this host, or of TZ'"
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l parties -d 'How many parties must be there, from 1 to 100' -r
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l as -d 'This party\'s name, which must be unique; default: the name of the host, on file: the process id' -r
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -s E -l conflict-exit-code -d 'Exit code when the wait ran out' -r
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l user -d 'User name at the backend, if the URL has none' -r
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l password-file -d 'Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is longer; if neither is given, within 2m' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l tls-ca -d 'TLS: trust these certificate authorities (PEM) instead of the system\'s' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l tls-cert -d 'TLS: the client certificate (PEM), for servers that require one' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l tls-key -d 'TLS: the private key of the client certificate (PEM)' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l tls-server-name -d 'TLS: the name in the server\'s certificate, if it is not the host in the URL' -r
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l replicas -d 'redis: count a grant or renewal only when this many replicas have confirmed it' -r
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -s b -l backend -d 'The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, etcd://host,host,host, zk://host,host,host[/chroot], postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, etcds, zks, postgress, mysqls or mariadbs; default file:' -r -f -a "file:\t''
redis://\t''
rediss://\t''
valkey://\t''
valkeys://\t''
redis+unix://\t''
redis+sentinel://\t''
redis-sentinel://\t''
rediss+sentinel://\t''
redlock://\t''
redlocks://\t''
etcd://\t''
etcds://\t''
zk://\t''
zks://\t''
postgres://\t''
postgress://\t''
postgresql://\t''
postgres+unix://\t''
mysql://\t''
mysqls://\t''
mariadb://\t''
mariadbs://\t''
mysql+unix://\t''"
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -s w -l wait -d 'Wait at most this long, including for the backend; 0 means do not wait. By default, the wait has no limit, and an error of the backend ends it' -r -f -a "10s\t''
1m\t''
10m\t''
1h\t''"
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -s t -l ttl -d 'How long it takes to notice that a party died, at least 1s. etcd (at least 2s by default) and ZooKeeper (4s to 40s) have their own limits; file: notices at once' -r -f -a "10s\t''
30s\t''
1m\t''
5m\t''"
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l connect-timeout -d 'How long connecting to the backend may take' -r -f -a "1s\t''
5s\t''
10s\t''"
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l require-backend -d 'If no backend is chosen, exit with 64 instead of using file:'
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l patient -d 'Keep waiting when others leave or die'
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -s q -l quiet -d 'Errors only'
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -s v -l verbose -d 'Also report what was done'
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -l strict-fencing -d 'redlock: refuse servers that could forget a fencing token (appendfsync always is needed)'
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dlock -n "__fish_dlock_using_subcommand barrier" -s V -l version -d 'Print version'

function __fish_dlock_command
    set -l words (commandline -opc)
    while set -q words[1]; and test "$words[1]" != --
        set -e words[1]
    end
    set -e words[1]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end
complete -c dlock -n "__fish_dlock_using_subcommand run; and contains -- -- (commandline -opc)" -f -a "(__fish_dlock_command)"
complete -c dlock -n "__fish_dlock_using_subcommand generate" -f -a man -d 'The man page'
complete -c dlock -n "__fish_dlock_using_subcommand generate" -f -a bash -d 'Completions for bash'
complete -c dlock -n "__fish_dlock_using_subcommand generate" -f -a zsh -d 'Completions for zsh'
complete -c dlock -n "__fish_dlock_using_subcommand generate" -f -a fish -d 'Completions for fish'
complete -c dlock -n "__fish_dlock_using_subcommand generate" -f -a postgres -d 'The statements that make the tables there'
complete -c dlock -n "__fish_dlock_using_subcommand generate" -f -a mysql -d 'The statements that make the tables there'
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a run -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a flock -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a status -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a list -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a held -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a break -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a acquire -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a renew -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a release -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a latch -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a barrier -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a check -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a config -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a generate -d ''
complete -c dlock -n "__fish_dlock_using_subcommand help" -f -a help -d ''
complete -c dlock -n "__fish_dlock_using_subcommand latch" -f -a done -d 'Report that the name of --as is done'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -f -a wait -d 'Wait until --count names are done'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -f -a fail -d 'Mark the latch as failed: all who wait, now or later, exit with 79'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -f -a show -d 'Show which names are done, and whether the latch has failed'
complete -c dlock -n "__fish_dlock_using_subcommand latch" -f -a forget -d 'Forget the names and the failure'
