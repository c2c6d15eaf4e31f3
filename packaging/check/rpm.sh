# Outside of the root, which has no rpm: installs the .rpm into ROOT, upgrades and removes it. rpm.sh ROOT PACKAGES VERSION NEXT_VERSION
set -eu
root=$1 packages=$2 version=$3 next=$4
fail() { echo "FAILED: $*"; exit 1; }
# Debian's packages are not in RPM's database.
rpm_in() { rpm --root "$root" --nodeps --noplugins "$@"; }
mkdir -p "$root/var/lib/rpm"
rpm --checksig --nosignature "$packages/hearth-$version-1."*.rpm || fail "digests"
rpm -qp --requires --recommends "$packages/hearth-$version-1."*.rpm
rpm_in -i "$packages/hearth-$version-1."*.rpm || fail "rpm -i"
chroot "$root" /usr/bin/hearth version || fail "hearth version"
[ "$(chroot "$root" stat -c %U /var/lib/hearth)" = hearth ] || fail "the user or the directory was not made"
rpm_in -V hearth || fail "files differ from the package"
[ -s "$root/usr/share/hearth/monitoring/grafana/hearth.json" ] || fail "no dashboard"
chroot "$root" /usr/bin/hearth config check --config /etc/hearth || fail "config check"
echo '<configuration/>' >"$root/etc/hearth/core-site.xml"
rpm_in -U "$packages/hearth-$next-1."*.rpm || fail "rpm -U"
[ "$(rpm --root "$root" -q --qf '%{VERSION}' hearth)" = "$next" ] || fail "version after the upgrade"
[ "$(cat "$root/etc/hearth/core-site.xml")" = '<configuration/>' ] || fail "the upgrade replaced a changed configuration"
echo kept >"$root/var/lib/hearth/file"
rpm_in -e hearth || fail "rpm -e"
[ ! -e "$root/usr/bin/hearth" ] || fail "the program is still there"
[ "$(cat "$root/var/lib/hearth/file")" = kept ] || fail "removal took the data"
[ "$(cat "$root/etc/hearth/core-site.xml.rpmsave")" = '<configuration/>' ] || fail "removal took the changed configuration"
echo "--- the .rpm is good"
