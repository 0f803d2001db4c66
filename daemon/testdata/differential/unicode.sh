s='Grüße 日本語 🎉 e\u0301'; echo "$s" "${#s}" "${s^^}" "${s:2:3}"
printf '%s' "日本語" | wc -c; printf '%s\n' 日本語 | od -An -tx1
touch 'ä ö.txt' '日本' $'new\nline' '-dash' 'a*b'; ls -1 | LC_ALL=C sort | od -An -tx1c; rm -- *; ls | wc -l
printf '\xff\xfe\x00bad\xc3' | od -An -tx1
printf '\u202ertl\u202c\n'; echo ÄÖ | tr '[:upper:]' '[:lower:]'; echo naïve | sed 's/ï/i/'; printf 'é\n' | iconv -f UTF-8 -t LATIN1 | od -An -tx1
