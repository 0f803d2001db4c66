printf 'b 2\na 10\nc 1\na 9\n' >t
sort t; sort -k2n t; sort -u -k1,1 t; sort -r t | uniq -c
cut -d' ' -f2 t | paste -sd+ | bc 2>/dev/null || echo "no bc"
sed -n '2,3p;s/a/A/gp' t; sed -E 's/([a-z]) ([0-9]+)/\2-\1/' t; tr a-c A-C <t; rev t; tac t; nl t; fold -w 3 t; expand -t 4 <<<$'a\tb'
grep -c a t; grep -v a t; grep -o '[0-9]*$' t; grep nothing t; echo $?
awk '{c[$1] += $2} END {for (k in c) print k, c[k]}' t | sort; join <(sort t) <(sort t) | head -3; comm <(echo a) <(echo b)
printf '%5d|%-5s|%05.1f|%x|%q\n' 42 ab 3.14159 255 'a b$c'
md5sum t; sha256sum t; base64 t; od -c t | head -3; wc t; split -l 2 t part.; ls part.*; csplit -s t 2; ls xx*
