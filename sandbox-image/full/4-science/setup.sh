# matplotlib lists the fonts it finds at first import; do it once, here, for both users, as base does for Debian's version,
# whose lists go.
font_cache() {
	rm -rf "$1/.cache/matplotlib"
	HOME="$1" MPLBACKEND=Agg python3 -c 'import matplotlib.font_manager'
	rm -rf "$1/.config/matplotlib"
	rmdir --ignore-fail-on-non-empty "$1/.config" 2>/dev/null || :
}
font_cache /root
font_cache /home/user
chown -R user:user /home/user
