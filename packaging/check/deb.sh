# In a bare Debian root: installs the .deb, runs its services, puts and gets files, upgrades, removes. deb.sh VERSION NEXT_VERSION
set -eu
version=$1 next=$2
. /scripts/units.sh
deb() { ls /packages/hearth_"$1"_*.deb; }

for absent in cargo rustc java python3 systemctl systemd-sysusers; do
    ! command -v $absent >/dev/null || fail "the root is not bare: it has $absent"
done

say "install $(deb "$version")"
dpkg -i "$(deb "$version")" || fail "dpkg -i"
hearth version
[ "$(stat -c %U:%G /var/lib/hearth)" = hearth:hearth ] || fail "/var/lib/hearth belongs to $(stat -c %U:%G /var/lib/hearth)"
for subcommand in $(hearth --help | sed -n '/^Commands:/,/^$/s/^  \([a-zA-Z][a-zA-Z-]*\) .*/\1/p' | grep -vx help); do
    [ -s "/usr/share/man/man1/hearth-$subcommand.1.gz" ] || fail "no manual page of $subcommand"
done
(cd / && md5sum --quiet -c /var/lib/dpkg/info/hearth.md5sums) || fail "md5sums"

say "completions of bash"
bash -c '. /usr/share/bash-completion/completions/hearth
    complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _hearth hearth "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; echo "${COMPREPLY[*]}"; }
    [ "$(complete_line hearth namen)" = namenode ] || exit 1
    [ "$(complete_line hearth fs -app)" = -appendToFile ] || exit 2
    [ "$(complete_line hearth up --write)" = --write-conf ] || exit 3' || fail "completion $?"

say "start"
mount_unit var-lib-hearth-memory.mount
grep /var/lib/hearth/memory /proc/mounts
start namenode hearth-namenode.service
start datanode hearth-datanode.service

say "put and get"
head -c 20000000 /dev/urandom >/tmp/data
chmod 644 /tmp/data
as_hearth hearth fs -mkdir -p /user/ann || fail "mkdir"
as_hearth hearth fs -put /tmp/data /user/ann/data || fail "put"
# As another user, with the configuration that the package installs.
same() { hearth fs -cat /user/ann/data | cmp - /tmp/data || fail "$1"; }
same "get"
hearth fs -ls /user/ann
find /var/lib/hearth/memory/data -type f -size +1M | grep -q . || fail "no replica is in memory"

say "the DataNode is killed, and finds its replicas"
stop datanode KILL
start datanode hearth-datanode.service
same "get after SIGKILL"

say "upgrade to $(deb "$next") while it runs"
sed -i 's|</configuration>|<property><name>fs.trash.interval</name><value>60</value></property></configuration>|' /etc/hearth/core-site.xml
dpkg -i "$(deb "$next")" || fail "upgrade"
[ "$(dpkg-query -f '${Version}' -W hearth)" = "$next" ] || fail "version after the upgrade"
grep -q fs.trash.interval /etc/hearth/core-site.xml || fail "the upgrade replaced a changed configuration"
same "get from the old servers after the upgrade"
stop datanode
stop namenode
start namenode hearth-namenode.service
start datanode hearth-datanode.service
same "get after the upgrade"
as_hearth hearth fs -rm /user/ann/data | grep -q .Trash || fail "the changed configuration is not read"
as_hearth hearth fs -mv /user/hearth/.Trash/Current/user/ann/data /user/ann/data || fail "mv"

say "a whole file system from hearth@.service"
instance=demo
HEARTH_UP_OPTIONS='--datanodes 2 --port 8120 --http-port 9970'
export HEARTH_UP_OPTIONS
start up hearth@.service
as_hearth env HADOOP_CONF_DIR=/run/hearth-demo hearth fs -put /tmp/data /data || fail "put into hearth@demo"
HADOOP_CONF_DIR=/run/hearth-demo hearth fs -cat /data | cmp - /tmp/data || fail "get from hearth@demo"
stop up
instance=

say "the tmpfs is lost after a stop: everything is on disk"
stop datanode
umount /var/lib/hearth/memory
mount_unit var-lib-hearth-memory.mount
start datanode hearth-datanode.service
same "get from disk"
stop datanode
stop namenode

say "remove"
dpkg -r hearth || fail "remove"
[ ! -e /usr/bin/hearth ] || fail "the program is still there"
[ -e /etc/hearth/core-site.xml ] || fail "remove took the configuration"
[ -e /var/lib/hearth/name/current/VERSION ] || fail "remove took the namespace"
say "install again: the files are there"
dpkg -i "$(deb "$next")" || fail "install again"
start namenode hearth-namenode.service
start datanode hearth-datanode.service
same "get after the second installation"
stop datanode
stop namenode
say "purge"
dpkg -P hearth || fail "purge"
[ ! -e /etc/hearth/core-site.xml ] || fail "purge left the configuration"
[ -e /var/lib/hearth/name/current/VERSION ] || fail "purge took the namespace"
say "the .deb is good"
