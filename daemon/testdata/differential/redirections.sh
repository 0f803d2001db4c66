echo one >f; echo two >>f; cat <f; echo err >&2
{ echo out; echo bad >&2; } 2>&1 | sort
{ echo a >&3; } 3>&1 >/dev/null
exec 5<>g; echo rw >&5; exec 5>&-; cat g
cat <<EOF
here $((1 + 1)) $(echo doc)
EOF
cat <<'EOF'
$not $(expanded) \
EOF
cat <<<"a string"
set -o noclobber; echo x >f; echo "noclobber: $?"; echo forced >|f; cat f
cat /no/such/file; echo $?
echo closed >&-; echo $?
diff <(echo a) <(echo b); echo $?
