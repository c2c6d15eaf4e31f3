# Runs the container image's root without a container engine, in namespaces of its own: image.sh ROOT UPGRADED_ROOT VOLUME
#
# It does what an engine does: the user and the environment of the image, a volume, /proc, /dev.
set -eu
old=$1 new=$2 volume=$3
fail() { echo "FAILED: $*"; tail -n 20 "$volume".*.log; exit 1; }
# Not in the PATH that the image has.
chroot=$(command -v chroot)
ip link set lo up
install -d -o 8020 -g 8020 "$volume" "$volume/memory"
mount -t tmpfs -o mode=0700,uid=8020,gid=8020,size=25% tmpfs "$volume/memory"
for root in "$old" "$new"; do
    mkdir -p "$root/proc" "$root/dev"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind "$volume" "$root/var/lib/hearth"
done
in_image() { env -i PATH=/usr/bin:/bin HADOOP_CONF_DIR=/etc/hearth "$chroot" --userspec=8020:8020 "$@"; }
start() {
    root=$1 role=$2
    shift 2
    # Not by the function: the process must be the server.
    env -i PATH=/usr/bin:/bin HADOOP_CONF_DIR=/etc/hearth "$chroot" --userspec=8020:8020 "$root" /usr/bin/hearth "$role" "$@" >"$volume.$role.log" 2>&1 &
    eval "$role=$!"
    waited=0
    until grep -q ^READY "$volume.$role.log"; do
        waited=$((waited + 1))
        [ $waited -lt 600 ] || fail "$role is not ready after a minute"
        sleep 0.1
    done
}
stop() {
    kill -TERM "$1"
    wait "$1" || fail "ended with $? after SIGTERM"
}
in_image "$old" /usr/bin/hearth version || fail "hearth version"
in_image "$old" /usr/bin/hearth config check || fail "config check"
head -c 5000000 /dev/urandom >"$volume.data"
start "$old" namenode -format-if-empty
start "$old" datanode
in_image "$old" /usr/bin/hearth fs -put - /data <"$volume.data" || fail "put"
in_image "$old" /usr/bin/hearth fs -cat /data | cmp - "$volume.data" || fail "get"
stop "$datanode"
stop "$namenode"
echo "--- the next image, with the same volume"
start "$new" namenode -format-if-empty
start "$new" datanode
in_image "$new" /usr/bin/hearth fs -cat /data | cmp - "$volume.data" || fail "get after the upgrade"
stop "$datanode"
stop "$namenode"
echo "--- the image is good"
