# Runs as root inside an image to which a build adds a layer, under sh -eu. The layer's parts lie below /run/berth:
# prepare.sh, Debian packages in repo/, wheels and their list in wheels/, npm's modules in modules/, files in files/,
# setup.sh. For the lowest layer, prepare.sh and Debian's packages come earlier.
#
# A build by berth has no network here. A build from a Dockerfile has one (BERTH_ONLINE=1). There prepare.sh and
# Debian's packages come earlier, and pip fetches the wheels, by the same hashes.

exec >&2 # where progress is read from
cd /run/berth

if [ -f prepare.sh ] && [ -z "${BERTH_ONLINE:-}" ]; then
	sh -eu prepare.sh
fi
if [ -d repo ]; then
	# A repository of exactly what was resolved. Its lists, caches and logs stay out of the image.
	echo 'deb [trusted=yes] file:/run/berth/repo ./' >sources.list
	apt() {
		apt-get --yes --no-remove --no-install-recommends -o APT::Sandbox::User=root -o Dpkg::Use-Pty=false \
			-o Dir::Etc::sourcelist=/run/berth/sources.list -o Dir::Etc::sourceparts=/dev/null \
			-o Dir::State::lists=/run/berth/apt -o Dir::Cache=/run/berth/apt -o Dir::Log=/run/berth/apt "$@"
	}
	mkdir -p apt/partial apt/archives/partial
	apt update
	apt install $(cat packages)
fi

site=/usr/local/lib/python3.11/dist-packages
if [ -d wheels ]; then
	# A newer version of one of Debian's own packages goes before it; Debian's stays, for Debian's programs.
	[ "${BERTH_ONLINE:-}" ] || set -- --no-index --find-links wheels
	python3 -m pip install "$@" --require-hashes --only-binary :all: --no-deps --ignore-installed --no-compile \
		--no-cache-dir --break-system-packages --disable-pip-version-check --root-user-action ignore --progress-bar off \
		--requirement wheels/wheels.txt
	# The libraries' own test suites, as dpkg.cfg of base leaves out those of Debian's.
	find "$site" -depth -type d -name tests -exec rm -r {} +
fi

if [ -d modules ]; then
	mkdir -p /usr/local/lib/node_modules
	cp -R --preserve=mode modules/. /usr/local/lib/node_modules/
fi

[ ! -d files ] || cp -R --preserve=mode files/. /
if [ -f setup.sh ]; then
	echo "berth: setup"
	sh -eu setup.sh
fi

if [ -d "$site" ]; then
	# Compile it: containers do not. A compiled module holds its source's time, so the source must have the time of the
	# layer. Only templates and code for other Python versions fail to compile.
	echo "berth: compiling"
	find "$site" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
	find "$site" -name '*.py' -print0 | LC_ALL=C sort -z |
		env -u SOURCE_DATE_EPOCH PYTHONHASHSEED=0 \
			xargs -0 -P "$(nproc)" -n 250 python3 -m compileall -qq --invalidation-mode timestamp || :
fi

# Backups and logs that no container reads.
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- /etc/.pwd.lock
rm -f /var/lib/dpkg/status-old /var/lib/dpkg/*-old /var/cache/debconf/*-old
rm -rf /var/cache/ldconfig/* /var/log/*.log /var/log/apt
