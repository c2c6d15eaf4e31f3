#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || echo "hearth: run 'systemctl daemon-reload', which has failed"
fi
if [ "$1" = purge ] && [ -d /var/lib/hearth ]; then
    # The namespace and the replicas are not this package's to delete.
    echo "hearth: the files stay in /var/lib/hearth; delete it if nobody needs them"
fi
exit 0
