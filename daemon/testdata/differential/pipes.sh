seq 1000 | awk '{s += $1} END {printf "%d\n", s}'
yes | head -3; echo "${PIPESTATUS[@]}"
true | false | true; echo "${PIPESTATUS[@]} $?"
set -o pipefail; false | true; echo $?
mkfifo p; (echo through >p) & cat p; wait
seq 20 | tee >(wc -l >n) | tail -1; sleep 0.2; cat n
head -c 3000000 /dev/zero | tr '\0' x | wc -c
(exit 7) | cat; echo $?
