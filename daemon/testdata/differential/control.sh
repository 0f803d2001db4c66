for ((i = 0; i < 3; i++)); do echo $i; done; while read -r l; do echo "[$l]"; done < <(printf 'a\nb'); until false; do break; done; select x in; do :; done </dev/null
for i in 1 2 3; do for j in a b; do [ $j = b ] && continue 2; echo $i$j; done; done; (set -e; false; echo never); echo $?; (set -u; echo $undefined); echo $?
f() { [ $1 -le 1 ] && echo 1 || echo $(($1 * $(f $(($1 - 1))))); }; f 10; ! true; echo $?; true && false || echo or; { false; true; }; echo $?
read -r a b <<<"1 2 3"; echo "$b"; mapfile -t lines < <(seq 3); echo ${#lines[@]}; getopts ab: o -b val; echo $o $OPTARG; printf -v v %03d 7; echo $v
exit 42
