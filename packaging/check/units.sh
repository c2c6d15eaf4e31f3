# Starts and stops services without systemd, from the text of their units. To be sourced.

units=/usr/lib/systemd/system
logs=/tmp/logs
mkdir -p $logs

say() { echo "--- $*"; }
fail() { echo "FAILED: $*"; tail -n 20 $logs/* 2>/dev/null; exit 1; }

# value UNIT KEY: the values of a key, with %i and %% replaced.
value() { sed -n "s/^$2=//p" "$units/$1" | sed "s/%i/${instance:-}/g; s/%%/%/g"; }

mount_unit() {
    where=$(value "$1" Where)
    mkdir -p "$where"
    if ! mount -t "$(value "$1" Type)" -o "$(value "$1" Options)" "$(value "$1" What)" "$where"; then
        fail "mount $1"
    fi
}

# start NAME UNIT: runs ExecStartPre= as root, then ExecStart= as the unit's user with its limits. Waits until READY or the URI is printed.
start() {
    value "$2" ExecStartPre | sed 's/^+//' | sh -e || fail "ExecStartPre of $2"
    runtime=$(value "$2" RuntimeDirectory)
    [ -z "$runtime" ] || install -d -o hearth -g hearth "/run/$runtime"
    : >$logs/"$1"
    # A sandbox may allow fewer files than the unit asks for.
    files=$(value "$2" LimitNOFILE) allowed=$(ulimit -H -n)
    [ "$allowed" = unlimited ] || [ "$allowed" -ge "$files" ] || files=$allowed
    # Each program becomes the next one, so that the process is the server.
    # shellcheck disable=SC2046
    env $(value "$2" Environment) prlimit --nofile="$files" \
        setpriv --reuid "$(value "$2" User)" --regid "$(value "$2" Group)" --init-groups --no-new-privs \
        sh -c "exec $(value "$2" ExecStart)" >>$logs/"$1" 2>&1 &
    eval "pid_$1=$!"
    await "$1"
}

# await NAME: waits until the log of a started program has READY or a URI.
await() {
    waited=0
    until grep -qE '^(READY|hdfs://)' $logs/"$1"; do
        waited=$((waited + 1))
        [ $waited -lt 600 ] || fail "$1 is not ready after a minute"
        kill -0 "$(pid_of "$1")" 2>/dev/null || fail "$1 has ended"
        sleep 0.1
    done
    grep -E '^(READY|hdfs://)' $logs/"$1"
}

pid_of() { eval "echo \$pid_$1"; }

# stop NAME [SIGNAL]: expects the exit code 0 after SIGTERM.
stop() {
    kill -"${2:-TERM}" "$(pid_of "$1")"
    code=0
    wait "$(pid_of "$1")" || code=$?
    [ "${2:-TERM}" != TERM ] || [ $code -eq 0 ] || fail "$1 ended with $code after SIGTERM"
}

as_hearth() { setpriv --reuid hearth --regid hearth --init-groups "$@"; }
