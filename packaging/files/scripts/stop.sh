# The DataNode writes to disk what is only in memory when it stops. If it could not, the tmpfs has the only copy, and the package stays.
if [ -d /run/systemd/system ]; then
    systemctl stop 'hearth@*.service' hearth-datanode.service hearth-namenode.service
    failed=$(systemctl list-units --state=failed --no-legend --plain 'hearth@*.service' hearth-datanode.service)
    if [ -n "$failed" ] && [ -n "$(find /var/lib/hearth/memory -type f -size +0 -print -quit 2>/dev/null)" ]; then
        echo "hearth: not removed: a DataNode has failed, and /var/lib/hearth/memory may have the only copy of some data:"
        echo "$failed"
        echo "Make room on its disks and run 'hearth datanode --flush' as its user. Then, or to lose that data: systemctl reset-failed 'hearth*', and remove the package again."
        exit 1
    fi
    systemctl disable hearth-namenode.service hearth-datanode.service
    # Instances have no unit file of their own, so that a pattern would not find them.
    for link in /etc/systemd/system/*.wants/hearth@*.service; do
        [ ! -L "$link" ] || systemctl disable "$(basename "$link")"
    done
    # Clients may still have replicas open.
    systemctl stop var-lib-hearth-memory.mount || echo "hearth: /var/lib/hearth/memory is still in use, and stays mounted"
fi
exit 0
