# In a bare Debian root: uses the archive, then installs the .deb, runs its services, puts and gets files, upgrades, removes, purges.
# deb.sh VERSION NEXT_VERSION
set -eu
version=$1 next=$2
. /scripts/units.sh
deb() { ls /packages/hearth_"$1"_*.deb; }

for absent in cargo rustc java python3 systemctl systemd-sysusers; do
    ! command -v $absent >/dev/null || fail "the root is not bare: it has $absent"
done

say "the archive, without an installation"
tar -C /tmp -xzf "$(ls /packages/hearth-"$version"-*-linux.tar.gz)"
archive=$(ls -d /tmp/hearth-"$version"-*-linux)
for file in man/man1/hearth.1 completions/hearth.bash systemd/hearth-datanode.service logrotate/hearth monitoring/grafana/hearth.json \
    monitoring/prometheus/alerts.yml examples/one-machine/hdfs-site.xml examples/kubernetes/hearth.yaml README.md copyright; do
    [ -s "$archive/$file" ] || fail "the archive has no $file"
done
"$archive/bin/hearth" up --dir /tmp/up --write-conf /tmp/up-conf --port 0 --http-port 0 >$logs/archive 2>&1 &
pid_archive=$!
await archive
"$archive/bin/hearth" --config /tmp/up-conf fs -put "$archive/copyright" /file || fail "put with the archive"
"$archive/bin/hearth" --config /tmp/up-conf fs -cat /file | cmp - "$archive/copyright" || fail "get with the archive"
stop archive

say "install $(deb "$version")"
dpkg -i "$(deb "$version")" || fail "dpkg -i"
hearth version
[ "$(stat -c %U:%G /var/lib/hearth)" = hearth:hearth ] || fail "/var/lib/hearth belongs to $(stat -c %U:%G /var/lib/hearth)"
for subcommand in $(hearth --help | sed -n '/^Commands:/,/^$/s/^  \([a-zA-Z][a-zA-Z-]*\) .*/\1/p' | grep -vx help); do
    [ -s "/usr/share/man/man1/hearth-$subcommand.1.gz" ] || fail "no manual page of $subcommand"
done
(cd / && md5sum --quiet -c /var/lib/dpkg/info/hearth.md5sums) || fail "md5sums"
for file in /etc/default/hearth /etc/logrotate.d/hearth /usr/share/zsh/vendor-completions/_hearth /usr/share/fish/vendor_completions.d/hearth.fish \
    /usr/lib/sysusers.d/hearth.conf /usr/lib/tmpfiles.d/hearth.conf /usr/share/hearth/monitoring/prometheus/prometheus.yml \
    /usr/share/hearth/monitoring/prometheus/alerts.yml /usr/share/hearth/monitoring/grafana/hearth.json; do
    [ -s $file ] || fail "no $file"
done

say "configurations"
examples=/usr/share/doc/hearth/examples
for conf in /etc/hearth $examples/one-machine $examples/three-machines; do
    hearth config check --config $conf || fail "config check of $conf"
done
# The NameNodes of that one are Apache's.
hearth config check --config $examples/under-apache-namenode --role datanode --role client || fail "config check of under-apache-namenode"

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

say "two file systems from hearth@.service at once"
# start_instance NAME [OPTION...]
start_instance() {
    instance=$1
    shift
    HEARTH_UP_OPTIONS=$*
    export HEARTH_UP_OPTIONS
    start "up_$instance" hearth@.service
}
head -c 3000000 /dev/urandom >/tmp/other
chmod 644 /tmp/other
start_instance one --processes --datanodes 2
start_instance two
[ "$(head -n 1 $logs/up_one)" != "$(head -n 1 $logs/up_two)" ] || fail "both have the same address"
put_into() { as_hearth env HADOOP_CONF_DIR="/run/hearth-$1" hearth fs -put "$2" /data || fail "put into hearth@$1"; }
# Another user than that of the services reads.
get_from() {
    setpriv --reuid nobody --regid nogroup --clear-groups env HADOOP_CONF_DIR="/run/hearth-$1" hearth fs -cat -v /data 2>/tmp/paths |
        cmp - "$2" || fail "get from hearth@$1 $3: $(cat /tmp/paths)"
}
put_into one /tmp/data
put_into two /tmp/other
get_from one /tmp/data "beside the other"
grep -q "local 20000000" /tmp/paths || fail "not read through the socket of hearth@one: $(cat /tmp/paths)"
get_from two /tmp/other "beside the other"
grep -q "local 3000000" /tmp/paths || fail "not read through the socket of hearth@two: $(cat /tmp/paths)"

say "upgrade to $(deb "$next") while all run"
sed -i 's|</configuration>|<property><name>fs.trash.interval</name><value>60</value></property></configuration>|' /etc/hearth/core-site.xml
echo '# changed' >>/etc/default/hearth
dpkg -i "$(deb "$next")" || fail "upgrade"
[ "$(dpkg-query -f '${Version}' -W hearth)" = "$next" ] || fail "version after the upgrade"
grep -q fs.trash.interval /etc/hearth/core-site.xml || fail "the upgrade replaced a changed configuration"
grep -q '^# changed' /etc/default/hearth || fail "the upgrade replaced a changed /etc/default/hearth"
same "get from the old servers after the upgrade"
stop datanode
stop namenode
start namenode hearth-namenode.service
start datanode hearth-datanode.service
same "get after the upgrade"
as_hearth hearth fs -rm /user/ann/data | grep -q .Trash || fail "the changed configuration is not read"
as_hearth hearth fs -mv /user/hearth/.Trash/Current/user/ann/data /user/ann/data || fail "mv"

say "the former version continues: its program was removed, and a DataNode of it is killed"
parent=$(pid_of up_one)
for child in $(cat "/proc/$parent/task/$parent/children"); do
    if tr '\0' ' ' <"/proc/$child/cmdline" | grep -q ' datanode'; then
        kill -KILL "$child"
        break
    fi
done
waited=0
until grep -q 'is back, as process' $logs/up_one; do
    waited=$((waited + 1))
    [ $waited -lt 600 ] || fail "the DataNode of hearth@one is not back after a minute"
    sleep 0.1
done
get_from one /tmp/data "by the former version"
stop up_one
stop up_two
start_instance one --processes --datanodes 2
start_instance two
get_from one /tmp/data "after the upgrade"
get_from two /tmp/other "after the upgrade"
stop up_one
stop up_two
# The last of two options counts: the unit has ports, too.
start_instance one --port 8120 --http-port 9970
grep -qx 'hdfs://127.0.0.1:8120' $logs/up_one || fail "HEARTH_UP_OPTIONS does not set the port"
get_from one /tmp/data "on another port"
stop up_one
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
[ ! -e /etc/default/hearth ] || fail "purge left /etc/default/hearth"
[ -e /var/lib/hearth/name/current/VERSION ] || fail "purge took the namespace"
[ -e /var/lib/hearth/up ] || fail "purge took a file system of hearth@.service"
grep -q /var/lib/hearth/memory /proc/mounts || fail "purge took what is mounted"
say "the .deb is good"
