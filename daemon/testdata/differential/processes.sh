(sleep 0.1; echo child) & wait; echo done; for i in 1 2 3; do (exit $i) & pids+=($!); done; for p in "${pids[@]}"; do wait $p; echo $?; done
coproc cat; echo ping >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x; exec {COPROC[1]}>&-; wait
nohup echo hup 2>/dev/null; setsid bash -c 'echo session'; nice -n 5 bash -c nice; bash -c 'ulimit -c'; (ulimit -n 64; ulimit -n); ( (echo grandchild) & ) | cat
{ time -p true; } 2>&1 | tr 1-9 0; jobs; sleep 10 & kill -STOP $!; kill -CONT $!; kill $!; wait $! ; echo $?; echo $BASH_SUBSHELL $(echo $BASH_SUBSHELL)
