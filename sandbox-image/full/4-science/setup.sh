# Have this matplotlib, too, take characters that a font lacks from others.
cat /usr/lib/berth/matplotlib/fallback.py >>/usr/local/lib/python3.11/dist-packages/matplotlib/font_manager.py

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
