#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
# dpkg passes the version that was installed before.
upgrade=$2
