#!/bin/sh
# Init process of the virtual machine, which runs in two stages: first on the host's tree as the kernel mounted it, then
# (`inside`) in the same tree with a tmpfs overlay, where it sets up the networks and runs the command. $HEARTH_VM, from
# the kernel's command line, is the run's directory on the host. It contains `settings` and `command`, and receives
# `out`, `err`, `setup` and `status`.
off() { exec busybox poweroff -f; }

if [ "$1" != inside ]; then
    PATH=/usr/sbin:/usr/bin:/sbin:/bin
    export PATH
    busybox mount -t tmpfs -o size=80% over /mnt || off
    busybox mkdir -p /mnt/upper /mnt/work /mnt/root
    busybox mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work root /mnt/root || off
    cd /mnt/root || off
    busybox mount -t proc proc proc
    busybox mount -t sysfs sys sys
    busybox mount -t devtmpfs dev dev
    busybox mkdir -p dev/shm dev/pts
    busybox mount -t tmpfs -o size=80% shm dev/shm
    busybox mount -t devpts pts dev/pts
    busybox mount -t tmpfs run run
    busybox mkdir -p run/vm
    busybox mount -t hostfs -o "$HEARTH_VM" run run/vm || off
    while read -r folder; do
        busybox mkdir -p "./$folder"
        busybox mount -t hostfs -o "$folder" shared "./$folder" || off
    done < run/vm/shared
    exec busybox chroot . /bin/sh /run/vm/guest.sh inside
fi

. /run/vm/settings

# Adds a verbs device of each requested kind on network device $2: siw$1, rxe$1.
add_devices() {
    for kind in $devices; do
        rdma link add "$kind$1" type "$kind" netdev "$2"
    done
}

{
    set -x
    ulimit -l unlimited
    ulimit -n 65536
    busybox hostname hearth-vm
    # Apache's NameNode resolves its own host name.
    echo '127.0.0.1 hearth-vm' >>/etc/hosts
    ip link set lo up
    if [ "$hosts" = 0 ]; then
        # Not the loopback device: rdma_cm finds no route over it, because its hardware address is zero.
        ip link add dummy0 type dummy
        ip link set dummy0 mtu "$mtu" up
        ip address add 10.8.0.1/24 dev dummy0
        add_devices 0 dummy0
    else
        ip link add bridge0 mtu "$mtu" type bridge
        ip link set bridge0 up
        ip address add 10.9.0.254/24 dev bridge0
        host=1
        while [ "$host" -le "$hosts" ]; do
            ip netns add "host$host"
            ip link add "port$host" mtu "$mtu" type veth peer name eth0 mtu "$mtu" netns "host$host"
            ip link set "port$host" master bridge0 up
            ip -n "host$host" link set lo up
            ip -n "host$host" link set eth0 up
            ip -n "host$host" address add "10.9.0.$host/24" dev eth0
            for kind in $devices; do
                ip netns exec "host$host" rdma link add "$kind$host" type "$kind" netdev eth0
            done
            host=$((host + 1))
        done
    fi
    # perftest divides by the clock rate, which this kernel does not report.
    { busybox cat /proc/cpuinfo; echo "cpu MHz : $megahertz"; } > /run/cpuinfo
    busybox mount --bind /run/cpuinfo /proc/cpuinfo
    set +x
} > /run/vm/setup 2>&1

(
    cd "$directory" || exit 125
    . /run/vm/command
) < /dev/null > /run/vm/out 2> /run/vm/err
echo $? > /run/vm/status
off
