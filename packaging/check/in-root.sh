#!/bin/sh
# Runs a script in a Debian root: in-root.sh ROOT WORK PACKAGES SCRIPTS SCRIPT [ARGUMENT...]
#
# `unshare` runs this in namespaces of its own. So the root stays as it is, ports collide with nothing, and all processes end with it.
set -eu
root=$1 work=$2 packages=$3 scripts=$4 script=$5
shift 5
ip link set lo up
mkdir -p "$work/upper" "$work/work" "$work/merged"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" "$work/merged"
cd "$work/merged"
mkdir packages scripts
mount --bind "$packages" packages
mount --bind "$scripts" scripts
mount -t proc proc proc
mount --rbind /dev dev
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    chroot . /bin/sh "/scripts/$script" "$@"
