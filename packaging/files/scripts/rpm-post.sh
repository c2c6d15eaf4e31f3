set -e
# RPM passes how many versions are installed now.
upgrade=
[ "$1" -lt 2 ] || upgrade=yes
