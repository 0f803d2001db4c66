nocommand_here; echo $?; /etc; echo $?; touch notexec; ./notexec; echo $?; printf '#!/no/interpreter\n' >bad; chmod +x bad; ./bad; echo $?
printf 'echo no shebang\n' >plain; chmod +x plain; ./plain; echo $?; printf '\x7fELFgarbage' >elf; chmod +x elf; ./elf; echo $?
for c in 0 1 2 126 127 128 255 256 -1; do (exit $c); echo "$c $?"; done; bash -c 'exit 300'; echo $?; (bash -c 'kill -9 $$'; echo $?) 2>/dev/null; bash -n <<<'if'; echo $?
exit 255
