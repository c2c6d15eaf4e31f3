#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
data=/var/lib/hearth
if [ "$1" = purge ] && [ -d "$data" ]; then
    # The namespace and the replicas. What is mounted below, a disk or the tmpfs, stays.
    rm -rf --one-file-system "$data" || echo "hearth: $data is not removed as a whole: something is mounted in it"
fi
exit 0
