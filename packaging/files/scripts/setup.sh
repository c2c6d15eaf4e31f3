# Makes the user and the directories. An upgrade then restarts the services that run, unless the administrator does that. Nothing is started that
# did not run: an administrator configures it first.
if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers hearth.conf
elif ! getent passwd hearth >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir /var/lib/hearth --shell /usr/sbin/nologin hearth
fi
if command -v systemd-tmpfiles >/dev/null; then
    systemd-tmpfiles --create hearth.conf
else
    install -d -m 0755 -o hearth -g hearth /var/lib/hearth /run/hearth
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || echo "hearth: run 'systemctl daemon-reload', which has failed"
    # As systemd reads the file: with quotes of either kind or without.
    if [ -n "$upgrade" ] && ! grep -Eqs "^[[:space:]]*HEARTH_RESTART_ON_UPGRADE=[\"']?no[\"']?[[:space:]]*\$" /etc/default/hearth; then
        # Replicas stay in memory over the restart.
        systemctl try-restart hearth-namenode.service hearth-datanode.service 'hearth@*.service' ||
            echo "hearth: a service did not start again: see systemctl status 'hearth*'"
    fi
fi
exit 0
