# matplotlib lists the fonts that it finds at its first import. Do that once, here, for both users. base did it for
# Debian's version; those lists go.
font_cache() {
	rm -rf "$1/.cache/matplotlib"
	HOME="$1" MPLBACKEND=Agg python3 -c 'import matplotlib.font_manager'
	rm -rf "$1/.config/matplotlib"
	rmdir --ignore-fail-on-non-empty "$1/.config" 2>/dev/null || :
}
font_cache /root
font_cache /home/user
chown -R user:user /home/user
