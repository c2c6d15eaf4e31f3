#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ "$1" = purge ] && [ -d /var/lib/hearth ]; then
    echo "hearth: the files of the file system stay in /var/lib/hearth; remove them if nobody needs them"
fi
exit 0
