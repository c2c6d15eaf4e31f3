# A DataNode that stops writes to disk what is only in memory. The tmpfs is unmounted only if that is certain: it may have the only copy of some
# data. A DataNode that starts again and again is neither active before `systemctl stop` nor failed after it.
if [ -d /run/systemd/system ]; then
    memory=/var/lib/hearth/memory
    served=" $(systemctl list-units --state=active --no-legend --plain 'hearth@*.service' hearth-datanode.service | cut -d ' ' -f 1 | tr '\n' ' ')"
    systemctl stop 'hearth@*.service' hearth-datanode.service hearth-namenode.service
    # of UNIT PROPERTY
    of() { systemctl show -p "$2" --value "$1"; }
    # has_flushed UNIT: whether it served before, and ended well.
    has_flushed() {
        case $served in
        *" $1 "*) [ "$(of "$1" Result)" = success ] ;;
        *) return 1 ;;
        esac
    }
    # The replicas of hearth@NAME are in directories of its own: hearth-UID-HASH.
    own=$memory/'hearth-[0-9]*-[0-9a-f]*/*'
    if [ -n "$(find $memory -type f -size +0 ! -path "$own" -print -quit 2>/dev/null)" ] && ! has_flushed hearth-datanode.service; then
        echo "hearth: writing what a DataNode has left in $memory to its disks"
        # As the service: drop-ins may have changed its user and its configuration.
        if ! systemd-run --quiet --wait --pipe --collect -p LimitNOFILE=1048576 -p "User=$(of hearth-datanode.service User)" \
            -p "Group=$(of hearth-datanode.service Group)" -p "Environment=$(of hearth-datanode.service Environment)" \
            -p EnvironmentFile=-/etc/default/hearth /usr/bin/hearth datanode --flush; then
            echo "hearth: not removed: 'hearth datanode --flush' has failed, and $memory may have the only copy of some data."
            echo "Correct what the lines above name, such as a full disk, and remove the package again."
            echo "To lose that data instead: run 'find $memory -type f -delete', and remove the package again."
            exit 1
        fi
    fi
    if [ -n "$(find $memory -type f -size +0 -path "$own" -print -quit 2>/dev/null)" ]; then
        doubtful=
        for directory in /var/lib/hearth/up/*/; do
            unit=hearth@$(basename "$directory").service
            [ ! -d "$directory" ] || has_flushed "$unit" || doubtful="$doubtful $unit"
        done
        if [ -n "$doubtful" ]; then
            echo "hearth: not removed: these did not run or have failed, and $memory may have the only copy of some data:$doubtful"
            echo "Start them with 'systemctl start$doubtful', and remove the package again while they run: they write that data to disk when they stop."
            echo "To lose that data instead: run 'rm -r $memory/hearth-*', and remove the package again."
            exit 1
        fi
    fi
    systemctl disable hearth-namenode.service hearth-datanode.service
    # Instances have no unit file of their own, so that a pattern would not find them.
    for link in /etc/systemd/system/*.wants/hearth@*.service; do
        [ ! -L "$link" ] || systemctl disable "$(basename "$link")"
    done
    # Clients may still have replicas open.
    systemctl stop var-lib-hearth-memory.mount || echo "hearth: $memory is still in use, and stays mounted"
fi
exit 0
