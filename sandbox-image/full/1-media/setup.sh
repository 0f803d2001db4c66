# Lets ImageMagick read and write PDF, PostScript and XPS. Debian forbids it to protect web servers whose visitors send
# files to Ghostscript. Here the container isolates such files. Its memory and disk limit the size of pictures.
policy=/etc/ImageMagick-6/policy.xml
sed -i -e '/rights="none" pattern="\(PS[23]\?\|EPS\|PDF\|XPS\)"/d' \
	-e '/domain="resource" name="\(memory\|map\|width\|height\|area\|disk\)"/d' "$policy"

# Programs list the fonts once, here. A list is out of date if a directory has another time than was noted, so they get
# times that a layer keeps. Some are links to directories elsewhere.
find -L /usr/share/fonts -type d -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
fc-cache --system-only --really-force
