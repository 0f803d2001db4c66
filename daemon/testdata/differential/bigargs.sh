big=$(printf 'x%.0s' {1..100000}); /bin/echo "$big" | wc -c; /bin/echo $(seq 20000) | wc -w; env V="$big" bash -c 'echo ${#V}'
huge=$(head -c 200000 /dev/zero | tr '\0' y); /bin/true "$huge" 2>/dev/null; echo $?; seq 100000 | xargs echo | wc -l; seq 5 | xargs -n2 echo; printf 'a\0b c\0' | xargs -0 -n1 echo
for i in {1..500}; do export "VAR_$i=$i"; done; env | grep -c ^VAR_; getconf ARG_MAX >/dev/null && echo has
