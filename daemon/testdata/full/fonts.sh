# Each script has a font of its own, not boxes. The lists of fonts are up to date, so first use does not rebuild them.
set -e
for pair in 漢:CJK 한:CJK 汉:CJK あ:CJK ع:Arabic ह:Devanagari த:Tamil ก:Thai א:Hebrew Ж:Noto 😀:Emoji; do
	fc-list ":charset=$(printf '%x' "'${pair%:*}")" family | grep -q "${pair#*:}" || { echo "no font for $pair"; exit 1; }
done
for pair in 'Arial:Liberation Sans' 'Times New Roman:Liberation Serif' 'Calibri:Carlito' 'Cambria:Caladea'; do
	test "$(fc-match -f '%{family}' "${pair%%:*}")" = "${pair#*:}"
done
if FC_DEBUG=128 fc-list 2>&1 | grep 'Scanning'; then echo "fonts are scanned again"; exit 1; fi
test ! -e ~/.cache/fontconfig
