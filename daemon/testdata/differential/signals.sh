for s in HUP INT QUIT TERM KILL USR1 PIPE SEGV ABRT; do (kill -$s $BASHPID); echo "$s $?"; done 2>/dev/null
trap 'echo caught TERM' TERM; kill -TERM $$; echo on
trap '' INT; kill -INT $$; echo ignored
(trap 'echo exit trap; exit 9' EXIT; exit 3); echo $?
sleep 100 & p=$!; kill $p; wait $p; echo "waited: $?"
timeout 0.2 sleep 5; echo "timeout: $?"
(timeout -s KILL 0.2 sleep 5; echo "killed: $?") 2>/dev/null
