# The DataNode writes to disk what is only in memory, so the tmpfs can go afterwards.
if [ -d /run/systemd/system ]; then
    systemctl disable hearth-namenode.service hearth-datanode.service
    systemctl stop 'hearth@*.service' hearth-datanode.service hearth-namenode.service
    systemctl stop var-lib-hearth-memory.mount
fi
exit 0
