if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || echo "hearth: run 'systemctl daemon-reload', which has failed"
fi
exit 0
