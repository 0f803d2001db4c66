# Builds the file system of a sandbox and executes the guest. Arguments: root, workspace, run directory, guest binary,
# layer.
umask 022 # as in an image, whatever the tests run with
mount --make-rprivate /
chmod 755 "$5"
mount --bind "$5" "$1"
cd "$1"
mkdir -p usr etc proc dev tmp workspace home/user root run var/tmp sys .berth/run
for d in bin sbin lib lib32 lib64 libx32; do
	if [ -L "/$d" ]; then cp -P "/$d" .; elif [ -d "/$d" ]; then mkdir -p "$d" && mount --bind -o ro "/$d" "$d"; fi
done
mount --bind -o ro /usr usr
if [ ! -e .berth/guest ]; then # a new layer
	for f in passwd group nsswitch.conf ld.so.cache alternatives; do
		if [ -e "/etc/$f" ]; then cp -a "/etc/$f" etc/; fi
	done
	sed -i '/^[^:]*:[^:]*:1000:/d' etc/passwd etc/group # the guest makes the user, as in any image
	install -m 600 /dev/null etc/shadow
	chmod 1777 tmp var/tmp
	chown 1000:1000 home/user
fi
mount -t proc proc proc
echo 0 >proc/sys/net/ipv4/ip_unprivileged_port_start
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm # that of the host is shared
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount --bind dev/pts/ptmx dev/ptmx
mount --bind "$2" workspace
mount --bind "$3" .berth/run
touch .berth/guest
mount --bind -o ro "$4" .berth/guest
ip link set lo up 2>/dev/null || true # some machines have no ip; only tests that use loopback need it
exec chroot . /.berth/guest
