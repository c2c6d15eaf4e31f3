set -e
[ "$1" -eq 0 ] || exit 0
